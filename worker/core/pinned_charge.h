// SPDX-License-Identifier: Apache-2.0
// Charges a session's slices for host memory that is pinned: the driver maps it for the GPU, whose
// tables of pages take 2 MiB for each GiB (docs/decisions/0020-what-a-driver-takes.md). It is
// pinned for all GPUs of the process, so each slice pays. What is less than a GiB lies in the
// reserve of the process. Executor thread.
#pragma once

#include <cstdint>

#include "worker/core/charge.h"

namespace tendril::worker {

class PinnedCharge {
 public:
  PinnedCharge(Charge* charge, uint32_t slots) : charge_(*charge), slots_(slots) {}

  // Before the memory is pinned. False: out of memory.
  bool take(uint64_t bytes) {
    if (bytes > UINT64_MAX - bytes_) return false;
    const uint64_t more = tables(bytes_ + bytes) - tables(bytes_);
    for (uint32_t slot = 0; slot < slots_; ++slot) {
      if (charge_.context_bytes(slot) == 0 || charge_.take(slot, more)) continue;
      while (slot-- != 0) give_back_tables(slot, more);
      return false;
    }
    bytes_ += bytes;
    return true;
  }
  void give_back(uint64_t bytes) {
    const uint64_t less = tables(bytes_) - tables(bytes_ - bytes);
    for (uint32_t slot = 0; slot < slots_; ++slot) give_back_tables(slot, less);
    bytes_ -= bytes;
  }

 private:
  static uint64_t tables(uint64_t bytes) { return (bytes >> 30) * base::kGpuPageBytes; }
  void give_back_tables(uint32_t slot, uint64_t bytes) {
    if (charge_.context_bytes(slot) != 0) charge_.give_back(slot, bytes);
  }

  Charge& charge_;
  const uint32_t slots_;
  uint64_t bytes_ = 0;
};

}  // namespace tendril::worker
