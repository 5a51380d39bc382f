// SPDX-License-Identifier: Apache-2.0
// What an account has used, in GPU-seconds. Half of it is forgotten with each half-life. It is
// exact for any steps of time: usage at a constant rate is integrated, not sampled. And how long
// leases last, as a part of what they might.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace tendril::pool {

class DecayedUsage {
 public:
  // The account used this many GPUs since the last call. Time never runs backwards here: an
  // earlier time counts as the last one.
  void advance(int64_t now_s, double gpus, uint64_t half_life_s);
  void restore(double gpu_seconds, int64_t now_s);
  double gpu_seconds() const { return gpu_seconds_; }

 private:
  double gpu_seconds_ = 0;
  int64_t at_s_ = 0;
  bool begun_ = false;
};

// Counts tenths: a lease that lasted 25 % of what it might is in the third. Older ones fade.
class Durations {
 public:
  static constexpr size_t kTenths = 10;
  void add(int64_t lasted_s, int64_t most_s);
  // Of the leases that lasted so long already: after this time, that part of them has ended.
  int64_t quantile_s(double part, int64_t lasted_s, int64_t most_s) const;
  std::vector<double> counts() const { return {counts_.begin(), counts_.end()}; }
  void restore(const std::vector<double>& counts);

 private:
  std::array<double, kTenths> counts_{};
};

}  // namespace tendril::pool
