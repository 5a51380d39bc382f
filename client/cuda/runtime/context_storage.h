// SPDX-License-Identifier: Apache-2.0
// Context-local storage: values that runtimes keep per context and key. Read before nearly every
// runtime call, so reading costs a few nanoseconds; values die, with a call of their destructor,
// when their context does.
#pragma once

#include "client/cuda/state.h"

namespace tendril::client::cuda {

using StorageDestructor = void (*)(CUcontext context, void* key, void* value);

CUresult storage_put(CUcontext context, void* key, void* value, StorageDestructor destructor);
CUresult storage_delete(CUcontext context, void* key);
CUresult storage_get(void** value, CUcontext context, void* key);
// The context is being destroyed or reset: its values go, destructors are called.
void storage_end(Context* context);

}  // namespace tendril::client::cuda
