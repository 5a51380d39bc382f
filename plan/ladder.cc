// SPDX-License-Identifier: Apache-2.0
// See ladder.h.
#include "plan/ladder.h"

#include <algorithm>
#include <map>

namespace tendril::plan {

namespace {

// With so many GPUs every slice may have one alone.
uint32_t most_at_once(const std::vector<Job>& jobs) {
  std::map<int64_t, int64_t> changes;
  for (const Job& job : jobs) {
    changes[job.ready_s] += job.slices;
    changes[job.ready_s + job.lasts_s] -= job.slices;
  }
  int64_t now = 0;
  int64_t most = 1;
  for (const auto& [at_s, change] : changes) {
    now += change;
    most = std::max(most, now);
  }
  return static_cast<uint32_t>(most);
}

void search_gpus(const Records& records, const std::vector<Job>& jobs, ReplaySettings settings,
                 Rung* rung) {
  const double limit_s = settings.limit_s;
  const auto holds = [limit_s](const Outcome& outcome) {
    return outcome.whole && outcome.p95_wait_s <= limit_s;
  };
  uint32_t low = std::max(1U, rung->bound_gpus / 2);
  uint32_t high = std::max(low, most_at_once(jobs));
  settings.gpus = high;
  settings.limit_s = 1e18;  // this one is always whole
  rung->outcome = replay_jobs(records, jobs, settings);
  settings.limit_s = limit_s;
  rung->tried.push_back(rung->outcome);
  rung->known = rung->outcome.whole;
  rung->reached = holds(rung->outcome);
  while (rung->reached && low < high) {
    settings.gpus = low + (high - low) / 2;
    const Outcome outcome = replay_jobs(records, jobs, settings);
    if (outcome.whole) rung->tried.push_back(outcome);
    if (holds(outcome)) {
      high = settings.gpus;
      rung->outcome = outcome;
    } else {
      low = settings.gpus + 1;
    }
  }
  std::sort(rung->tried.begin(), rung->tried.end(),
            [](const Outcome& left, const Outcome& right) { return left.gpus < right.gpus; });
}

Rung climb_one(const Records& records, const LadderOptions& options, Step step,
               uint64_t card_bytes) {
  Rung rung;
  rung.step = step;
  const bool by_means = records.accounted && step == Step::kLent;
  rung.card_bytes = step != Step::kWhole && (records.measured || by_means) ? card_bytes : 0;
  JobOptions wanted;
  wanted.step = step;
  wanted.card_bytes = card_bytes;
  wanted.assumed_active = options.assumed_active;
  wanted.idle_before_move_s = options.idle_before_move_s;
  wanted.seed = options.seed;
  if (!records.measured && step == Step::kMoved) {
    rung.assumed = true;
    if (options.assumed_active <= 0) {
      rung.note = "the records do not say who was idle; --assume-active sets a part";
      return rung;
    }
  }
  const std::vector<Job> jobs = jobs_of(records, wanted);
  rung.jobs = jobs.size();
  rung.bound_gpus = bound_gpus(records, jobs, card_bytes);
  if (records.measured && (step == Step::kSlices || step == Step::kLent)) {
    std::vector<uint64_t> peaks;
    for (const Holder& holder : records.holders) peaks.push_back(holder.peak_memory_bytes());
    rung.packed_gpus = packed_cards(std::move(peaks), card_bytes);
  }
  ReplaySettings settings;
  settings.card_bytes = card_bytes;
  settings.lends = step != Step::kSlices;
  settings.limit_s = options.limit_s;
  search_gpus(records, jobs, settings, &rung);
  if (by_means && !records.measured)
    rung.note = "each job by its mean; nobody knows when in its time it worked";
  if (!rung.reached) rung.note = "no number of GPUs keeps the wait within the limit";
  return rung;
}

}  // namespace

std::vector<Rung> climb(const Records& records, const LadderOptions& options) {
  std::vector<Rung> ladder;
  for (const Step step : kSteps) {
    if (!records.measured && !records.accounted && step == Step::kLent) {
      Rung rung = ladder.back();
      rung.step = step;
      rung.note = "as slices: the records know no memory, and a slice keeps its part of it";
      ladder.push_back(rung);
      continue;
    }
    for (const uint64_t card_bytes : options.cards_bytes) {
      ladder.push_back(climb_one(records, options, step, card_bytes));
      if (ladder.back().card_bytes == 0) break;  // equal for all cards
    }
  }
  return ladder;
}

}  // namespace tendril::plan
