// SPDX-License-Identifier: Apache-2.0
// Which streams are being captured, as the client knows it. The worker captures in relaxed mode on its executor thread; the rules about
// threads and modes are the client's to keep. Implemented in capture.cc.
#pragma once

#include "client/cuda/state.h"

namespace tendril::client::cuda {

// An event recorded while capturing carries the capture to the stream that waits for it.
void join_capture(Stream* stream, Event* event);
void event_recorded(Event* event, Stream* stream);
// Is this stream (null: the legacy stream) being captured?
bool is_capturing(const Stream* stream);
// For calls that CUDA forbids while a capture is open in a mode that forbids them (allocation and the like): CUDA_SUCCESS or the error.
CUresult check_unsafe_call();
// A stream waits for an event of another server: the client waits for it itself, which orders at least as much.
CUresult cross_session_wait(Event* event);

}  // namespace tendril::client::cuda
