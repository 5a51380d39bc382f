// SPDX-License-Identifier: Apache-2.0
// What a step of the ladder asks a pool for: each holder's past as one request or several. Also
// what can be said without a replay: a bound, and how many cards hold all peaks at once. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/records.h"

namespace tendril::plan {

// The ladder: each step shares more.
enum class Step : uint8_t {
  kWhole,   // whole GPUs, with a queue
  kSlices,  // a slice: its peak of memory, and of the time what it needs 95 % of the while; capped
  kLent,    // its peak of memory, its mean of the time; time that nobody uses is lent
  kMoved,   // the same while it works; the memory of who is idle is moved to the host
};
inline constexpr Step kSteps[] = {Step::kWhole, Step::kSlices, Step::kLent, Step::kMoved};
const char* step_name(Step step);  // "whole GPUs", ...

inline constexpr uint32_t kNoJob = UINT32_MAX;

struct Job {
  uint32_t holder = 0;
  int64_t ready_s = 0, lasts_s = 1;
  uint32_t slices = 1;
  uint32_t share_millionths = 0;
  uint64_t memory_bytes = 0;  // 0: as its share
  int64_t load_s = 0;         // its memory comes back first; a part of lasts_s
  uint32_t next = kNoJob;     // the holder's next one, which cannot start before this ends
  bool first = true;          // of its holder
};

struct JobOptions {
  Step step = Step::kWhole;
  uint64_t card_bytes = 0;
  // For records without measurements: the part of its time in which a holder works. 0: all.
  double assumed_active = 0;
  int64_t idle_before_move_s = 300;  // so long idle, and its memory is moved out
  uint64_t seed = 1;                 // of what is assumed
};
// In order of time.
std::vector<Job> jobs_of(const Records& records, const JobOptions& options);

// Bytes per second to the host and back: the slowest of docs/decisions/0025-swapping-out.md.
inline constexpr double kMoveOut_bytes_per_s = 1.3e9, kMoveIn_bytes_per_s = 2.9e9;

// GPUs below which the jobs cannot be done within the records' time, wherever they are put.
uint32_t bound_gpus(const Records& records, const std::vector<Job>& jobs, uint64_t card_bytes);

// Cards that hold all these at once: the largest first, each into the first card with room. What is
// larger than a card takes a card of its own.
uint32_t packed_cards(std::vector<uint64_t> memory_bytes, uint64_t card_bytes);

}  // namespace tendril::plan
