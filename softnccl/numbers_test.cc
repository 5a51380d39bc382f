// SPDX-License-Identifier: Apache-2.0
// Arithmetic of elements against numbers worked out by hand, and every value of the small formats.
#include "softnccl/numbers.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

namespace tendril::softnccl {
namespace {

TEST(Numbers, EveryValueOfASmallFormatSurvives) {
  for (ncclDataType_t type : {ncclFloat16, ncclBfloat16, ncclFloat8e4m3, ncclFloat8e5m2}) {
    const unsigned end = type_bytes(type) == 1 ? 0x100 : 0x10000;
    for (unsigned bits = 0; bits < end; bits++) {
      const float value = to_float(type, static_cast<uint16_t>(bits));
      // In the formats of 8 bits infinity becomes the largest number, as every overflow does.
      if (std::isnan(value) || (end == 0x100 && std::isinf(value))) continue;
      ASSERT_EQ(from_float(type, value), bits) << "type " << type;
    }
  }
}

TEST(Numbers, RoundingIsToNearestEven) {
  EXPECT_EQ(from_float(ncclBfloat16, 1 + 1.0f / 256), 0x3f80);          // a tie: down to even
  EXPECT_EQ(from_float(ncclBfloat16, 1 + 3.0f / 256), 0x3f82);          // a tie: up to even
  EXPECT_EQ(from_float(ncclFloat16, 65519.0f), 0x7bff);                 // below the tie
  EXPECT_EQ(from_float(ncclFloat16, 65520.0f), 0x7c00);                 // infinity
  EXPECT_EQ(from_float(ncclFloat16, std::ldexp(1.0f, -25)), 0);         // a tie below the smallest
  EXPECT_EQ(from_float(ncclFloat16, std::ldexp(3.0f, -26)), 1);         // above it
  EXPECT_EQ(from_float(ncclFloat16, std::ldexp(2047.0f, -25)), 0x400);  // carries to a normal one
  EXPECT_EQ(from_float(ncclFloat8e4m3, 1000.0f), 0x7e);                 // no infinity: the largest
  EXPECT_EQ(from_float(ncclFloat8e5m2, -1e9f), 0xfb);
  EXPECT_TRUE(std::isinf(to_float(ncclFloat8e5m2, 0x7c)));
  EXPECT_TRUE(std::isnan(to_float(ncclFloat8e4m3, 0x7f)));
  EXPECT_EQ(to_float(ncclFloat8e4m3, 0x7e), 448.0f);
}

TEST(Numbers, ReductionsStepByStep) {
  int8_t wrapped[] = {100, -7}, more[] = {100, 3};
  combine(ncclInt8, Reduction::kSum, wrapped, more, 2);
  EXPECT_EQ(wrapped[0], -56);
  combine(ncclInt8, Reduction::kMinimum, wrapped, more, 2);
  EXPECT_EQ(wrapped[0], -56);
  combine(ncclInt8, Reduction::kMaximum, wrapped, more, 2);
  EXPECT_EQ(wrapped[1], 3);
  uint64_t product[] = {1ull << 63}, two[] = {2};
  combine(ncclUint64, Reduction::kProduct, product, two, 1);
  EXPECT_EQ(product[0], 0u);
  // 2048 + 1 is a tie in half precision, and each step is rounded: order matters.
  uint16_t half[] = {from_float(ncclFloat16, 2048)}, one[] = {from_float(ncclFloat16, 1)};
  combine(ncclFloat16, Reduction::kSum, half, one, 1);
  combine(ncclFloat16, Reduction::kSum, half, one, 1);
  EXPECT_EQ(to_float(ncclFloat16, half[0]), 2048.0f);
}

TEST(Numbers, AveragesAndScales) {
  int32_t sum[] = {-7, 7};
  prepare_average(ncclInt32, sum, 2, 2);
  EXPECT_EQ(sum[0], -7);
  finish_average(ncclInt32, sum, 2, 2);
  EXPECT_EQ(sum[0], -3);  // towards zero
  EXPECT_EQ(sum[1], 3);
  double part[] = {3};
  prepare_average(ncclFloat64, part, 1, 4);
  finish_average(ncclFloat64, part, 1, 4);
  EXPECT_EQ(part[0], 0.75);
  const float factor = 0.5f;
  float data[] = {3, -1};
  scale(ncclFloat32, data, &factor, 2);
  EXPECT_EQ(data[0], 1.5f);
  EXPECT_EQ(data[1], -0.5f);
  EXPECT_EQ(type_bytes(static_cast<ncclDataType_t>(12)), 0u);
}

}  // namespace
}  // namespace tendril::softnccl
