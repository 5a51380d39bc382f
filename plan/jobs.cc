// SPDX-License-Identifier: Apache-2.0
// See jobs.h.
#include "plan/jobs.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "pool/placement/request.h"

namespace tendril::plan {

namespace {

constexpr uint32_t kLeastShare = 1000;  // a thousandth of a GPU

uint32_t share_for(double part) {
  const double thousandths = std::ceil(std::clamp(part, 0.0, 1.0) * 1000);
  return std::max(kLeastShare, static_cast<uint32_t>(thousandths) * kLeastShare);
}

// What it needs at most in that part of its samples.
double busy_quantile(const Holder& holder, double part) {
  std::vector<float> busy;
  for (const Sample& sample : holder.samples)
    if (sample.busy_known) busy.push_back(sample.busy);
  if (busy.empty()) return 0;
  std::sort(busy.begin(), busy.end());
  return busy[static_cast<size_t>(part * static_cast<double>(busy.size() - 1))];
}

double mean_busy(const Holder& holder, int64_t from_s, int64_t to_s) {
  double sum = 0;
  double count = 0;
  for (const Sample& sample : holder.samples) {
    if (!sample.busy_known || sample.at_s < from_s || sample.at_s >= to_s) continue;
    sum += sample.busy;
    ++count;
  }
  return count == 0 ? 0 : sum / count;
}

class JobMaker {
 public:
  JobMaker(const Records& records, const JobOptions& options)
      : records_(records), options_(options), dice_(options.seed) {}

  std::vector<Job> make() {
    for (uint32_t i = 0; i < records_.holders.size(); ++i) {
      const Holder& holder = records_.holders[i];
      Job job;
      job.holder = i;
      job.slices = holder.gpus;
      job.ready_s = holder.from_s;
      job.lasts_s = std::max<int64_t>(1, holder.to_s - holder.from_s);
      size_of(holder, &job);
      if (options_.step != Step::kMoved)
        jobs_.push_back(job);
      else if (!holder.samples.empty())
        add_measured_periods(holder, job);
      else
        add_assumed_periods(job);
    }
    return std::move(jobs_);
  }

 private:
  void size_of(const Holder& holder, Job* job) const {
    job->share_millionths = pool::kWholeGpu;
    if (options_.step == Step::kWhole) return;
    job->share_millionths = holder.share_millionths;
    if (holder.samples.empty()) {
      if (options_.step == Step::kLent && holder.mean_busy >= 0) {
        job->share_millionths = share_for(holder.mean_busy);
        // What is not known may be all of it.
        job->memory_bytes = holder.most_memory_bytes == 0
                                ? options_.card_bytes
                                : std::min(holder.most_memory_bytes, options_.card_bytes);
      }
      return;
    }
    job->memory_bytes = std::clamp<uint64_t>(holder.peak_memory_bytes(), 1, options_.card_bytes);
    job->share_millionths = options_.step == Step::kSlices
                                ? share_for(busy_quantile(holder, 0.95))
                                : share_for(mean_busy(holder, holder.from_s, holder.to_s));
  }

  double moved_bytes(const Job& job) const {
    if (job.memory_bytes != 0) return static_cast<double>(job.memory_bytes);
    return static_cast<double>(options_.card_bytes) * job.share_millionths / pool::kWholeGpu;
  }

  // From the first to the last moment of work of a period; idle times too short for a move are
  // inside.
  void add_period(Job job, int64_t from_s, int64_t to_s, uint32_t* before) {
    job.ready_s = from_s;
    job.first = *before == kNoJob;
    job.load_s = job.first ? 0 : std::lround(moved_bytes(job) / kMoveIn_bytes_per_s);
    job.lasts_s = job.load_s + (to_s - from_s) + options_.idle_before_move_s + save_s(job);
    const auto number = static_cast<uint32_t>(jobs_.size());
    if (!job.first) jobs_[*before].next = number;
    *before = number;
    jobs_.push_back(job);
  }

  int64_t save_s(const Job& job) const {
    return std::lround(moved_bytes(job) / kMoveOut_bytes_per_s);
  }

  void add_measured_periods(const Holder& holder, Job job) {
    const int64_t pause_s = options_.idle_before_move_s + save_s(job);
    uint32_t before = kNoJob;
    int64_t from_s = 0;
    int64_t to_s = -1;
    const auto flush = [&] {
      if (to_s < 0) return;
      job.share_millionths = share_for(mean_busy(holder, from_s, to_s));
      add_period(job, from_s, to_s, &before);
    };
    for (const Sample& sample : holder.samples) {
      if (!sample.busy_known || sample.busy == 0) continue;
      if (to_s < 0 || sample.at_s - to_s > pause_s) {
        flush();
        from_s = sample.at_s;
      }
      to_s = sample.at_s + records_.step_s;
    }
    flush();
  }

  // Works for a quarter to three quarters of an hour, then is idle, so that the parts are met.
  void add_assumed_periods(const Job& job) {
    constexpr int64_t kShortest_s = 900;
    constexpr int64_t kMostPeriods = 50;
    const double active = options_.assumed_active <= 0 ? 1 : options_.assumed_active;
    const int64_t end_s = job.ready_s + job.lasts_s;
    const int64_t least_s = std::max<int64_t>(
        kShortest_s,
        std::lround(static_cast<double>(job.lasts_s) * active / static_cast<double>(kMostPeriods)));
    uint32_t before = kNoJob;
    for (int64_t at_s = job.ready_s; at_s < end_s;) {
      const int64_t works_s = least_s + static_cast<int64_t>(dice_() % (2 * least_s + 1));
      const int64_t to_s = std::min(end_s, at_s + works_s);
      const double idle_s = static_cast<double>(works_s) * (1 - active) / active;
      const bool moves = idle_s > static_cast<double>(options_.idle_before_move_s + save_s(job));
      add_period(job, at_s, moves ? to_s : end_s, &before);
      if (!moves) return;  // too short to move anything
      at_s = to_s + std::lround(idle_s);
    }
  }

  const Records& records_;
  const JobOptions& options_;
  std::mt19937_64 dice_;
  std::vector<Job> jobs_;
};

}  // namespace

const char* step_name(Step step) {
  switch (step) {
    case Step::kWhole:
      return "whole GPUs";
    case Step::kSlices:
      return "slices";
    case Step::kLent:
      return "idle time lent";
    case Step::kMoved:
      return "idle memory moved";
  }
  return "";
}

std::vector<Job> jobs_of(const Records& records, const JobOptions& options) {
  return JobMaker(records, options).make();
}

uint32_t bound_gpus(const Records& records, const std::vector<Job>& jobs, uint64_t card_bytes) {
  double time_s = 0;
  double memory_s = 0;
  uint32_t widest = 1;
  for (const Job& job : jobs) {
    const double slices_s = static_cast<double>(job.slices) * static_cast<double>(job.lasts_s);
    time_s += slices_s * job.share_millionths / pool::kWholeGpu;
    memory_s += slices_s * static_cast<double>(job.memory_bytes) / static_cast<double>(card_bytes);
    widest = std::max(widest, job.slices);
  }
  const auto span_s = static_cast<double>(std::max<int64_t>(1, records.to_s - records.from_s));
  const double gpus = std::ceil(std::max(time_s, memory_s) / span_s);
  return std::max(widest, static_cast<uint32_t>(std::min(gpus, 1e6)));
}

uint32_t packed_cards(std::vector<uint64_t> memory_bytes, uint64_t card_bytes) {
  std::sort(memory_bytes.rbegin(), memory_bytes.rend());
  std::vector<uint64_t> left;
  for (const uint64_t bytes : memory_bytes) {
    const uint64_t taken = std::min(bytes, card_bytes);
    const auto card =
        std::find_if(left.begin(), left.end(), [taken](uint64_t has) { return has >= taken; });
    if (card == left.end())
      left.push_back(card_bytes - taken);
    else
      *card -= taken;
  }
  return static_cast<uint32_t>(left.size());
}

}  // namespace tendril::plan
