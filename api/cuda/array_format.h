// SPDX-License-Identifier: Apache-2.0
// How large the elements of a CUDA array are. The client counts its copies in them, the worker
// charges the slice by them, and the software GPU lays its arrays out by them. Source: CUDA driver
// API, CUarray_format.
#pragma once

#include <cstdint>

#include "api/cuda_abi.gen.h"

namespace tendril::api {

// Bytes of one channel of an element; 0: any other format, such as a planar or a block-compressed
// one.
constexpr uint64_t channel_bytes(CUarray_format format) {
  switch (format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8:
      return 1;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF:
      return 2;
    case CU_AD_FORMAT_UNSIGNED_INT32:
    case CU_AD_FORMAT_SIGNED_INT32:
    case CU_AD_FORMAT_FLOAT:
      return 4;
    default:
      return 0;
  }
}

}  // namespace tendril::api
