// SPDX-License-Identifier: Apache-2.0
// The name of a piece of device code: 256 bits of BLAKE2b (RFC 7693). Client and worker name images
// with it, so a server recognises code that it has seen without reading it again. Any thread. It
// hashes about a gigabyte a second, so keep it off the hot path.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace tendril::base {

inline constexpr size_t kContentHashBytes = 32;

// The raw 32 bytes.
std::string content_hash(const void* data, uint64_t bytes);

}  // namespace tendril::base
