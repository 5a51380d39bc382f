// SPDX-License-Identifier: Apache-2.0
// Per-call counters and the call trace of the client library. With TENDRIL_STATS each entry counts its calls and the time spent in
// it, and a table goes to stderr at exit (or to the file that TENDRIL_STATS names). With TENDRIL_TRACE each call is a line on stderr.
// Both off costs one load and one branch a call.
#pragma once

#include <time.h>

#include <atomic>
#include <cstdint>

namespace tendril::client::cuda {

extern std::atomic<bool> g_stats_on;

uint64_t stats_now_ns();
void stats_count(uint16_t entry, uint64_t begun_ns, int result);
// One line of the trace: calls that are no exported entry name themselves.
void stats_trace(const char* what, int result);
// Reads TENDRIL_STATS; called once from cuInit.
void stats_start();
// Prints; called by the exit handler and from tests.
void stats_report();

class Count {
 public:
  explicit Count(uint16_t entry) : entry_(entry) {
    if (__builtin_expect(g_stats_on.load(std::memory_order_relaxed), 0)) begun_ns_ = stats_now_ns();
  }
  template <typename T>
  T done(T result) {
    if (__builtin_expect(begun_ns_ != 0, 0)) stats_count(entry_, begun_ns_, static_cast<int>(result));
    return result;
  }

 private:
  uint16_t entry_;
  uint64_t begun_ns_ = 0;
};

}  // namespace tendril::client::cuda
