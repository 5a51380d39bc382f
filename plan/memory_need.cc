// SPDX-License-Identifier: Apache-2.0
// How much memory those need who are at work: the bounds of parked_replay.h.
#include <algorithm>
#include <cmath>

#include "plan/parked_replay.h"

namespace tendril::plan {
namespace {

// Bytes in each step. `part`: of a sample's memory, that is needed in its step.
template <typename Part>
std::vector<double> needs(const Records& records, int64_t steps_before, Part&& part) {
  const int64_t step_s = std::max<int64_t>(1, records.step_s);
  const auto steps = static_cast<size_t>((records.to_s - records.from_s) / step_s + 1);
  std::vector<double> bytes(steps);
  for (const Holder& holder : records.holders) {
    const auto peak = static_cast<double>(holder.peak_memory_bytes());
    std::vector<double> own(steps);
    for (const Sample& sample : holder.samples) {
      if (!sample.busy_known || sample.busy <= 0) continue;
      const auto step = static_cast<size_t>(
          std::clamp<int64_t>((sample.at_s - records.from_s) / step_s, 0, int64_t(steps) - 1));
      const size_t end = std::min(steps, step + 1 + static_cast<size_t>(steps_before));
      for (size_t i = step; i < end; ++i)
        own[i] = std::max(own[i], peak * part(static_cast<double>(sample.busy)));
    }
    for (size_t i = 0; i < steps; ++i) bytes[i] += own[i];
  }
  return bytes;
}

MemoryNeed in_cards(std::vector<double> bytes, uint64_t card_bytes) {
  MemoryNeed need;
  std::sort(bytes.begin(), bytes.end());
  const auto cards = [&](double quantile) {
    return bytes[static_cast<size_t>(quantile * static_cast<double>(bytes.size() - 1))] /
           static_cast<double>(card_bytes);
  };
  for (const double one : bytes)
    need.mean += one / static_cast<double>(card_bytes) / static_cast<double>(bytes.size());
  need.p50 = cards(0.5);
  need.p99 = cards(0.99);
  need.most = cards(1);
  return need;
}

double all_of(double) { return 1; }

}  // namespace

MemoryNeed memory_need(const Records& records, uint64_t card_bytes, double before_s) {
  const double step_s = static_cast<double>(std::max<int64_t>(1, records.step_s));
  return in_cards(needs(records, std::llround(std::floor(before_s / step_s)), all_of), card_bytes);
}

MemoryNeed memory_need_now(const Records& records, uint64_t card_bytes) {
  return in_cards(needs(records, 0, [](double busy) { return std::min(busy, 1.0); }), card_bytes);
}

double without_place(const Records& records, uint64_t card_bytes, uint32_t cards) {
  const double room = static_cast<double>(card_bytes) * cards;
  double all = 0, beyond = 0;
  for (const double bytes : needs(records, 0, all_of)) {
    all += bytes;
    beyond += std::max(0.0, bytes - room);
  }
  return all == 0 ? 0 : beyond / all;
}

}  // namespace tendril::plan
