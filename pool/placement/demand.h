// SPDX-License-Identifier: Apache-2.0
// Which requests a pool gets, by kind, and how often. Strategies that look ahead read it, because a
// gap is worth something only if requests come that fit it. The scheduler adds arrivals and lets
// the past fade. Now and then, outside decisions, it passes the result to Placer::learn.
#pragma once

#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "pool/placement/request.h"

namespace tendril::pool {

struct DemandKind {
  uint32_t slices = 0;
  uint32_t share_millionths = 0;
  uint32_t cpu_milli = 0;
  std::vector<uint32_t> models;
  double weight = 0;  // its part of all requests
};

class Demand {
 public:
  void add(const Request& request);
  // Multiplies all counts. Forgets kinds of which less than a hundredth is left.
  void fade(double factor);

  // The commonest kinds that together are at least this part of all requests; their weights sum
  // to 1. The commonest first; among equals the larger one.
  std::vector<DemandKind> typical(double part) const;
  // Processors (thousandths) asked for by each whole GPU's worth of share; 0 if nobody asks.
  double cpu_milli_per_gpu() const;

 private:
  using Key = std::tuple<uint32_t, uint32_t, uint32_t, std::vector<uint32_t>>;
  std::map<Key, double> counts_;  // (processors, share, slices, models)
  double total_ = 0;
};

}  // namespace tendril::pool
