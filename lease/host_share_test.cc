// SPDX-License-Identifier: Apache-2.0
// What leases of several sizes get of machines of several sizes.
#include "lease/host_share.h"

#include <gtest/gtest.h>

namespace tendril::lease {
namespace {

constexpr uint64_t kGib = uint64_t{1} << 30;

TEST(HostShare, FollowsTheSlice) {
  const HostShare half = host_share(500'000, 256 * kGib, 63),
                  all = host_share(1'000'000, 256 * kGib, 63);
  EXPECT_NEAR(static_cast<double>(half.memory_bytes) / kGib, 96, 0.1);
  EXPECT_NEAR(static_cast<double>(all.memory_bytes) / kGib, 192, 0.1);
  EXPECT_EQ(half.weight, 5000u);
  EXPECT_EQ(all.weight, 10'000u);
  EXPECT_EQ(half.threads, 63u * 128);
}

TEST(HostShare, LeavesASmallSliceWhatADriverNeeds) {
  const HostShare small = host_share(1, 64 * kGib, 63);
  EXPECT_EQ(small.memory_bytes, 2 * kGib);
  EXPECT_EQ(small.weight, 1u);
  EXPECT_EQ(host_share(9'000'000, 64 * kGib, 1).weight, 10'000u) << "no more than all";
}

}  // namespace
}  // namespace tendril::lease
