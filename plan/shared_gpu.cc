// SPDX-License-Identifier: Apache-2.0
// See shared_gpu.h. By Little's law the mean delay of a job's work is the sum over time of what is
// undone, divided by the work.
#include "plan/shared_gpu.h"

#include <algorithm>

namespace tendril::plan {

// Adds what it wants until `now_s`. False: its time is over.
bool SharedGpu::demand(Running* running, int64_t now_s) {
  const SharedJob& job = jobs_[running->job];
  const int64_t shift = shift_s(running->job);
  const std::vector<Sample>& samples = *job.samples;
  for (; running->next < samples.size(); ++running->next) {
    const Sample& sample = samples[running->next];
    if (sample.at_s >= job.to_s) return false;
    if (sample.at_s + shift > now_s) return true;
    const double busy_s = sample.busy * static_cast<double>(step_s_);
    running->undone_s += busy_s;
    work_s_[running->job] += busy_s;
  }
  return false;
}

// One step of the GPU's time.
void SharedGpu::serve(std::vector<Running>* running) const {
  const auto step_s = static_cast<double>(step_s_);
  double left_s = step_s;
  for (Running& one : *running) {
    one.served_s = std::min({one.undone_s, jobs_[one.job].share * step_s, left_s});
    left_s -= one.served_s;
  }
  for (bool changed = lends_; changed && left_s > 1e-9;) {
    changed = false;
    double shares = 0;
    for (const Running& one : *running)
      if (one.undone_s > one.served_s) shares += jobs_[one.job].share;
    const double spare_s = left_s;
    for (Running& one : *running) {
      const double wanted_s = one.undone_s - one.served_s;
      if (wanted_s <= 0) continue;
      const double more_s = std::min(wanted_s, spare_s * jobs_[one.job].share / shares);
      one.served_s += more_s;
      left_s -= more_s;
      changed = changed || more_s == wanted_s;  // who is content leaves something
    }
  }
  for (Running& one : *running) one.undone_s -= one.served_s;
}

// What is undone at the end of its time is done afterwards, with its share alone.
void SharedGpu::drain(const Running& running) {
  const double share = std::max(0.001, jobs_[running.job].share);
  late_[running.job] += running.undone_s * running.undone_s / (2 * share);
}

std::vector<double> SharedGpu::delays_s() {
  late_.assign(jobs_.size(), 0);
  work_s_.assign(jobs_.size(), 0);
  std::vector<size_t> order(jobs_.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [this](size_t left, size_t right) {
    return jobs_[left].begins_s < jobs_[right].begins_s;
  });
  std::vector<Running> running;
  size_t next = 0;
  int64_t now_s = 0;
  while (next < order.size() || !running.empty()) {
    if (running.empty()) now_s = jobs_[order[next]].begins_s;
    for (; next < order.size() && jobs_[order[next]].begins_s <= now_s; ++next) {
      const SharedJob& job = jobs_[order[next]];
      const auto first =
          std::lower_bound(job.samples->begin(), job.samples->end(), job.from_s,
                           [](const Sample& sample, int64_t at_s) { return sample.at_s < at_s; });
      running.push_back({order[next], static_cast<size_t>(first - job.samples->begin()), 0, 0});
    }
    std::vector<bool> over;
    for (Running& one : running) over.push_back(!demand(&one, now_s));
    serve(&running);
    for (size_t i = running.size(); i-- > 0;) {
      late_[running[i].job] += running[i].undone_s * static_cast<double>(step_s_);
      if (!over[i]) continue;
      drain(running[i]);
      running.erase(running.begin() + static_cast<ptrdiff_t>(i));
    }
    now_s += step_s_;
  }
  std::vector<double> delays_s;
  for (size_t i = 0; i < jobs_.size(); ++i)
    delays_s.push_back(work_s_[i] > 0 ? late_[i] / work_s_[i] : 0);
  return delays_s;
}

}  // namespace tendril::plan
