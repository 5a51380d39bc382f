// SPDX-License-Identifier: Apache-2.0
// Host functions in streams. The worker sends a token; a thread of ours runs its function and
// reports back. See callback.cc.
#pragma once

#include <cstdint>

#include "client/cuda/state.h"

namespace tendril::client::cuda {

// Hands a request to the callback thread. Called by the thread that received it.
void run_callback(Session* session, uint64_t token, uint64_t invocation);
// Host functions that stay: nodes of graphs, destructors of user objects. 0: no thread could be
// started to run them.
uint64_t add_host_function(Session* session, CUhostFn function, void* data);
// Finds what `token` stands for. False: nothing.
bool host_function_of(uint64_t token, CUhostFn* function, void** data);
// The destructor of a user object. It runs once, and then `object` is gone. `token` is from
// add_host_function.
void destroy_after(uint64_t token, Object* object);
// Are host functions pending that may still write host memory?
bool callbacks_pending();
// Called before a wait of ours in `call`, which does not wait in CUDA. If a pending host function
// cannot end until the calling thread continues, both wait for ever. So while one is pending, this
// polls for some time, and then warns once. CUDA_SUCCESS: the caller may wait now.
CUresult look_before_wait(const char* call, Context* context, const Stream* stream);
CUresult look_before_wait(const char* call, const Event* event);

}  // namespace tendril::client::cuda
