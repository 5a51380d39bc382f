// SPDX-License-Identifier: Apache-2.0
// See graph_cost.h.
#include "base/graph_cost.h"

#include <algorithm>

namespace tendril::base {
namespace {

// The other ends of each node's edges, one list behind the other.
struct Ends {
  std::vector<uint32_t> first, all;
  uint32_t count(uint32_t node) const { return first[node + 1] - first[node]; }
};

template <typename Near, typename Far>
Ends ends_of(uint64_t nodes, const std::vector<std::pair<uint32_t, uint32_t>>& edges, Near near,
             Far far) {
  Ends ends;
  ends.first.resize(nodes + 1);
  ends.all.resize(edges.size());
  for (const auto& edge : edges) ++ends.first[near(edge) + 1];
  for (uint64_t i = 0; i < nodes; ++i) ends.first[i + 1] += ends.first[i];
  std::vector<uint32_t> at(ends.first.begin(), ends.first.end() - 1);
  for (const auto& edge : edges) ends.all[at[near(edge)]++] = far(edge);
  return ends;
}

}  // namespace

uint64_t graph_branches(uint64_t nodes, const std::vector<std::pair<uint32_t, uint32_t>>& edges) {
  const auto from = [](const auto& edge) { return edge.first; };
  const auto to = [](const auto& edge) { return edge.second; };
  const Ends later = ends_of(nodes, edges, from, to), earlier = ends_of(nodes, edges, to, from);
  std::vector<uint32_t> missing(nodes), left(nodes), wave, next;
  std::vector<bool> passed_on(nodes);
  for (uint32_t node = 0; node < nodes; ++node) {
    left[node] = later.count(node);
    missing[node] = earlier.count(node);
    if (missing[node] == 0) wave.push_back(node);
  }
  uint64_t branches = 0, idle = 0;
  while (!wave.empty()) {
    uint64_t ended = 0;  // their branches are idle for the next wave
    next.clear();
    for (const uint32_t node : wave) {
      bool goes_on = false;
      for (uint32_t i = earlier.first[node]; i < earlier.first[node + 1]; ++i) {
        const uint32_t before = earlier.all[i];
        if (!goes_on && !passed_on[before]) passed_on[before] = goes_on = true;
        if (--left[before] == 0 && !passed_on[before]) ++ended;
      }
      if (!goes_on && idle != 0)
        --idle;
      else if (!goes_on)
        ++branches;
      if (left[node] == 0) ++ended;
      for (uint32_t i = later.first[node]; i < later.first[node + 1]; ++i)
        if (--missing[later.all[i]] == 0) next.push_back(later.all[i]);
    }
    idle += ended;
    wave.swap(next);
  }
  return branches;
}

}  // namespace tendril::base
