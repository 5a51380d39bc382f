// SPDX-License-Identifier: Apache-2.0
// The integral of a rate under an exponential decay.
#include "pool/engine/usage.h"

#include <cmath>
#include <numbers>

namespace tendril::pool {

void DecayedUsage::advance(uint64_t now_s, double gpus, uint64_t half_life_s) {
  if (now_s <= at_s_) return;
  const auto seconds = static_cast<double>(now_s - at_s_);
  const auto half_life = static_cast<double>(half_life_s == 0 ? 1 : half_life_s);
  const double kept = std::exp2(-seconds / half_life);
  gpu_seconds_ = gpu_seconds_ * kept + gpus * half_life / std::numbers::ln2 * (1 - kept);
  at_s_ = now_s;
}

}  // namespace tendril::pool
