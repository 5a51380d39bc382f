// SPDX-License-Identifier: Apache-2.0
// Decoder of the LZ4 block format, as used inside fat binaries. Input is hostile: the decoder never
// reads or writes outside of the two buffers.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tendril::base {

// Bytes written, or -1 if the input is malformed or the output does not fit.
int64_t lz4_decode(const uint8_t* input, size_t input_bytes, uint8_t* output, size_t output_bytes);

}  // namespace tendril::base
