// SPDX-License-Identifier: Apache-2.0
// Per-call counters of the client library. With TENDRIL_STATS each entry counts its calls and the time spent in it, and a table goes to
// stderr at exit (or to the file that TENDRIL_STATS names). The trace is in trace.h. Both off costs one load and one branch a call, then
// the entry goes on to its body; the generated `observed` functions (api/gen/emit_print.py) are for when one of them is on.
#pragma once

#include <time.h>

#include <atomic>
#include <cstdint>

namespace tendril::client::cuda {

extern std::atomic<bool> g_observing;

// Statistics or trace are on.
inline bool observing() { return __builtin_expect(g_observing.load(std::memory_order_relaxed), 0); }

uint64_t stats_now_ns();
void stats_count(uint16_t entry, uint64_t begun_ns);
// Reads TENDRIL_STATS and TENDRIL_TRACE; called once from cuInit.
void stats_start();
// Prints; called by the exit handler and from tests.
void stats_report();

}  // namespace tendril::client::cuda
