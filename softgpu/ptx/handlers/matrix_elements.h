// SPDX-License-Identifier: Apache-2.0
// One element of a matrix fragment as a double and back, for handlers_matrix.cc and
// handlers_wmma.cc. Private to one translation unit at a time, like lanes.h.
#pragma once

#include <cstring>

#include "softgpu/ptx/handlers/numeric.h"
#include "softgpu/ptx/text/ast.h"

namespace tendril::softgpu {
namespace {

// Member masks of an instruction that every lane of a warp must reach.
constexpr uint32_t kEverybody[32] = {~0u, ~0u, ~0u, ~0u, ~0u, ~0u, ~0u, ~0u, ~0u, ~0u, ~0u,
                                     ~0u, ~0u, ~0u, ~0u, ~0u, ~0u, ~0u, ~0u, ~0u, ~0u, ~0u,
                                     ~0u, ~0u, ~0u, ~0u, ~0u, ~0u, ~0u, ~0u, ~0u, ~0u};

inline double load_element(Type t, const uint8_t* p) {
  uint16_t half;
  uint32_t word;
  double wide;
  switch (t) {
    case Type::kF16:
      return std::memcpy(&half, p, 2), half_to_float(half);
    case Type::kBF16:
      return std::memcpy(&half, p, 2), bf16_to_float(half);
    case Type::kF64:
      return std::memcpy(&wide, p, 8), wide;
    case Type::kE4M3:
      return e4m3_to_float(*p);
    case Type::kE5M2:
      return half_to_float(static_cast<uint16_t>(*p << 8));
    case Type::kU8:
      return *p;
    case Type::kS8:
      return static_cast<int8_t>(*p);
    case Type::kS32:
      return std::memcpy(&word, p, 4), static_cast<int32_t>(word);
    case Type::kTF32:
      return std::memcpy(&word, p, 4), bit_cast_to<float>(word & 0xFFFFE000u);
    default:
      return std::memcpy(&word, p, 4), bit_cast_to<float>(word);
  }
}

inline void store_element(Type t, uint8_t* p, double v, bool saturate) {
  if (t == Type::kF16) {
    uint16_t half = static_cast<uint16_t>(narrow_double(v, 10, 5, kRoundNearest));
    std::memcpy(p, &half, 2);
  } else if (t == Type::kF64) {
    std::memcpy(p, &v, 8);
  } else if (t == Type::kS32) {
    // At most 32 products of bytes: exact in double. Only the accumulator can wrap.
    int64_t wide = static_cast<int64_t>(v);
    if (saturate) wide = wide > INT32_MAX ? INT32_MAX : wide < INT32_MIN ? INT32_MIN : wide;
    uint32_t word = static_cast<uint32_t>(wide);
    std::memcpy(p, &word, 4);
  } else {
    uint32_t word = bit_cast_to<uint32_t>(canonical(static_cast<float>(v)));
    std::memcpy(p, &word, 4);
  }
}

}  // namespace
}  // namespace tendril::softgpu
