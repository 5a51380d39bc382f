// SPDX-License-Identifier: Apache-2.0
// What makes records of streams, for whoever has streams made: cuStreamCreate (stream.cc) and green
// contexts.
#pragma once

#include "client/cuda/bodies.h"

namespace tendril::client::cuda {

// A record with its priority in the device's range, not yet known to the worker; null when there
// are too many.
Stream* new_stream(Context* context, unsigned flags, int priority);

}  // namespace tendril::client::cuda
