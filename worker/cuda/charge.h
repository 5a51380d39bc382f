// SPDX-License-Identifier: Apache-2.0
// The one place that says whether GPU memory may be taken. Every allocating call charges before it asks the driver and discharges
// when that fails or the memory goes back, so the sum over all workers of a lease never passes a slice's quota.
#pragma once

#include <cstdint>
#include <unordered_map>

#include "wire/assignment.h"

namespace tendril::worker::cuda {

class Charge {
 public:
  Charge(const wire::Assignment& assignment, wire::AccountingPage* accounting);

  // False: it would pass the quota (answer CUDA_ERROR_OUT_OF_MEMORY).
  bool take(uint32_t slot, uint64_t bytes);
  void give_back(uint32_t slot, uint64_t bytes);
  uint64_t quota(uint32_t slot) const;
  uint64_t used(uint32_t slot) const;  // by every worker of the lease

  // What an address, pool block or allocation handle was charged, so that freeing needs no size.
  void remember(uint64_t key, uint32_t slot, uint64_t bytes, const void* context);
  // Gives back what `key` was charged; false if it was not.
  bool release(uint64_t key);
  // A context (or the primary context of a slot) is gone, and everything in it.
  void release_context(const void* context);
  void release_slot(uint32_t slot);

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
};

}  // namespace tendril::worker::cuda
