// SPDX-License-Identifier: Apache-2.0
// Branches of graphs of several shapes, and what they take.
#include "base/graph_cost.h"

#include <gtest/gtest.h>

#include <random>

namespace tendril::base {
namespace {

using Edges = std::vector<std::pair<uint32_t, uint32_t>>;

TEST(GraphCost, BranchesAreWhatRunsAtOnce) {
  EXPECT_EQ(graph_branches(0, {}), 0u);
  EXPECT_EQ(graph_branches(5, {}), 5u) << "nothing waits for anything";
  EXPECT_EQ(graph_branches(4, {{0, 1}, {1, 2}, {2, 3}}), 1u);
  EXPECT_EQ(graph_branches(4, {{0, 1}, {0, 2}, {1, 3}, {2, 3}}), 2u);
  EXPECT_EQ(graph_branches(4, {{0, 1}, {0, 2}, {0, 3}}), 3u);
  EXPECT_EQ(graph_branches(3, {{0, 2}, {1, 2}}), 2u) << "two that meet";
  EXPECT_EQ(graph_branches(2, {{0, 1}, {1, 0}}), 0u) << "a cycle";
}

TEST(GraphCost, BranchesThatHaveEndedAreUsedAgain) {
  Edges edges;  // 100 times: two nodes beside each other, then one
  for (uint32_t i = 0; i < 100; ++i) {
    edges.insert(edges.end(), {{3 * i, 3 * i + 1}, {3 * i, 3 * i + 2}});
    edges.insert(edges.end(), {{3 * i + 1, 3 * i + 3}, {3 * i + 2, 3 * i + 3}});
  }
  EXPECT_EQ(graph_branches(301, edges), 2u);
}

TEST(GraphCost, RandomGraphsHaveNoMoreBranchesThanNodesAndNoFewerThanRoots) {
  std::mt19937 dice(7);
  for (int round = 0; round < 200; ++round) {
    const uint32_t nodes = 1 + dice() % 60;
    Edges edges;
    std::vector<bool> waits(nodes);
    for (uint32_t to = 1; to < nodes; ++to) {
      for (uint32_t from = 0; from < to; ++from) {
        if (dice() % 12 != 0) continue;
        edges.emplace_back(from, to);
        waits[to] = true;
      }
    }
    uint64_t roots = 0;
    for (const bool each : waits) roots += !each;
    const uint64_t branches = graph_branches(nodes, edges);
    EXPECT_LE(branches, nodes);
    EXPECT_GE(branches, roots) << "roots may all run at once";
  }
}

TEST(GraphCost, IsWhatWasMeasured) {
  const GraphCost empty_nodes{1000, 1, 0}, kernels{1000, 1, 4'000'000};
  EXPECT_NEAR(static_cast<double>(empty_nodes.bytes()), 1000 * 2.4 * 1024, 150'000);
  EXPECT_NEAR(static_cast<double>(kernels.bytes()), 1000 * 8.2 * 1024, 200'000);
  EXPECT_NEAR(static_cast<double>(GraphCost{0, 40, 0}.bytes()), 40 * 110 * 1024, 1);
  GraphCost sum = empty_nodes;
  sum.add(kernels);
  EXPECT_EQ(sum.bytes(), empty_nodes.bytes() + kernels.bytes());
}

}  // namespace
}  // namespace tendril::base
