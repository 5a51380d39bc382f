// SPDX-License-Identifier: Apache-2.0
// Which pairs of ports are tried, and which is taken.
#include "session/choice/port_pairs.h"

#include <gtest/gtest.h>

namespace tendril::session {
namespace {

using transport::Measured;
using transport::Port;
using Pairs = std::vector<PortPair>;

std::vector<Port> roce(size_t count) {
  return std::vector<Port>(count, Port{"mlx5_0:1", "RoCE", 100'000});
}

TEST(PortPairs, PairsThatShareNoPortComeFirst) {
  EXPECT_EQ(pairs_to_try(roce(1), roce(1)), (Pairs{{0, 0}}));
  EXPECT_EQ(pairs_to_try(roce(2), roce(2)), (Pairs{{0, 0}, {1, 1}, {0, 1}, {1, 0}}));
  EXPECT_EQ(pairs_to_try(roce(1), roce(3)), (Pairs{{0, 0}, {0, 1}, {0, 2}}));
  EXPECT_EQ(pairs_to_try(roce(3), roce(2)), (Pairs{{0, 0}, {1, 1}, {0, 1}, {1, 0}}));
  EXPECT_EQ(pairs_to_try(roce(4), roce(4)), (Pairs{{0, 0}, {1, 1}, {2, 2}, {3, 3}}));
  EXPECT_EQ(pairs_to_try(roce(9), roce(1)).size(), kPairsMost);
  EXPECT_TRUE(pairs_to_try({}, roce(2)).empty());
  EXPECT_TRUE(pairs_to_try({}, {}).empty());
}

TEST(PortPairs, PortsOfTwoNetworksAreNoPair) {
  const std::vector<Port> both = {{"mlx5_0:1", "RoCE", 100'000},
                                  {"mlx5_1:1", "InfiniBand", 200'000}};
  EXPECT_EQ(pairs_to_try(both, both), (Pairs{{0, 0}, {1, 1}}));
  EXPECT_EQ(pairs_to_try(roce(2), both), (Pairs{{0, 0}, {1, 0}}));
}

TEST(PortPairs, BulkDataDecideThenRoundTrips) {
  EXPECT_TRUE(is_better({50, 12}, {5, 10}));
  EXPECT_FALSE(is_better({5, 10}, {50, 12}));
  EXPECT_TRUE(is_better({5, 10}, {6, 10.5}));
  EXPECT_FALSE(is_better({5.9, 10}, {6, 10})) << "that is noise";
  EXPECT_FALSE(is_better({6, 10.5}, {5, 10}));
}

std::vector<TriedPair> tried() {
  return {{{0, 0}, "a to a", {5, 10}, ""},
          {{1, 1}, "b to b", {5, 9}, ""},
          {{0, 1}, "a to b", {5, 11}, ""},
          {{1, 0}, "b to a", {0, 0}, "nothing came back"}};
}

TEST(PortPairs, OnlyAPairOfOtherPortsThatIsAlikeHelps) {
  EXPECT_EQ(pair_beside(tried(), 0), 1u);
  EXPECT_EQ(pair_beside(tried(), 2), 4u) << "the one that could help has failed";
  std::vector<TriedPair> uneven = tried();
  uneven[1].measured.gigabytes_per_second = 7.9;
  EXPECT_EQ(pair_beside(uneven, 0), 4u) << "it would hold the others up";
}

TEST(PortPairs, PeopleHearOfAll) {
  EXPECT_EQ(told(tried(), 2),
            "a to b is the best of 4 pairs of ports (11 GB/s; a to a 10 GB/s; b to b 9 GB/s; b to "
            "a failed: nothing came back)");
}

}  // namespace
}  // namespace tendril::session
