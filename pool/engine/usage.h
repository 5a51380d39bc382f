// SPDX-License-Identifier: Apache-2.0
// What an account has used, in GPU-seconds. Half of it is forgotten with each half-life. It is
// exact for any steps of time: usage at a constant rate is integrated, not sampled.
#pragma once

#include <cstdint>

namespace tendril::pool {

class DecayedUsage {
 public:
  // The account used this many GPUs since the last call. Time never runs backwards here: an
  // earlier time counts as the last one.
  void advance(uint64_t now_s, double gpus, uint64_t half_life_s);
  double gpu_seconds() const { return gpu_seconds_; }

 private:
  double gpu_seconds_ = 0;
  uint64_t at_s_ = 0;
};

}  // namespace tendril::pool
