// SPDX-License-Identifier: Apache-2.0
// The name of a piece of device code: 256 bits of BLAKE2b (RFC 7693). Client and worker name images
// with it, so a server may trust what it has already seen without looking at it again. Any thread;
// about a gigabyte a second, so not for the hot path.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace tendril::base {

inline constexpr size_t kContentHashBytes = 32;

// The raw 32 bytes.
std::string content_hash(const void* data, uint64_t bytes);

}  // namespace tendril::base
