// SPDX-License-Identifier: Apache-2.0
// Records of streams, for whoever makes streams: cuStreamCreate (stream.cc) and green contexts. And
// waits for streams, for every body that must wait.
#pragma once

#include "client/cuda/bodies.h"

namespace tendril::client::cuda {

// A record with its priority in the device's range, not yet known to the worker; null when there
// are too many.
Stream* new_stream(Context* context, unsigned flags, int priority);

// After a wait for `stream` (null: the context's legacy one), whose request was sent when the
// session had made `before` calls: a wait that follows has nothing to wait for.
void note_idle(Context* c, Stream* stream, uint64_t before);
// Waits for everything on a stream (null: legacy), and lets its deliveries arrive.
CUresult synchronize_stream(Context* c, Stream* stream);

}  // namespace tendril::client::cuda
