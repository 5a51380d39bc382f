// SPDX-License-Identifier: Apache-2.0
// See lz4.h. A block is a list of sequences: token, literals, little-endian distance, match. The
// last one has literals only.

#include "base/lz4.h"

#include <cstring>

namespace tendril::base {
namespace {

constexpr size_t kMinMatch = 4;

// Adds the continuation bytes of a length whose four bits are all set.
bool read_length(const uint8_t*& in, const uint8_t* end, size_t* length) {
  uint8_t byte;
  do {
    if (in == end || *length > SIZE_MAX / 2) return false;
    byte = *in++;
    *length += byte;
  } while (byte == 255);
  return true;
}

}  // namespace

int64_t lz4_decode(const uint8_t* input, size_t input_bytes, uint8_t* output, size_t output_bytes) {
  const uint8_t* in = input;
  const uint8_t* end = input + input_bytes;
  size_t written = 0;
  while (in < end) {
    uint8_t token = *in++;
    size_t literals = token >> 4;
    if (literals == 15 && !read_length(in, end, &literals)) return -1;
    if (literals > static_cast<size_t>(end - in) || literals > output_bytes - written) return -1;
    if (literals != 0) memcpy(output + written, in, literals);
    in += literals;
    written += literals;
    if (in == end) return static_cast<int64_t>(written);
    if (end - in < 2) return -1;
    size_t distance = in[0] | static_cast<size_t>(in[1]) << 8;
    in += 2;
    size_t match = token & 15;
    if (match == 15 && !read_length(in, end, &match)) return -1;
    match += kMinMatch;
    if (distance == 0 || distance > written || match > output_bytes - written) return -1;
    for (size_t i = 0; i < match; ++i, ++written) output[written] = output[written - distance];
  }
  return -1;  // a block may not end with a match
}

}  // namespace tendril::base
