// SPDX-License-Identifier: Apache-2.0
// Which streams are being captured, as the client knows it. The worker captures in relaxed mode on
// its executor thread; the rules about threads and modes are the client's to keep. Implemented in
// capture.cc.
#pragma once

#include "client/cuda/state.h"

namespace tendril::client::cuda {

// An event recorded while capturing carries the capture to the stream that waits for it. The error
// of a wait that a capture forbids.
CUresult join_capture(Stream* stream, Event* event, unsigned flags);
void event_recorded(Event* event, Stream* stream, unsigned flags);
// A capturing stream is destroyed: its capture can never be ended.
void stream_leaves(Stream* stream);
// A query of, or a wait for, an event that was recorded in a capture: an error that spoils the
// capture.
CUresult refuse_captured(const Event* event);
// Is this stream (null: the legacy stream) being captured?
bool is_capturing(const Stream* stream);
CUresult check_work_slow(Context* c, Stream* stream, bool synchronous);
// Is new work on `stream` (null: the legacy stream of `c`) allowed? Not after an error has spoilt
// its capture, nor where the legacy stream would order captured work. `synchronous`: the call would
// wait, which no capture allows.
inline CUresult check_work(Context* c, Stream* stream, bool synchronous = false) {
  if (__builtin_expect(process()->open_captures.load(std::memory_order_relaxed) == 0, 1))
    return CUDA_SUCCESS;
  return check_work_slow(c, stream, synchronous);
}
// For calls that CUDA forbids while a capture is open in a mode that forbids them (allocation,
// waits and the like): CUDA_SUCCESS or the error.
CUresult check_unsafe_call();

}  // namespace tendril::client::cuda
