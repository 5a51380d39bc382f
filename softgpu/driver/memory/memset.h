// SPDX-License-Identifier: Apache-2.0
// What calls and graph nodes share about memsets. Any thread.
#pragma once

#include "softgpu/driver/stream/work.h"

namespace tendril::softgpu {

CUresult check_memset(const CUDA_MEMSET_NODE_PARAMS& params);

}  // namespace tendril::softgpu
