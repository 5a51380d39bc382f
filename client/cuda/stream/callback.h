// SPDX-License-Identifier: Apache-2.0
// Host functions that streams run: the worker asks by token, a thread of ours runs the function and
// says so. See callback.cc.
#pragma once

#include <cstdint>

#include "client/cuda/state.h"

namespace tendril::client::cuda {

// Called by whichever thread received the request: hands it to the callback thread.
void run_callback(Session* session, uint64_t token, uint64_t invocation);
// Host functions that stay: nodes of graphs, destructors of user objects. 0: no thread could be
// started to run them.
uint64_t add_host_function(Session* session, CUhostFn function, void* data);
// What `token` stands for; false: nothing.
bool host_function_of(uint64_t token, CUhostFn* function, void** data);
// The destructor of a user object: runs once, after which `object` is gone. `token` is from
// add_host_function.
void destroy_after(uint64_t token, Object* object);
// Are host functions pending that may still write host memory?
bool callbacks_pending();
// Before a wait of ours in `call`, which does not wait in CUDA: if the very thread that called it
// is the one to let a pending host function end, both wait for ever. So while one is pending this
// looks for a time, and says once what is going on. CUDA_SUCCESS: now wait.
CUresult look_before_wait(const char* call, Context* c, const Stream* stream);
CUresult look_before_wait(const char* call, const Event* event);

}  // namespace tendril::client::cuda
