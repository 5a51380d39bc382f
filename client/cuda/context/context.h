// SPDX-License-Identifier: Apache-2.0
// Makes and ends records of contexts, for cuCtxCreate (context.cc) and for green contexts.
#pragma once

#include "client/cuda/bodies.h"

namespace tendril::client::cuda {

// A record that the worker does not know yet. Null: there are too many.
Context* new_context(Device* device);
// The context can be used from now on. If its server has several, a synchronous copy to one of them
// is complete for all when it returns.
void context_comes(Context* context);
// Forgets what lived in a context that is gone. Its objects' handles become invalid.
void sweep_context(Context* context);

}  // namespace tendril::client::cuda
