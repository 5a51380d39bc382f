// SPDX-License-Identifier: Apache-2.0
// What the calling thread's current API call has cost: round trips, time spent waiting for the
// server, bytes. Sessions count here; an API's statistics read it (client/cuda/observe/stats.h).
// While nobody observes, each counter costs one load and one branch. Any thread.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/clock.h"

namespace tendril::client::core {

// One for the whole library, outside any process record, because entry points read it before all
// else.
extern std::atomic<bool> g_observing;

// True: statistics or the trace are on.
inline bool observing() { return __builtin_expect(g_observing.load(std::memory_order_relaxed), 0); }

struct Tally {
  uint64_t round_trips = 0, blocked_ns = 0, bytes = 0;
};
// The tally of the calling thread.
Tally& tally();
inline void tally_bytes(uint64_t bytes) {
  if (observing()) tally().bytes += bytes;
}

// Counts the time from here to the end of the scope as waiting for the server.
class Blocked {
 public:
  explicit Blocked(uint64_t bytes = 0, uint64_t round_trips = 0) {
    if (!observing()) return;
    tally().bytes += bytes;
    tally().round_trips += round_trips;
    begun_ns_ = base::now_ns();
  }
  ~Blocked() {
    if (begun_ns_ != 0) tally().blocked_ns += base::now_ns() - begun_ns_;
  }
  Blocked(const Blocked&) = delete;
  Blocked& operator=(const Blocked&) = delete;

 private:
  uint64_t begun_ns_ = 0;
};

}  // namespace tendril::client::core
