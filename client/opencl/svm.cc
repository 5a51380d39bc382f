// SPDX-License-Identifier: Apache-2.0
// Shared virtual memory. Devices say that they have none, and allocations answer as OpenCL says
// that they then do.
#include "client/opencl/entry.h"

namespace tendril::client::opencl {

void* clSVMAlloc(cl_context, cl_svm_mem_flags, size_t, unsigned int) {
  return refused("clSVMAlloc", "there is no shared virtual memory here", nullptr);
}

void clSVMFree(cl_context, void*) {}

}  // namespace tendril::client::opencl
