// SPDX-License-Identifier: Apache-2.0
// NCCL's calls of this process, which libnccl.so.2 collects (client/nccl): finds the servers of a
// group's parts, turns handles into ids, sends all parts before it awaits the first answer. Any
// thread.
#pragma once

#include "api/nccl/door.h"

namespace tendril::client::cuda {

extern const api::nccl::Door kNcclDoor;

// Tendril's libnccl.so.2 is preloaded.
bool nccl_is_ours();

}  // namespace tendril::client::cuda
