// SPDX-License-Identifier: Apache-2.0
// What was held and what of it was used: sums over time, and by user. Pure.
#pragma once

#include <string>
#include <vector>

#include "plan/records.h"

namespace tendril::plan {

inline constexpr double kHardly = 0.001;  // of the time; an empty GPU is asked now and then

struct UserUse {
  std::string user;
  size_t holders = 0;
  double held_gpu_s = 0;
  double known_gpu_s = 0;  // of these: it is known what they did
  double busy_gpu_s = 0;
  double idle_gpu_s = 0;   // held while the GPU did nothing of it for a whole sample
  double never_gpu_s = 0;  // of holders whose GPU did nothing in all that time: at most kHardly
};

// The mean of an interval.
struct UsePoint {
  int64_t at_s = 0;
  double held_gpus = 0, busy_gpus = 0, active_gpus = 0;
};

struct Use {
  UserUse all;                   // `user` is empty
  std::vector<UserUse> users;    // most held and idle first; then most held
  std::vector<UsePoint> points;  // at most kMostPoints
  double mean_held_gpus = 0, most_held_gpus = 0;
  double mean_busy_gpus = 0, most_busy_gpus = 0;
  size_t never_used = 0;  // holders with at most kHardly
};
inline constexpr size_t kMostPoints = 800;

// Holders without samples are held, and nothing is known of the rest.
Use use_of(const Records& records);

}  // namespace tendril::plan
