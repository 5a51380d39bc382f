// SPDX-License-Identifier: Apache-2.0
// Host functions that streams run: the worker asks by token, a thread of ours runs the function and says so. See callback.cc.
#pragma once

#include <cstdint>

#include "client/cuda/state.h"

namespace tendril::client::cuda {

// Called by whichever thread received the request: hands it to the callback thread.
void run_callback(Session* session, uint64_t token, uint64_t invocation);
// Are host functions pending that may still write host memory?
bool callbacks_pending();

}  // namespace tendril::client::cuda
