// SPDX-License-Identifier: Apache-2.0
// Per-call counters of the client library. With TENDRIL_STATS each entry counts its calls, its
// time, how much of that was waiting for the server, round trips and bytes. At exit a table goes to
// stderr, or to the file that TENDRIL_STATS names, with the errors that the program was answered.
// The trace is in trace.h. While both are off, they cost one load and one branch a call. If one is
// on, the entry calls a generated `observed` function (api/gen/emit_print.py) instead of its body.
#pragma once

#include <cstddef>
#include <cstdint>

#include "client/core/tally.h"

namespace tendril::client::cuda {

using core::Blocked;
using core::observing;
using core::tally_bytes;

// The beginning and the end of an observed call.
uint64_t stats_begin();
void stats_count(uint16_t entry, uint64_t begun_ns, int result);
// Reads TENDRIL_STATS and TENDRIL_TRACE; called once from cuInit.
void stats_start();
// What all sessions have sent so far: calls, round trips, sends, bytes out, bytes in, bulk bytes
// among these, bytes of code. Returns how many counters there are. Programs that measure themselves
// read them through cuGetExportTable (export_table.cc).
inline constexpr size_t kSessionCounters = 7;
size_t stats_counters(uint64_t* values, size_t count);
// Prints; called by the exit handler and from tests.
void stats_report();

}  // namespace tendril::client::cuda
