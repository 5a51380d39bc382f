// SPDX-License-Identifier: Apache-2.0
// Memory for the pieces of bulk transfers (session::SlotPool). It is mapped at its first use. It is
// kept until the process ends, because receiving threads may still write to it. An API whose driver
// can pin host memory pins it. Main thread.
#pragma once

#include <sys/mman.h>

#include "session/lane/service.h"

namespace tendril::worker {

class SlotMemory {
 public:
  static constexpr uint32_t kSlots = 16;
  static constexpr uint64_t kBytes = uint64_t{kSlots} * wire::kChunkBytesMax;

  // Empty when the machine has no memory left.
  session::SlotPool pool() {
    if (data_ == nullptr) {
      void* memory =
          mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (memory == MAP_FAILED) return {};
      data_ = static_cast<uint8_t*>(memory);
    }
    return {data_, kSlots};
  }
  uint8_t* data() const { return data_; }  // null before the first pool()

 private:
  uint8_t* data_ = nullptr;
};

}  // namespace tendril::worker
