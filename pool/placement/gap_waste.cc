// SPDX-License-Identifier: Apache-2.0
// Computed from the smallest gap to the largest. A gap that takes a slice becomes a smaller gap,
// which is already known.
#include "pool/placement/gap_waste.h"

#include <cmath>
#include <map>

namespace tendril::pool {

GapWaste gap_waste(const Demand& demand) {
  // A gap meets this many slices before its GPU is used anew. The result hardly changes from 30 to
  // 130; docs/decisions/0018-placement-of-the-pool.md has the figures.
  constexpr double kSlicesMet = 70;
  std::map<uint32_t, double> sizes;  // thousandths, rounded up
  double all = 0;
  for (const DemandKind& kind : demand.typical(1)) {
    if (kind.slices == 0) continue;
    sizes[(kind.share_millionths + kGapStep - 1) / kGapStep] += kind.weight * kind.slices;
    all += kind.weight * kind.slices;
  }
  if (all == 0) {
    constexpr uint32_t kTwentieth = kGapSteps / 20;
    for (uint32_t size = kTwentieth; size <= kGapSteps; size += kTwentieth) {
      sizes[size] = 1;
      all += 1;
    }
  }
  GapWaste waste{};
  for (uint32_t gap = 1; gap <= kGapSteps; ++gap) {
    double fitting = 0;
    double then_wasted = 0;
    for (const auto& [size, weight] : sizes) {
      if (size > gap) break;
      fitting += weight;
      then_wasted += weight * waste[gap - size];
    }
    if (fitting == 0) {
      waste[gap] = gap;
      continue;
    }
    const double stays_empty = std::exp(-kSlicesMet * fitting / all);
    waste[gap] = stays_empty * gap + (1 - stays_empty) * then_wasted / fitting;
  }
  return waste;
}

}  // namespace tendril::pool
