// SPDX-License-Identifier: Apache-2.0
// What buffers and images have in common.
#pragma once

#include "api/opencl_abi.gen.h"

namespace tendril::worker::opencl {

// The host's memory is the client's, and so is what it may do with the object: a mapping for
// writing reads here first. What remains is how kernels use the object.
constexpr cl_mem_flags kForwardedFlags = CL_MEM_READ_WRITE | CL_MEM_WRITE_ONLY | CL_MEM_READ_ONLY |
                                         CL_MEM_ALLOC_HOST_PTR | CL_MEM_KERNEL_READ_AND_WRITE;

}  // namespace tendril::worker::opencl
