// SPDX-License-Identifier: Apache-2.0
// A group's operations of one communicator as work of streams: copies to pinned memory, a host
// function that exchanges, copies back. Into a stream that captures, the same is recorded.
#pragma once

#include <vector>

#include "softnccl/communicator.h"

namespace tendril::softnccl {

struct Queued {
  Operation operation;
  CUstream stream;
};

// The lines must be there. Runs on the caller's thread and waits only for a full queue.
ncclResult_t launch(const CommunicatorPtr& communicator, const std::vector<Queued>& queued);

}  // namespace tendril::softnccl
