// SPDX-License-Identifier: Apache-2.0
// Whether this machine's GPUs may be lent to strangers. A GPU with pageable memory access (HMM,
// ATS) reads and writes all memory of its process. So a kernel could take over its worker. Hiding
// the attribute from programs does not stop kernels. Pure.
#pragma once

#include "base/result.h"
#include "gpu/inventory.h"

namespace tendril::daemon {

// `strangers`: others than this machine's users may come. Logs a warning if it allows such a GPU.
// `of_cuda`: the advice about NVIDIA's driver applies.
base::Status check_pageable_access(const gpu::Inventory& inventory, bool strangers, bool allowed,
                                   bool of_cuda = true);

}  // namespace tendril::daemon
