// SPDX-License-Identifier: Apache-2.0
// Which streams are being captured, as the client knows it. The worker captures in relaxed mode on
// its executor thread. The client keeps the rules about threads and modes. Implemented in
// capture.cc.
#pragma once

#include "client/cuda/state.h"

namespace tendril::client::cuda {

// `stream` waits for `event`. An event recorded in a capture takes the stream into it. Returns the
// error if a capture forbids the wait.
CUresult join_capture(Stream* stream, Event* event, unsigned flags);
void event_recorded(Event* event, Stream* stream, unsigned flags);
// `stream` is destroyed while it captures: its capture can never end properly.
void stream_leaves(Stream* stream);
// Refuses to query or wait for an event that was recorded in a capture. That error spoils the
// capture.
CUresult refuse_captured(const Event* event);
// Is this stream (null: the legacy stream) being captured?
bool is_capturing(const Stream* stream);
CUresult check_work_slow(Context* context, Stream* stream, bool synchronous);
// Is new work on `stream` (null: the legacy stream of `context`) allowed? Not after an error has
// spoilt its capture, and not if the legacy stream would order captured work. `synchronous`: the
// call would wait, which no capture allows.
inline CUresult check_work(Context* context, Stream* stream, bool synchronous = false) {
  if (__builtin_expect(process()->open_captures.load(std::memory_order_relaxed) == 0, 1))
    return CUDA_SUCCESS;
  return check_work_slow(context, stream, synchronous);
}
// For calls that CUDA forbids while a capture is open in a mode that forbids them (allocation,
// waits and the like): CUDA_SUCCESS or the error.
CUresult check_unsafe_call();

}  // namespace tendril::client::cuda
