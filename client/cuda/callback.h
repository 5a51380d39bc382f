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

}  // namespace tendril::client::cuda
