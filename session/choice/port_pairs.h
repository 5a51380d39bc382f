// SPDX-License-Identifier: Apache-2.0
// Which pairs of ports of both ends are tried, where a fabric has several, and which of them carry
// the session: arithmetic over what was measured. Pure. background_trial.h asks.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "transport/registry.h"

namespace tendril::session {

inline constexpr size_t kPairsMost = 4;

// By their places in both ends' lists.
struct PortPair {
  size_t client = 0, worker = 0;
  bool operator==(const PortPair&) const = default;
};

// The first pair is both ends' first ports, which the session was offered on. Then those whose
// ports are not yet in a pair, because they may work beside it. Never ports of two networks.
std::vector<PortPair> pairs_to_try(const std::vector<transport::Port>& client,
                                   const std::vector<transport::Port>& worker);

struct TriedPair {
  PortPair ports;
  std::string name;  // "mlx5_0:1 to mlx5_1:1"
  transport::Measured measured;
  std::string failure;  // empty: it works
};
// More of bulk data; if that is alike, a shorter round trip. Differences within noise are none.
bool is_better(const transport::Measured& one, const transport::Measured& other);
// The place of the pair that shall carry every other bulk line besides `best`: both ends' ports are
// others, and it is at most a fifth slower. Without one: the count of pairs.
size_t pair_beside(const std::vector<TriedPair>& tried, size_t best);
// "mlx5_1:1 to mlx5_1:1 is the best of 3 pairs of ports (11.9 GB/s; ... 5.2 GB/s; ... failed: ...)"
std::string told(const std::vector<TriedPair>& tried, size_t best);

}  // namespace tendril::session
