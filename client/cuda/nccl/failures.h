// SPDX-License-Identifier: Apache-2.0
// Which of a session's communicators have failed, as its worker has told. Few ever do. Any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "base/lock.h"

namespace tendril::client::cuda {

class NcclFailures {
 public:
  void add(uint64_t communicator, uint32_t state) {
    const base::Locked held(lock_);
    // A worker that tells of more than a session may have is not believed.
    if (all_.size() < kMost) all_.push_back({communicator, state});
  }
  // 0: it has not failed.
  uint32_t find(uint64_t communicator) {
    const base::Locked held(lock_);
    for (const Failed& each : all_)
      if (each.communicator == communicator) return each.state;
    return 0;
  }
  // The communicator has ended. True: it had failed.
  bool forget(uint64_t communicator) {
    const base::Locked held(lock_);
    for (Failed& each : all_) {
      if (each.communicator != communicator) continue;
      each = all_.back();
      all_.pop_back();
      return true;
    }
    return false;
  }

 private:
  static constexpr size_t kMost = 4096;
  struct Failed {
    uint64_t communicator;
    uint32_t state;
  };
  base::Lock lock_;
  std::vector<Failed> all_;
};

}  // namespace tendril::client::cuda
