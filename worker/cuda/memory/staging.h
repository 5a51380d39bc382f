// SPDX-License-Identifier: Apache-2.0
// Pinned blocks of host memory for copies, and events; reused when the GPU is done with them. Used
// by the executor thread, and by waiter threads when they finish a wait. The lock is held briefly,
// and never while the driver waits.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "base/lock.h"
#include "gpu/cuda/driver.h"
#include "session/lane/service.h"
#include "worker/core/host_use.h"

namespace tendril::worker::cuda {

struct Block {
  uint8_t* data = nullptr;
  uint64_t bytes = 0;  // capacity, a power of two
  bool pinned = false;
  uint32_t age = 0;  // how often blocks had been forgotten when this one was made
};

class Staging {
 public:
  // `host`: of the session; null (tests): unbounded.
  explicit Staging(gpu::Driver* driver, HostUse* host = nullptr) : driver_(driver), host_(host) {}

  // A block of at least `bytes`; data is null when the session's memory, or the machine's, is out.
  // Needs a current context (for pinning).
  Block take(uint64_t bytes);
  // Kept for the next, as pinning costs far more than a copy; up to a bound. Needs a current
  // context, too.
  void give_back(const Block& block);
  // The context that pinned the blocks is gone: forget them, also those that are given back later.
  void forget();

  // An event without timing of the current context, recorded on `stream`, and back. Null: there is
  // none, and *failure says why.
  CUevent record_event(CUcontext context, CUstream stream, CUresult* failure = nullptr);
  void give_back_event(CUcontext context, CUevent event);
  void forget_events(CUcontext context);

 private:
  CUevent take_event(CUcontext context);
  void drop(const Block& block);

  struct Spare {
    CUcontext context;
    CUevent event;
  };
  gpu::Driver* driver_;
  HostUse* const host_;
  base::Lock lock_;              // of all that follows
  std::vector<Block> free_[48];  // by log2 of the size
  uint64_t free_bytes_ = 0;
  uint32_t age_ = 0;
  std::vector<Spare> events_;
};

}  // namespace tendril::worker::cuda
