// SPDX-License-Identifier: Apache-2.0
// Entries of a container of device code that are compressed, as nvcc makes them by default. The
// worker must know what variables they declare before the driver loads them. Input is a peer's:
// nothing outside of the payload is read, and the text or cubin has bounds.
#pragma once

#include <cstdint>
#include <vector>

#include "api/cuda/code_image.h"

namespace tendril::worker::cuda {

// Code that is larger when unpacked has half a gigabyte of initial values, or is an attack.
inline constexpr uint64_t kUnpackedMax = uint64_t{512} << 20;

enum class Unpacked : uint8_t {
  kYes,
  kUnknown /* way of packing */,
  kBad /* malformed, too large */
};

// `payload` has `entry.payload_bytes`.
Unpacked unpack_code(const api::CodeEntry& entry, const uint8_t* payload,
                     std::vector<uint8_t>* out);

}  // namespace tendril::worker::cuda
