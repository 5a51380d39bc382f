// SPDX-License-Identifier: Apache-2.0
// Replays arrivals of gangs through the engine: how long they wait, whether accounts get what they
// are entitled to, and whether what they are told comes true. And the time of the engine's
// decisions with many leases. Pure and seeded.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "pool/replay/trace.h"

namespace tendril::pool {

struct QueueJob {
  int64_t arrival_s = 0;
  uint32_t gpus = 1;
  double steps = 0;
  std::string kind;
};

// Lines of seven columns with tabs between: kind, command, two flags, steps, arrival, GPUs. The
// message of an error names the line.
base::Result<std::vector<QueueJob>> read_jobs(const std::string& text);

struct QueueReplayOptions {
  uint64_t seed = 1;
  double load = 1.0;      // GPU time that is asked for, of what there is until the last arrival
  uint32_t servers = 16;  // of 8 GPUs
};

struct QueueReplayResult {
  size_t jobs = 0;
  double mean_wait_s = 0;
  double fifo_mean_wait_s = 0;  // FIFO with backfill that counts GPUs and knows no places
  // Jain's index of what accounts used over what they were due, mean over all hours until the last
  // arrival. At every moment an account is due its part of the GPUs by weight, but no more than it
  // asks for then; what it leaves is the others'. Both sums decay with the half-life.
  double jain = 1;
  size_t hours = 0;
  double jain_waiting = 1;   // of usage over weight, when all accounts have waited for a half-life
  size_t hours_waiting = 0;  // of those
  size_t promised = 0;       // requests that were heads
  size_t late = 0;           // that started after the time they were first told
  size_t told = 0;           // requests that were told a range when they came
  size_t inside = 0;         // that started inside it
};

// Each trace is an account, entitled to its part of what all ask for. A trace names steps, not
// times: the median of each kind lasts half an hour. A request asks for one to five times as long.
QueueReplayResult replay_queue(const std::vector<std::vector<QueueJob>>& traces,
                               const QueueReplayOptions& options);

// The time of submit() and plan() for one request, with that many leases, as they end and begin.
base::Result<std::vector<uint64_t>> engine_decisions(const Trace& trace, size_t leases,
                                                     size_t rounds,
                                                     const std::function<uint64_t()>& now_ns);

}  // namespace tendril::pool
