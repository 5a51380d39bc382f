// SPDX-License-Identifier: Apache-2.0
// Groups: what a thread has called between the outermost start and end, and what happens at the
// end. A call outside a group is a group of one.
#pragma once

#include <functional>
#include <vector>

#include "softnccl/launch.h"

namespace tendril::softnccl {

// Making a communicator, which waits for other ranks. `handle` is where the program has it: null
// again if it could not be made and the call waits for that.
struct Making {
  CommunicatorPtr made;    // null where this rank gets none
  CommunicatorPtr parent;  // of a split
  ncclComm_t* handle;
  std::function<ncclResult_t()> work;
};

void group_start();
ncclResult_t group_end();
// Forgets what was called.
ncclResult_t group_drop();

// These are called between group_start and group_end.
void group_make(Making making);
void group_queue(const CommunicatorPtr& communicator, const Queued& queued);
// The group's end answers with this.
ncclResult_t group_fail(ncclResult_t result);

}  // namespace tendril::softnccl
