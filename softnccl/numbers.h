// SPDX-License-Identifier: Apache-2.0
// Elements and what reductions do to them. Each step is computed in float (or in the type itself)
// and rounded to the element's type, to nearest even. So a reduction in order of ranks has one
// answer, bit for bit. Pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "softnccl/nccl.h"

namespace tendril::softnccl {

enum class Reduction : uint8_t { kSum, kProduct, kMaximum, kMinimum, kAverage, kScaledSum };

// 0: no such type.
size_t type_bytes(ncclDataType_t type);

// into[i] = into[i] combined with other[i]. An average and a scaled sum combine by addition.
void combine(ncclDataType_t type, Reduction reduction, void* into, const void* other, size_t count);

// data[i] *= *scalar
void scale(ncclDataType_t type, void* data, const void* scalar, size_t count);

// What each rank does to its own data first: an average of floating-point numbers multiplies by
// 1 / ranks.
void prepare_average(ncclDataType_t type, void* data, size_t count, int ranks);
// What is done to the sum: an average of integers divides, towards zero.
void finish_average(ncclDataType_t type, void* data, size_t count, int ranks);

// The small floating-point formats. Values beyond the largest become infinite, or the largest in
// the formats of 8 bits.
float to_float(ncclDataType_t type, uint16_t bits);
uint16_t from_float(ncclDataType_t type, float value);

}  // namespace tendril::softnccl
