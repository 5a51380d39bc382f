// SPDX-License-Identifier: Apache-2.0
// Results with a text behind them: the last one is what ncclGetLastError tells. Any thread.
#pragma once

#include <string>

#include "softnccl/nccl.h"
#include "softnccl/socket.h"

namespace tendril::softnccl {

// Remembers the text and returns the result.
ncclResult_t error(ncclResult_t result, const std::string& text);
// The process' last text. Valid until the calling thread asks again.
const char* last_error();
const char* error_text(ncclResult_t result);

// Success for kDone. `with` says who was at the other end.
ncclResult_t net_error(Net net, const std::string& with);
// Success for 0. `call` is what the driver refused.
ncclResult_t driver_error(int result, const char* call);

}  // namespace tendril::softnccl
