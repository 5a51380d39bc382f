// SPDX-License-Identifier: Apache-2.0
// Charges a slice for allocations that have an address, by the pages that they lie in. A driver
// gives a small allocation a part of a page, and takes the page with its first part
// (docs/decisions/0020-what-a-driver-takes.md). Executor thread.
#pragma once

#include <cstdint>
#include <map>
#include <unordered_map>

#include "worker/core/charge.h"

namespace tendril::worker {

class PageCharge {
 public:
  explicit PageCharge(Charge* charge) : charge_(*charge) {}

  // Charges what an allocation of `bytes` may take, before the driver is asked. Then one of the
  // next two must be called with *ahead. False: out of memory.
  bool before(uint32_t slot, uint64_t bytes, uint64_t* ahead);
  // The driver allocated. False: it took more than the quota allows, so it must have it back. Then
  // nothing is charged.
  bool after(uint32_t slot, uint64_t address, uint64_t bytes, const void* context, uint64_t ahead);
  void refused(uint32_t slot, uint64_t ahead) { charge_.give_back(slot, ahead); }
  void freed(uint64_t address);

  // Memory that the client may take without asking. False: out of memory.
  bool pay_ahead(uint32_t slot, uint64_t bytes);
  uint64_t paid_ahead(uint32_t slot) const;
  void give_up(uint32_t slot, uint64_t bytes);
  // The client takes whole pages at an address. False: they are not paid.
  bool spend(uint32_t slot, uint64_t address, uint64_t bytes, const void* context);
  // What was charged for an address is paid ahead now.
  void keep(uint64_t address);
  // A context is gone with all its memory.
  void release_context(const void* context);
  // What keeps an allocation at this address from being given back: all of its pages.
  static uint64_t bytes_around(uint64_t address, uint64_t bytes);

 private:
  struct Block {
    uint32_t slot;
    uint64_t bytes, charged;  // charged: for itself; else its pages are
    const void* context;
  };
  using Blocks = std::map<uint64_t, Block>;  // by address
  struct Page {
    uint32_t slot = 0, blocks = 0;
    uint64_t used = 0;
  };
  void set_ahead(uint32_t slot, uint64_t bytes);
  bool has_hole(uint32_t slot, uint64_t bytes) const;
  bool has_hole_in(uint64_t page, uint64_t bytes) const;
  Blocks::iterator erase(Blocks::iterator block);

  Charge& charge_;
  uint64_t ahead_[wire::kSlicesMax] = {};
  Blocks blocks_;
  std::unordered_map<uint64_t, Page> pages_;  // that small blocks share, by address / page size
};

}  // namespace tendril::worker
