// SPDX-License-Identifier: Apache-2.0
// What makes and ends records of contexts, for whoever has contexts made: cuCtxCreate (context.cc)
// and green contexts.
#pragma once

#include "client/cuda/bodies.h"

namespace tendril::client::cuda {

// A record, not yet known to the worker; null when there are too many.
Context* new_context(Device* device);
// It is there to be used. Where its server has others, what is copied to one of them is there for
// all when the copy returns.
void context_comes(Context* context);
// Forgets what lived in a context that is gone. Its objects' handles become invalid.
void sweep_context(Context* context);

}  // namespace tendril::client::cuda
