// SPDX-License-Identifier: Apache-2.0
// Passages: connections between the workers of two servers, over which copies between their GPUs
// travel, and waits for each other's events. The pair's first use opens one. Where none can be, the
// caller finds another way, and a line on stderr says why. Any thread.
#pragma once

#include "client/cuda/copy/copy.h"

namespace tendril::client::cuda {

// One end of a copy.
struct PassageEnd {
  Context* context = nullptr;  // through which it is reached, or whose legacy stream orders it
  uint64_t address = 0, pitch = 0, slice = 0;
  Stream* stream = nullptr;  // null: the legacy stream
  bool ordered = false;      // the copy has its place in that stream
};
struct PassageExtent {
  uint64_t width = 0, height = 1, depth = 1;
};

// A copy in the order that `on` says; `context` is current. The ends are on different servers.
// True: *result is the copy's. A synchronous one is over then.
bool copy_over_passage(Context* context, PassageEnd to, PassageEnd from,
                       const PassageExtent& extent, CopyStream on, CUresult* result);
// `stream` (null: the legacy one of `context`) waits for another server's event. True: so it is.
bool wait_over_passage(Context* context, Stream* stream, const Event* event, CUresult* result);

}  // namespace tendril::client::cuda
