// SPDX-License-Identifier: Apache-2.0
// Amounts as people write them: fractions of a GPU (0.5, 1/3, 35%) and sizes of memory (10G, 512M,
// 4096). Used by the command line and by the daemon's options and messages. Pure functions.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"

namespace tendril::config {

inline constexpr uint32_t kWholeGpu = 1'000'000;  // millionths

// "0.5", "1", "1/3", "35%": in millionths, rounded down so that n parts of 1/n always fit. Above 0
// and at most 1.
base::Result<uint32_t> parse_fraction(const std::string& text);

// "10G", "512M", "1.5GiB", "800000000". K, M, G and T are powers of 1024, with or without B or iB;
// a bare number counts in `bare_unit` (1 = bytes; the command line's -m counts in MB as its users
// know it).
base::Result<uint64_t> parse_size(const std::string& text, uint64_t bare_unit = 1);

std::string format_size(uint64_t bytes);           // "10.0 GiB"
std::string format_fraction(uint32_t millionths);  // "0.35", "1.00", "0.333333"

}  // namespace tendril::config
