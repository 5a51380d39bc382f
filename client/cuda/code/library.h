// SPDX-License-Identifier: Apache-2.0
// Libraries and kernels, which belong to no context. If the client has several servers, each gets
// the library when one of its kernels or variables is first used there. Within one session the
// driver's own library object serves every context. Ids are the same on all servers: the client
// chose them.
#pragma once

#include <cstdint>

#include "client/cuda/code/module.h"

namespace tendril::client::cuda {

// Makes the library known in a session. Loads it once, unless two threads race.
CUresult load_library(Library* library, Session* session);
// The slow path of kernel_wire_id.
CUresult load_kernel(Function* kernel, Session* session);

// The id of a kernel in `session`'s worker. Loads library and kernel there on first use. 0: it
// failed, see *error. For a CUfunction: its wire id.
inline uint64_t kernel_wire_id(Function* kernel, Session* session, CUresult* error) {
  if (__builtin_expect((kernel->loaded.load(std::memory_order_acquire) & session_bit(session)) == 0,
                       0)) {
    *error = load_kernel(kernel, session);
    if (*error != CUDA_SUCCESS) return 0;
  }
  return kernel->wire_id;
}

// The CUfunction of a kernel in a context; a round trip the first time.
CUresult kernel_function(Function* kernel, Context* context, Function** out);
// The module of a library in a context; a round trip the first time.
CUresult library_module(Library* library, Context* context, Module** out);

// Drops the functions that a kernel has in a context (0: in every one). Records only.
void forget_context_functions(Function* kernel, uint64_t context);
// The same for all of a library, and its variables there.
void forget_library_context(Library* library, uint64_t context);

}  // namespace tendril::client::cuda
