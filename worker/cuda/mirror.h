// SPDX-License-Identifier: Apache-2.0
// Copies of the client's host memory at the client's addresses, registered with the GPU, so that kernels reach them by the same pointer.
// Addresses must lie in the part of the address space that is set aside for this; a hostile client cannot map over the worker.
#pragma once

#include <cstdint>
#include <map>

#include "worker/cuda/executor.h"

namespace tendril::worker::cuda {

class Mirrors {
 public:
  struct Mirror {
    uint64_t base = 0, bytes = 0;      // as the client named it
    uint64_t mapped = 0, mapped_bytes = 0;  // whole pages
    uint8_t* shadow = nullptr;
    uint64_t scanned = 0;              // how far the running fetch has come
  };
  CUresult create(gpu::Driver* driver, uint64_t base, uint64_t bytes);
  void destroy(gpu::Driver* driver, uint64_t base);
  Mirror* find(uint64_t address);

 private:
  std::map<uint64_t, Mirror> all_;
  uint64_t total_ = 0;
};

}  // namespace tendril::worker::cuda
