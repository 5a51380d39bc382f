// SPDX-License-Identifier: Apache-2.0
// Context-local storage: values that runtimes keep for a context and a key. They read them before
// nearly every runtime call, so reading costs a few nanoseconds. When a context ends, its values go
// and their destructors are called.
#pragma once

#include "client/cuda/state.h"

namespace tendril::client::cuda {

using StorageDestructor = void (*)(CUcontext context, void* key, void* value);

CUresult storage_put(CUcontext context, void* key, void* value, StorageDestructor destructor);
CUresult storage_delete(CUcontext context, void* key);
CUresult storage_get(void** value, CUcontext context, void* key);
// The context is being destroyed or reset.
void storage_end(Context* context);

}  // namespace tendril::client::cuda
