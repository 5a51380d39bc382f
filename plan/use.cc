// SPDX-License-Identifier: Apache-2.0
// See use.h.
#include "plan/use.h"

#include <algorithm>
#include <map>

#include "pool/placement/request.h"

namespace tendril::plan {

namespace {

struct Moment {
  double held = 0, busy = 0, active = 0;
};

double asked_gpus(const Holder& holder) {
  return static_cast<double>(holder.gpus) * holder.share_millionths / pool::kWholeGpu;
}

void add_holder(const Holder& holder, double step_s, UserUse* into) {
  ++into->holders;
  if (holder.samples.empty()) {
    const double held_gpu_s = asked_gpus(holder) * static_cast<double>(holder.to_s - holder.from_s);
    into->held_gpu_s += held_gpu_s;
    if (holder.mean_busy < 0) return;
    into->known_gpu_s += held_gpu_s;
    into->busy_gpu_s += held_gpu_s * holder.mean_busy;
    if (holder.mean_busy <= kHardly) into->never_gpu_s += held_gpu_s;
    return;
  }
  double held_s = 0;
  double busy_s = 0;
  for (const Sample& sample : holder.samples) {
    if (!sample.busy_known) continue;
    held_s += step_s;
    busy_s += sample.busy * step_s;
    if (sample.busy == 0) into->idle_gpu_s += step_s;
  }
  into->held_gpu_s += held_s;
  into->known_gpu_s += held_s;
  into->busy_gpu_s += busy_s;
  if (busy_s <= kHardly * held_s) into->never_gpu_s += held_s;
}

// What is held at each moment at which something is known or changes.
std::map<int64_t, Moment> moments_of(const Records& records) {
  std::map<int64_t, Moment> moments;
  for (const Holder& holder : records.holders) {
    for (const Sample& sample : holder.samples) {
      if (!sample.busy_known) continue;
      Moment& moment = moments[sample.at_s];
      moment.held += 1;
      moment.busy += sample.busy;
      moment.active += sample.busy > 0 ? 1 : 0;
    }
    if (!holder.samples.empty()) continue;
    moments[holder.from_s].held += asked_gpus(holder);
    moments[holder.to_s].held -= asked_gpus(holder);
  }
  if (records.measured) return moments;
  double held = 0;  // from changes to levels
  for (auto& [at_s, moment] : moments) {
    held += moment.held;
    moment.held = std::max(0.0, held);
  }
  return moments;
}

void add_points(const Records& records, const std::map<int64_t, Moment>& moments, Use* use) {
  const int64_t span_s = std::max<int64_t>(1, records.to_s - records.from_s);
  const int64_t wide_s =
      std::max(records.step_s, span_s / static_cast<int64_t>(kMostPoints / 2) + 1);
  for (auto each = moments.begin(); each != moments.end();) {
    UsePoint point;
    point.at_s = each->first;
    double count = 0;
    for (; each != moments.end() && each->first < point.at_s + wide_s; ++each) {
      point.held_gpus += each->second.held;
      point.busy_gpus += each->second.busy;
      point.active_gpus += each->second.active;
      ++count;
    }
    point.held_gpus /= count;
    point.busy_gpus /= count;
    point.active_gpus /= count;
    // What somebody asked for holds until it changes.
    if (!records.measured && !use->points.empty() &&
        point.at_s > use->points.back().at_s + wide_s) {
      UsePoint before = use->points.back();
      before.at_s = point.at_s - 1;
      use->points.push_back(before);
    }
    use->points.push_back(point);
  }
}

}  // namespace

Use use_of(const Records& records) {
  Use use;
  const auto step_s = static_cast<double>(records.step_s);
  std::map<std::string, UserUse> users;
  for (const Holder& holder : records.holders) {
    UserUse one;
    add_holder(holder, step_s, &one);
    if (one.never_gpu_s > 0) ++use.never_used;
    for (UserUse* into : {&users[holder.user], &use.all}) {
      into->holders += 1;
      into->held_gpu_s += one.held_gpu_s;
      into->known_gpu_s += one.known_gpu_s;
      into->busy_gpu_s += one.busy_gpu_s;
      into->idle_gpu_s += one.idle_gpu_s;
      into->never_gpu_s += one.never_gpu_s;
    }
  }
  for (auto& [name, user] : users) {
    user.user = name;
    use.users.push_back(user);
  }
  std::stable_sort(use.users.begin(), use.users.end(),
                   [](const UserUse& left, const UserUse& right) {
                     if (left.idle_gpu_s != right.idle_gpu_s)
                       return left.idle_gpu_s > right.idle_gpu_s;
                     if (left.never_gpu_s != right.never_gpu_s)
                       return left.never_gpu_s > right.never_gpu_s;
                     return left.held_gpu_s > right.held_gpu_s;
                   });
  const std::map<int64_t, Moment> moments = moments_of(records);
  for (const auto& [at_s, moment] : moments) {
    use.most_held_gpus = std::max(use.most_held_gpus, moment.held);
    use.most_busy_gpus = std::max(use.most_busy_gpus, moment.busy);
  }
  const auto span_s = static_cast<double>(std::max<int64_t>(1, records.to_s - records.from_s));
  use.mean_held_gpus = use.all.held_gpu_s / span_s;
  use.mean_busy_gpus = use.all.busy_gpu_s / span_s;
  add_points(records, moments, &use);
  return use;
}

}  // namespace tendril::plan
