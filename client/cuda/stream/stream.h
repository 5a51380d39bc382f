// SPDX-License-Identifier: Apache-2.0
// Makes records of streams, for cuStreamCreate (stream.cc) and green contexts. Also waits for
// streams, for every body that must wait.
#pragma once

#include "client/cuda/bodies.h"

namespace tendril::client::cuda {

// A record with its priority in the device's range. The worker does not know it yet. Null: there
// are too many.
Stream* new_stream(Context* context, unsigned flags, int priority);

// Notes that a wait found `stream` (null: the context's legacy one) idle, so that a wait that
// follows is answered here. `before`: how many calls the session had made when the request was
// sent.
void note_idle(Context* context, Stream* stream, uint64_t before);
// Waits for everything on a stream (null: legacy), and lets its deliveries arrive.
CUresult synchronize_stream(Context* context, Stream* stream);

}  // namespace tendril::client::cuda
