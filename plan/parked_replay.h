// SPDX-License-Identifier: Apache-2.0
// Recorded holders on cards that park idle memory (lease/parking.h), on simulated time: how long a
// holder waits until its memory is back, and how much is moved. The book and the states are the
// server's own. GPU time is not looked at here: memory is what limits. Pure.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "plan/records.h"

namespace tendril::plan {

struct ParkedSettings {
  uint32_t cards = 1;
  uint64_t card_bytes = 0;
  double idle_s = 300;         // so long idle, and it is parked
  double pressure_idle_s = 2;  // so long idle, and it makes room for one that wakes
  // So long idle beside a parked one, and its copy is made ahead; then parking takes no time. Off:
  // infinite.
  double ahead_idle_s = 2;
  // So long back on its card, and it makes room for one that wakes even while it works; what is
  // left of its work goes on when it is back. Off: infinite.
  double turn_s = std::numeric_limits<double>::infinity();
  double link_bytes_per_s = 50e9;  // of a card, each way
  // Records say how busy a GPU was in a step, not when. False: a holder needs its memory for the
  // whole of a step in which it worked. True: a step's work is one burst somewhere in it.
  bool bursts = false;
  uint64_t seed = 1;
  // Ends when it is certain that more than 1 % of the wakes take longer.
  double give_up_wait_s = std::numeric_limits<double>::infinity();
};

struct ParkedOutcome {
  uint32_t cards = 0;
  bool gave_up = false;  // the rest is what happened until then
  size_t holders = 0, wakes = 0, parks = 0, never_started = 0;
  // From the wish to the memory being back, over all wakes. The first start of a holder is apart.
  double p50_wait_s = 0, p99_wait_s = 0, longest_wait_s = 0;
  double longest_start_s = 0;
  // How much later than alone a piece of work ended, over all pieces that ended.
  double mean_late_s = 0, p99_late_s = 0;
  double moved_bytes = 0;  // to the host and back
};

// What no policy can change, wherever memory lies and however fast it moves: how much memory those
// need who are at work, in cards.
struct MemoryNeed {
  double mean = 0, p50 = 0, p99 = 0, most = 0;  // over all steps
};
// Of those that worked in the step or in so many seconds before it.
MemoryNeed memory_need(const Records& records, uint64_t card_bytes, double before_s);
// Of those whose kernels run at a moment, if a step's work is spread evenly.
MemoryNeed memory_need_now(const Records& records, uint64_t card_bytes);
// The part of all work, by memory and time, that has no place with so many cards.
double without_place(const Records& records, uint64_t card_bytes, uint32_t cards);

ParkedOutcome replay_parked(const Records& records, const ParkedSettings& settings);
// The fewest cards with which 99 % of the wakes wait no longer than `limit_s`, and their outcome.
ParkedOutcome fewest_parked(const Records& records, ParkedSettings settings, double limit_s);

// For so many cards; none: the fewest, and some others.
std::string parked_text(const Records& records, ParkedSettings settings, double limit_s,
                        const std::vector<uint32_t>& cards = {});

}  // namespace tendril::plan
