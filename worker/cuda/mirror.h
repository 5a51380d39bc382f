// SPDX-License-Identifier: Apache-2.0
// Copies of the client's host memory at the client's addresses, registered with the GPU, so that
// kernels reach them by the same pointer. Addresses must lie in the part of the address space that
// is set aside for this; a hostile client cannot map over the worker.
#pragma once

#include <cstdint>
#include <cstring>
#include <map>

#include "worker/cuda/executor.h"

namespace tendril::worker::cuda {

class Mirrors {
 public:
  struct Mirror {
    uint64_t base = 0, bytes = 0;           // as the client named it
    uint64_t mapped = 0, mapped_bytes = 0;  // whole pages
    uint8_t* shadow = nullptr;
    bool written = false;  // GPUs may write it
  };
  // For a range that has a copy already, `written` is all that may be new.
  CUresult create(gpu::Driver* driver, uint64_t base, uint64_t bytes, bool written);
  void destroy(gpu::Driver* driver, uint64_t base);
  Mirror* find(uint64_t address);
  // Where GPUs have written since the last look: calls `changed(mirror, offset, bytes)` page by
  // page until it returns false. True: there may be more, the next call goes on from there.
  template <typename Changed>
  bool scan(Changed&& changed) {
    for (auto& [base, mirror] : all_) {
      if (!mirror.written || base + mirror.bytes <= resume_) continue;
      for (uint64_t at = resume_ > base ? resume_ - base : 0; at < mirror.bytes; at += kPage) {
        const uint64_t bytes = mirror.bytes - at < kPage ? mirror.bytes - at : kPage;
        const void* memory = reinterpret_cast<const void*>(base + at);
        if (std::memcmp(memory, mirror.shadow + at, bytes) == 0 || changed(mirror, at, bytes))
          continue;
        resume_ = base + at;
        return true;
      }
    }
    resume_ = 0;
    return false;
  }

 private:
  static constexpr uint64_t kPage = 4096;
  uint64_t resume_ = 0;
  std::map<uint64_t, Mirror> all_;
  uint64_t total_ = 0;
};

}  // namespace tendril::worker::cuda
