// SPDX-License-Identifier: Apache-2.0
// The integral of a rate under an exponential decay, and a histogram that fades.
#include "pool/engine/usage.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace tendril::pool {

void DecayedUsage::advance(int64_t now_s, double gpus, uint64_t half_life_s) {
  if (begun_ && now_s <= at_s_) return;
  if (begun_) {
    const auto seconds = static_cast<double>(now_s - at_s_);
    const auto half_life = static_cast<double>(half_life_s == 0 ? 1 : half_life_s);
    const double kept = std::exp2(-seconds / half_life);
    gpu_seconds_ = gpu_seconds_ * kept + gpus * half_life / std::numbers::ln2 * (1 - kept);
  }
  begun_ = true;
  at_s_ = now_s;
}

void DecayedUsage::restore(double gpu_seconds, int64_t now_s) {
  gpu_seconds_ = std::max(gpu_seconds, 0.0);
  at_s_ = now_s;
  begun_ = true;
}

void Durations::add(int64_t lasted_s, int64_t most_s) {
  constexpr double kFade = 0.998;
  if (most_s <= 0) return;
  const double part = static_cast<double>(lasted_s) / static_cast<double>(most_s);
  for (double& count : counts_) count *= kFade;
  counts_[static_cast<size_t>(std::clamp(part, 0.0, 0.999) * kTenths)] += 1;
}

int64_t Durations::quantile_s(double part, int64_t lasted_s, int64_t most_s) const {
  // Until there are any, all lengths are equally common: one of each tenth.
  constexpr double kPrior = 1;
  const auto most = static_cast<double>(most_s);
  const double from = std::clamp(static_cast<double>(lasted_s) / std::max(most, 1.0), 0.0, 1.0);
  const auto left = [&](size_t tenth) {  // what of this tenth is still to come
    const double begin = static_cast<double>(tenth) / kTenths;
    const double end = static_cast<double>(tenth + 1) / kTenths;
    return (counts_[tenth] + kPrior) * std::clamp((end - from) * kTenths, 0.0, 1.0) *
           (begin < 1 ? 1 : 0);
  };
  double all = 0;
  for (size_t tenth = 0; tenth < kTenths; ++tenth) all += left(tenth);
  double wanted = part * all;
  for (size_t tenth = 0; tenth < kTenths; ++tenth) {
    const double here = left(tenth);
    if (here > 0 && wanted <= here) {
      const double begin = std::max(from, static_cast<double>(tenth) / kTenths);
      const double end = static_cast<double>(tenth + 1) / kTenths;
      return static_cast<int64_t>(most * (begin + (end - begin) * wanted / here));
    }
    wanted -= here;
  }
  return most_s;
}

void Durations::restore(const std::vector<double>& counts) {
  for (size_t tenth = 0; tenth < kTenths; ++tenth)
    counts_[tenth] =
        tenth < counts.size() && std::isfinite(counts[tenth]) ? std::max(counts[tenth], 0.0) : 0;
}

}  // namespace tendril::pool
