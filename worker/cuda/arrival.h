// SPDX-License-Identifier: Apache-2.0
// Bulk data from the client, as handlers take it: aside, while other calls go on, where the session has channels for it. The client
// says `transfer_end` behind a transfer that belongs to a call without reply; that is where the lane waits for the rest.
#pragma once

#include <cstdint>

#include "worker/cuda/executor.h"

namespace tendril::worker::cuda {

// Takes `bytes` of `transfer` and has the GPU copy each piece, in stream order, as it comes.
CUresult receive_to_device(Executor& w, uint64_t destination, uint64_t bytes, uint64_t transfer, CUstream stream);
// Takes `bytes` of `transfer` into memory. False: the session is over.
bool receive_into(Executor& w, uint8_t* memory, uint64_t bytes, uint64_t transfer);

}  // namespace tendril::worker::cuda
