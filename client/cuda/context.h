// SPDX-License-Identifier: Apache-2.0
// What makes and ends records of contexts, for whoever has contexts made: cuCtxCreate (context.cc) and green contexts.
#pragma once

#include "client/cuda/bodies.h"

namespace tendril::client::cuda {

// A record, not yet known to the worker; null when there are too many.
Context* new_context(Device* device);
// Forgets what lived in a context that is gone. Its objects' handles become invalid.
void sweep_context(Context* context);

}  // namespace tendril::client::cuda
