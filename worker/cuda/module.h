// SPDX-License-Identifier: Apache-2.0
// What the handlers of modules, libraries and linkers share. Executor thread only.
#pragma once

#include <cstdint>
#include <vector>

#include "worker/core/code_store.h"
#include "worker/cuda/code/loaded_code.h"
#include "worker/cuda/executor/scope.h"

namespace tendril::worker::cuda {

using wire::cuda::LoadKind;

// Call it when a context is destroyed or reset. The ids of all code in it become invalid.
void forget_code(Executor& executor, CUcontext context);

// The bytes of an upload, from the message or from a bulk transfer. Null data: no memory, or the
// session ended because the peer sent a wrong transfer.
ImageBytes receive_image(Executor& executor, uint64_t transfer, uint64_t size,
                         const wire::Bytes& data);

// The context of the call. Null: the call named none.
inline CUcontext context_of(Executor& executor) {
  return executor.context() != nullptr ? executor.context()->context : nullptr;
}

// Packs names of functions or kernels for a reply, from `first` on, as many as fit.
wire::Bytes pack_names(Scope* scope, const std::vector<const char*>& names, uint32_t first);

}  // namespace tendril::worker::cuda
