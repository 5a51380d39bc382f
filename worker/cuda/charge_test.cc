// SPDX-License-Identifier: Apache-2.0
// Charging: the quota holds, and memory on its way back is charged until it is back, whoever gets its address next.
#include "worker/cuda/charge.h"

#include <gtest/gtest.h>

namespace tendril::worker::cuda {
namespace {

wire::Assignment one_slice(uint64_t bytes) {
  wire::Assignment assignment = {};
  assignment.slice_count = 1;
  assignment.slices[0].memory_bytes = bytes;
  return assignment;
}

TEST(Charge, TheQuotaHolds) {
  Charge charge(one_slice(100), nullptr);
  EXPECT_TRUE(charge.take(0, 60));
  EXPECT_FALSE(charge.take(0, 41));
  EXPECT_TRUE(charge.take(0, 40));
  charge.give_back(0, 40);
  EXPECT_EQ(charge.used(0), 60u);
}

TEST(Charge, WhatLeavesIsChargedUntilItHasLeft) {
  Charge charge(one_slice(100), nullptr);
  ASSERT_TRUE(charge.take(0, 60));
  charge.remember(0x1000, 0, 60, nullptr);
  charge.leave(0x1000);
  charge.leave(0x1000);
  EXPECT_EQ(charge.leaving(0), 60u);
  EXPECT_FALSE(charge.take(0, 60));
  charge.left(0x1000, true);
  EXPECT_EQ(charge.leaving(0), 0u);
  EXPECT_EQ(charge.used(0), 0u);
}

TEST(Charge, TellsWhatLeaves) {
  Charge charge(one_slice(1 << 20), nullptr);
  ASSERT_TRUE(charge.take(0, 0x200));
  charge.remember(0x1000, 0, 0x100, nullptr);
  charge.remember(0x2000, 0, 0x100, nullptr);
  EXPECT_FALSE(charge.is_leaving(0x1000, 1));
  charge.leave(0x1000);
  EXPECT_TRUE(charge.is_leaving(0x10ff, 1));
  EXPECT_TRUE(charge.is_leaving(0xfff, 2));
  EXPECT_TRUE(charge.is_leaving(0, UINT64_MAX));
  EXPECT_FALSE(charge.is_leaving(0x1100, 0x1000));
  EXPECT_FALSE(charge.is_leaving(0xfff, 1));
  EXPECT_FALSE(charge.is_leaving(0x1000, 0));
  charge.left(0x1000, true);
  EXPECT_FALSE(charge.is_leaving(0x1000, 0x100));
}

TEST(Charge, WhatTheDriverKeepsStays) {
  Charge charge(one_slice(100), nullptr);
  ASSERT_TRUE(charge.take(0, 60));
  charge.remember(0x1000, 0, 60, nullptr);
  charge.leave(0x1000);
  charge.left(0x1000, false);
  EXPECT_EQ(charge.leaving(0), 0u);
  EXPECT_EQ(charge.used(0), 60u);
}

// The driver may give the address out again before the thread that freed it has said so.
TEST(Charge, AnAddressGivenOutAgainEndsTheOldCharge) {
  Charge charge(one_slice(100), nullptr);
  ASSERT_TRUE(charge.take(0, 60));
  charge.remember(0x1000, 0, 60, nullptr);
  charge.leave(0x1000);
  ASSERT_TRUE(charge.take(0, 30));
  charge.remember(0x1000, 0, 30, nullptr);
  charge.left(0x1000, true);
  EXPECT_EQ(charge.used(0), 30u);
  EXPECT_EQ(charge.leaving(0), 0u);
}

}  // namespace
}  // namespace tendril::worker::cuda
