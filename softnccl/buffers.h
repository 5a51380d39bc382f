// SPDX-License-Identifier: Apache-2.0
// Memory of the GPU that a communicator takes as NCCL does, so that tests see it charged. Nothing
// is ever in it. By one thread at a time, with the communicator's context current.
#pragma once

#include <cstdint>

#include "softnccl/driver.h"
#include "softnccl/nccl.h"

namespace tendril::softnccl {

class Buffers {
 public:
  // The first call takes it; 0 bytes: none. `map` takes physical memory and maps it.
  ncclResult_t allocate(uint64_t bytes);
  ncclResult_t map(uint64_t bytes, CUdevice device);
  void free();

 private:
  CUdeviceptr address_ = 0;
  uint64_t mapped_ = 0;  // bytes
  CUmemGenericAllocationHandle physical_ = 0;
};

}  // namespace tendril::softnccl
