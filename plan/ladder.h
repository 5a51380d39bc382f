// SPDX-License-Identifier: Apache-2.0
// How many GPUs would have done the same work on each step of the ladder: the fewest with which 95
// % of the requests wait no longer than a limit, found by replay. Pure.
#pragma once

#include <string>
#include <vector>

#include "plan/replay.h"

namespace tendril::plan {

struct LadderOptions {
  std::vector<uint64_t> cards_bytes;  // memory of a GPU; one column of results each
  double limit_s = 600;
  double assumed_active = 0;  // for records without measurements; 0: not assumed
  int64_t idle_before_move_s = 300;
  uint64_t seed = 1;  // of what is assumed
};

struct Rung {
  Step step = Step::kWhole;
  uint64_t card_bytes = 0;  // 0: whatever the card
  size_t jobs = 0;
  uint32_t bound_gpus = 0;   // no fewer can do the work in the records' time
  uint32_t packed_gpus = 0;  // all peaks of memory at once, nobody waits; 0: not known
  bool known = false;        // `outcome` is there
  bool reached = false;      // the limit holds; otherwise it does with no number
  bool assumed = false;      // rests on an assumption, not only on records
  Outcome outcome;
  std::vector<Outcome> tried;  // whole replays, by GPUs
  std::string note;
};

// By step, then card.
std::vector<Rung> climb(const Records& records, const LadderOptions& options);

}  // namespace tendril::plan
