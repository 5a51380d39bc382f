// SPDX-License-Identifier: Apache-2.0
// See replay.h.
#include "plan/replay.h"

#include <algorithm>
#include <queue>

#include "plan/shared_gpu.h"
#include "pool/engine/engine.h"

namespace tendril::plan {

namespace {

constexpr uint32_t kGpusPerServer = 8;
constexpr int64_t kLongestWait_s = int64_t{1} << 40;  // nobody goes first for having waited

pool::PoolPolicy plain_policy() {
  pool::PoolPolicy policy = pool::default_policy();
  policy.longest_wait_s = kLongestWait_s;
  return policy;
}

class PlanReplay {
 public:
  PlanReplay(const Records& records, const std::vector<Job>& jobs, const ReplaySettings& settings)
      : records_(records), jobs_(jobs), settings_(settings), started_s_(jobs.size(), -1) {
    waits_s_.resize(jobs.size());
    gpus_.resize(settings.gpus);
    engine_.set_policy(plain_policy(), 0, 0);
    for (uint32_t left = settings.gpus; left > 0;) {
      const uint32_t here = std::min(left, kGpusPerServer);
      pool::EngineServer server;
      server.name = "server" + std::to_string(left);
      server.gpus.assign(here, pool::EngineGpu{"card", 0, settings.card_bytes, 0});
      static_cast<void>(engine_.add_server(server));
      left -= here;
    }
    for (uint32_t i = 0; i < jobs.size(); ++i)
      if (jobs[i].first) ready_.emplace(at(jobs[i].ready_s), i);
  }

  Outcome run() {
    Outcome outcome;
    outcome.gpus = settings_.gpus;
    while (!ready_.empty() || !ends_.empty()) {
      int64_t now_s = ready_.empty() ? pool::kNever : ready_.top().first;
      if (!ends_.empty()) now_s = std::min(now_s, ends_.top().first);
      end_jobs(now_s);
      for (; !ready_.empty() && ready_.top().first <= now_s; ready_.pop())
        if (!submit(ready_.top().second, now_s)) return outcome;
      for (const pool::EngineStart& start : engine_.plan(now_s).starts) begin(start, now_s);
      if (late_ > jobs_.size() / 20) return outcome;
    }
    if (engine_.waiting_count() > 0) return outcome;  // it would wait for ever
    outcome.whole = true;
    sum(&outcome);
    return outcome;
  }

 private:
  // (time, job), the earliest first.
  using Times = std::priority_queue<std::pair<int64_t, uint32_t>,
                                    std::vector<std::pair<int64_t, uint32_t>>, std::greater<>>;

  int64_t at(int64_t time_s) const { return time_s - records_.from_s; }

  bool submit(uint32_t number, int64_t now_s) {
    const Job& job = jobs_[number];
    pool::Ask ask;
    ask.id = uint64_t{number} + 1;
    ask.user = "user";
    ask.gpu_classes = {0};
    ask.slices = job.slices;
    ask.share_millionths = job.share_millionths;
    ask.memory_bytes = job.memory_bytes;
    ask.most_s = job.lasts_s;
    ask.submitted_s = now_s;
    return engine_.submit(ask, now_s).ok();
  }

  void begin(const pool::EngineStart& start, int64_t now_s) {
    const auto number = static_cast<uint32_t>(start.id - 1);
    const Job& job = jobs_[number];
    started_s_[number] = now_s;
    waits_s_[number] = static_cast<double>(now_s - at(job.ready_s) + job.load_s);
    if (waits_s_[number] > settings_.limit_s) ++late_;
    ends_.emplace(now_s + job.lasts_s, number);
    const pool::PlacedSlice& slice = start.slices.front();
    gpus_[slice.server * kGpusPerServer + slice.gpu].push_back(number);
  }

  void end_jobs(int64_t now_s) {
    for (; !ends_.empty() && ends_.top().first <= now_s; ends_.pop()) {
      const uint32_t number = ends_.top().second;
      engine_.ended(uint64_t{number} + 1, now_s);
      const uint32_t next = jobs_[number].next;
      if (next != kNoJob) ready_.emplace(std::max(now_s, at(jobs_[next].ready_s)), next);
    }
  }

  static double sum_of(const std::vector<double>& values) {
    double sum = 0;
    for (const double value : values) sum += value;
    return sum;
  }
  // Of sorted values.
  static double p95_of(const std::vector<double>& values) {
    return values[(values.size() - 1) * 95 / 100];
  }

  void add_lateness(Outcome* outcome) const {
    std::vector<double> late_s;
    for (const std::vector<uint32_t>& numbers : gpus_) {
      SharedGpu gpu(records_.step_s, settings_.lends);
      for (const uint32_t number : numbers) {
        const Job& job = jobs_[number];
        SharedJob one;
        one.samples = &records_.holders[job.holder].samples;
        one.from_s = job.ready_s;
        one.to_s = job.ready_s + job.lasts_s - job.load_s;
        one.begins_s = started_s_[number] + job.load_s + records_.from_s;
        one.share = static_cast<double>(job.share_millionths) / pool::kWholeGpu;
        gpu.add(one);
      }
      for (const double delay_s : gpu.delays_s()) late_s.push_back(delay_s);
    }
    std::sort(late_s.begin(), late_s.end());
    outcome->mean_late_s = sum_of(late_s) / static_cast<double>(late_s.size());
    outcome->p95_late_s = p95_of(late_s);
  }

  void sum(Outcome* outcome) {
    if (records_.measured) add_lateness(outcome);
    for (const Job& job : jobs_) outcome->moves += job.first ? 0 : 1;
    std::sort(waits_s_.begin(), waits_s_.end());
    outcome->mean_wait_s = sum_of(waits_s_) / static_cast<double>(jobs_.size());
    outcome->p95_wait_s = p95_of(waits_s_);
    outcome->most_wait_s = waits_s_.back();
  }

  const Records& records_;
  const std::vector<Job>& jobs_;
  const ReplaySettings& settings_;
  pool::Engine engine_;
  Times ready_, ends_;
  std::vector<int64_t> started_s_;
  std::vector<double> waits_s_;
  std::vector<std::vector<uint32_t>> gpus_;  // jobs in order of start
  size_t late_ = 0;
};

}  // namespace

Outcome replay_jobs(const Records& records, const std::vector<Job>& jobs,
                    const ReplaySettings& settings) {
  Outcome nothing;
  nothing.gpus = settings.gpus;
  nothing.whole = true;
  if (jobs.empty()) return nothing;
  return PlanReplay(records, jobs, settings).run();
}

}  // namespace tendril::plan
