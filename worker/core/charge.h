// SPDX-License-Identifier: Apache-2.0
// Decides whether a call may take GPU memory. No other place decides this. Every allocating call
// charges the slice before it asks the driver. It gives the charge back when the driver refuses, or
// when the memory is freed. So all workers of a lease together never exceed a slice's quota.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <unordered_map>
#include <utility>

#include "base/page_blocks.h"
#include "wire/assignment.h"

namespace tendril::worker {

class Charge {
 public:
  Charge(const wire::Assignment& assignment, wire::AccountingPage* accounting);
  // Another one on the same account, for a thread of its own. It makes nobody give memory up.
  Charge beside() const { return {assignment_, accounting_}; }

  // Charges `bytes`. False: that would exceed the quota, and the call must answer "out of memory".
  // Before it refuses, it has memory that is kept for later given back to the driver (on_shortage).
  bool take(uint32_t slot, uint64_t bytes);
  // The same, but never calls on_shortage's function.
  bool try_take(uint32_t slot, uint64_t bytes);
  // Charges what the driver holds already, even beyond the quota. Then nothing more is granted.
  void take_anyway(uint32_t slot, uint64_t bytes);
  // `give_up` gives memory that a slot keeps back to the driver, and gives back its charge.
  void on_shortage(std::function<void(uint32_t slot)> give_up) { give_up_ = std::move(give_up); }
  void give_back(uint32_t slot, uint64_t bytes);
  // So much of what was taken is not in use yet. For those who look. One Charge of a worker says
  // so.
  void note_ahead(uint32_t slot, uint64_t bytes);
  uint64_t quota(uint32_t slot) const;
  // What an empty context takes on the slot's GPU. 0: this driver has no costs beyond memory that
  // calls ask for (docs/decisions/0020-what-a-driver-takes.md).
  uint64_t context_bytes(uint32_t slot) const;
  uint64_t used(uint32_t slot) const;  // by every worker of the lease

  // The client keeps memory for later, or has just given it back.
  void note_keeps(bool keeps);
  // Asks the other workers of the lease for what their clients keep. True: some may come. Who does
  // not answer within kAnswerNs has nothing.
  static constexpr uint64_t kAnswerNs = 3'000'000'000;
  bool ask_others(uint64_t now_ns);
  // A worker of the lease has asked not long ago, so nobody is to take more than it needs.
  bool is_short(uint64_t now_ns) const;
  // Another worker of the lease asks for what this one's client keeps. One load.
  bool is_asked() const {
    return asked_ != nullptr && asked_->load(std::memory_order_relaxed) != 0;
  }

  // Notes what was charged for an address, pool block or allocation handle. So freeing needs no
  // size.
  void remember(uint64_t key, uint32_t slot, uint64_t bytes, const void* context);
  // Gives back what was charged for `key`. False: nothing was.
  bool release(uint64_t key);
  // Charges, remembers the charge under a new key, and returns the key. 0: the quota does not allow
  // it.
  uint64_t hold(uint32_t slot, uint64_t bytes, const void* context);
  // The same for memory that has no address. Small blocks of one kind share pages, as the driver's
  // do.
  enum class Blocks : uint8_t { kArrays, kCode };
  uint64_t hold_block(uint32_t slot, Blocks kind, uint64_t bytes, const void* context);
  // What was charged under one key is now under another.
  void rename(uint64_t key, uint64_t to);
  // A context is gone with all its memory: gives back what was charged for it.
  void release_context(const void* context);

 private:
  struct Item {
    uint32_t slot;
    uint64_t bytes;
    const void* context;
    Blocks kind = Blocks::kArrays;
    std::optional<base::PageBlocks::Place> place = std::nullopt;  // it shares a page
  };
  void give_back(const Item& item);
  uint64_t next_hold();
  void add_ahead(uint32_t slot, uint64_t bytes);
  wire::Assignment assignment_;
  wire::AccountingPage* accounting_;    // may be null (tests)
  std::atomic<uint64_t>* const asked_;  // of this worker, in that page
  std::unordered_map<uint64_t, Item> items_;
  std::map<std::pair<uint32_t, Blocks>, base::PageBlocks> blocks_;
  uint64_t local_[wire::kSlicesMax] = {}, ahead_[wire::kSlicesMax] = {};
  std::function<void(uint32_t)> give_up_;
  bool giving_up_ = false;
  uint64_t holds_ = 0;
};

}  // namespace tendril::worker
