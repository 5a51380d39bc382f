// SPDX-License-Identifier: Apache-2.0
// Amounts as people write them: fractions of a GPU, sizes of memory, lengths of time. The command
// line, the daemon's options, policy files and the client libraries' variables share this reader,
// so that a text means the same everywhere. Pure functions.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"

namespace tendril::config {

inline constexpr uint32_t kWholeGpu = 1'000'000;  // millionths

// "0.5", "1", "1/3", "35%": in millionths, rounded down so that n parts of 1/n always fit. Above 0,
// at most 1.
base::Result<uint32_t> parse_fraction(const std::string& text);

// "10G", "512M", "1.5GiB", "800000000B". K, M, G and T are powers of 1024, with or without i, B or
// iB. A number without a unit counts MiB, as in other GPU tools: "512" is "512M". A bare number
// above 16 TiB is refused, because the user must have meant bytes.
base::Result<uint64_t> parse_size(const std::string& text);

std::string format_size(uint64_t bytes);          // for people: "10.0 GiB"
std::string format_size_exactly(uint64_t bytes);  // for parse_size: "10G", "1536M", "7B"
// "0.25 GPU", "0.25 GPU with 10.0 GiB", "10.0 GiB". 0: not said.
std::string format_slice(uint32_t share_millionths, uint64_t memory_bytes);
std::string format_fraction(uint32_t millionths);  // "0.35", "1.00", "0.333333"

// "90s", "30m", "8h", "7d": in seconds; a number without a unit counts seconds. At most 10,000
// days.
base::Result<uint64_t> parse_duration(const std::string& text);
std::string format_duration(uint64_t seconds);  // for people: "45 s", "23 min", "2 h 05 min", "3 d"

}  // namespace tendril::config
