// SPDX-License-Identifier: Apache-2.0
// What a session may take of the server beside GPU memory: memory of the host for copies of the
// client's memory, staging and code, and objects of the driver, which cost host memory as well. A
// client asks for these in messages of a few bytes, so they are bounded by its slice. Any thread.
#pragma once

#include <atomic>
#include <cstdint>

#include "wire/assignment.h"

namespace tendril::worker {

struct HostBounds {
  uint64_t bytes = UINT64_MAX;
  uint64_t objects = UINT64_MAX;
};

// Half of the machine's memory is divided among its GPUs, and a GPU's part by share. Exception: a
// small slice gets enough for staging and a program's code. `machine_bytes` 0: unknown.
HostBounds host_bounds(const wire::Assignment& assignment, uint32_t machine_gpus,
                       uint64_t machine_bytes);
// Of this machine; 0: unknown.
uint64_t machine_memory_bytes();

class HostUse {
 public:
  explicit HostUse(uint64_t most) : most_(most) {}

  // False: the session has its part; the call must answer that there is no memory.
  bool take(uint64_t bytes) {
    uint64_t used = used_.load(std::memory_order_relaxed);
    do {
      if (bytes > most_ || used > most_ - bytes) return false;
    } while (!used_.compare_exchange_weak(used, used + bytes, std::memory_order_relaxed));
    return true;
  }
  void give_back(uint64_t bytes) { used_.fetch_sub(bytes, std::memory_order_relaxed); }
  uint64_t used() const { return used_.load(std::memory_order_relaxed); }
  uint64_t most() const { return most_; }

 private:
  const uint64_t most_;
  std::atomic<uint64_t> used_{0};
};

}  // namespace tendril::worker
