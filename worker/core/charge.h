// SPDX-License-Identifier: Apache-2.0
// The one place that says whether GPU memory may be taken. Every allocating call charges before it
// asks the driver, and gives the charge back when the driver refuses or the memory is freed. So the
// sum over all workers of a lease never passes a slice's quota.
#pragma once

#include <cstdint>
#include <functional>
#include <unordered_map>

#include "wire/assignment.h"

namespace tendril::worker {

class Charge {
 public:
  Charge(const wire::Assignment& assignment, wire::AccountingPage* accounting);

  // False: it would pass the quota; the call answers that memory ran out. Before it refuses, memory
  // that is kept for later goes back to the driver (on_shortage).
  bool take(uint32_t slot, uint64_t bytes);
  // The same without asking anybody to give something up.
  bool try_take(uint32_t slot, uint64_t bytes);
  // `give_up` gives memory of a slot back to the driver, and its charge with it.
  void on_shortage(std::function<void(uint32_t slot)> give_up) { give_up_ = std::move(give_up); }
  void give_back(uint32_t slot, uint64_t bytes);
  uint64_t quota(uint32_t slot) const;
  uint64_t used(uint32_t slot) const;  // by every worker of the lease

  // What an address, pool block or allocation handle was charged, so that freeing needs no size.
  void remember(uint64_t key, uint32_t slot, uint64_t bytes, const void* context);
  // Gives back what `key` was charged; false if it was not.
  bool release(uint64_t key);
  // Takes and remembers under a key of its own; 0: past the quota.
  uint64_t hold(uint32_t slot, uint64_t bytes, const void* context);
  // A context is gone, and everything in it.
  void release_context(const void* context);

 private:
  struct Item {
    uint32_t slot;
    uint64_t bytes;
    const void* context;
  };
  wire::Assignment assignment_;
  wire::AccountingPage* accounting_;  // may be null (tests)
  std::unordered_map<uint64_t, Item> items_;
  uint64_t local_[wire::kSlicesMax] = {};
  std::function<void(uint32_t)> give_up_;
  bool giving_up_ = false;
  uint64_t holds_ = 0;
};

}  // namespace tendril::worker
