// SPDX-License-Identifier: Apache-2.0
// The jobs of a step in the pool's own scheduler on simulated time: what they wait with so many
// GPUs, and how much later their work is done where several share a GPU. Pure; equal calls give
// equal answers.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/jobs.h"

namespace tendril::plan {

struct Outcome {
  uint32_t gpus = 0;
  bool whole = false;  // false: given up, because too many waited longer than the limit
  double mean_wait_s = 0, p95_wait_s = 0, most_wait_s = 0;  // until a job starts
  double mean_late_s = 0, p95_late_s = 0;  // by which its work is late because others use its GPU
  size_t moves = 0;                        // how often memory came back
};

struct ReplaySettings {
  uint32_t gpus = 1;
  uint64_t card_bytes = 0;
  bool lends = true;     // false: nobody gets more of a GPU's time than its share
  double limit_s = 600;  // that 95 % of the jobs should not exceed
};

// A job waits in the queue and for its memory to come back. After that its work may be late; for
// each job that is a mean over its work.
Outcome replay_jobs(const Records& records, const std::vector<Job>& jobs,
                    const ReplaySettings& settings);

}  // namespace tendril::plan
