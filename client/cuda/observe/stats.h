// SPDX-License-Identifier: Apache-2.0
// Per-call counters of the client library. With TENDRIL_STATS each entry counts its calls, the time
// spent in it, how much of that was waiting for the server, round trips and bytes, and a table goes
// to stderr at exit (or to the file that TENDRIL_STATS names), with the errors that the program was
// answered. The trace is in trace.h. Both off costs one load and one branch a call, then the entry
// goes on to its body; the generated `observed` functions (api/gen/emit_print.py) are for when one
// of them is on.
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
// What all sessions have sent so far: calls, round trips, sends, bytes out, bytes in, bytes of them
// that were bulk, bytes of code. Returns how many counters there are. Programs that measure
// themselves get at it through cuGetExportTable (export_table.cc).
inline constexpr size_t kSessionCounters = 7;
size_t stats_counters(uint64_t* values, size_t count);
// Prints; called by the exit handler and from tests.
void stats_report();

}  // namespace tendril::client::cuda
