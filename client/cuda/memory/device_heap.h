// SPDX-License-Identifier: Apache-2.0
// Device memory that a server has given this process, cut up and used again without asking. Small
// allocations are parts of pages of 2 MiB, as a driver cuts them. What the program frees waits here
// for the next allocation of its size. The program that waits for nothing may still have work that
// uses it, so the new use is put in order behind that work (docs/decisions/0027).
//
// memory.cc calls this; each session has one. It decides only: what is sent is the callers' doing,
// in functions that run under the lock, so no other thread's call overtakes them.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <vector>

#include "base/holes.h"
#include "base/lock.h"
#include "base/page_blocks.h"

namespace tendril::client::cuda {

struct Context;

// Where an allocation lies.
struct HeapPlace {
  uint64_t address = 0;   // 0: nowhere
  uint64_t capacity = 0;  // what belongs to it
  bool part = false;      // of a page, which has others too
};

class DeviceHeap {
 public:
  static constexpr uint64_t kPageBytes = base::kGpuPageBytes;
  // The most that is kept from others. Half of what the slice has left is another limit.
  static constexpr uint64_t kKeptMost = 256u << 20;
  static constexpr size_t kBlocksMost = 128;

  // Room for `bytes` in what the context has here. If earlier work may still use that room,
  // `order()` must put all later work behind all earlier work; with may_order false such room is
  // left alone.
  template <typename Order>
  HeapPlace take(const Context* context, uint64_t bytes, bool may_order, Order&& order) {
    const base::Locked locked(lock_);
    bool used = false;
    const HeapPlace place = base::shares_a_page(bytes)
                                ? take_part(context, bytes, may_order, &used)
                                : take_block(context, bytes, may_order, &used);
    if (used) {
      order();
      ordered_ = frees_;
    }
    return place;
  }
  // A page has come from the server. Its first part goes to an allocation of `bytes`.
  HeapPlace add_page(const Context* context, uint64_t base, uint64_t bytes);

  // The program frees a place. send(context, address) gives a page or a block back to the server.
  template <typename Send>
  void give(const Context* context, const HeapPlace& place, Send&& send) {
    const base::Locked locked(lock_);
    ++frees_;
    if (!(place.part ? give_part(place) : give_block(context, place))) {
      send(context, place.part ? drop_page(place.address) : place.address);
      return;
    }
    while (kept() > limit_ || blocks_.size() > kBlocksMost) {
      const Freed oldest = drop_oldest();
      send(oldest.context, oldest.address);
    }
  }
  // Gives back all that waits here.
  template <typename Send>
  void give_up(Send&& send) {
    if (!keeps()) return;
    const base::Locked locked(lock_);
    while (kept() != 0) {
      const Freed oldest = drop_oldest();
      send(oldest.context, oldest.address);
    }
  }
  // Gives back at least `bytes` of what the context has waiting here, the oldest first. False: it
  // has less, and keeps it.
  template <typename Send>
  bool give_up_some(const Context* context, uint64_t bytes, Send&& send) {
    if (kept() < bytes) return false;
    const base::Locked locked(lock_);
    if (kept_of(context) < bytes) return false;
    for (uint64_t given = 0; given < bytes;) {
      const Freed oldest = drop_oldest_of(context);
      given += base::whole_pages(oldest.bytes);
      send(oldest.context, oldest.address);
    }
    return true;
  }
  // Needs no lock. False: neither this thread nor one that it has waited for left anything here.
  bool keeps() const { return kept() != 0; }
  // The slice has so many bytes left.
  void left(uint64_t bytes);
  // All work that was sent before mark() was called is over.
  uint64_t mark() const;
  void waited(uint64_t mark);
  // Other processes may look at a place: nothing is put there again. Returns what the address is
  // part of, or the address.
  uint64_t pin(const HeapPlace& place, const Context* context);
  // The context is gone with all its memory. gone(base) is called for each page.
  template <typename Gone>
  void forget(const Context* context, Gone&& gone) {
    const base::Locked locked(lock_);
    for (auto page = pages_.begin(); page != pages_.end();) {
      if (page->second.context != context) {
        ++page;
        continue;
      }
      if (page->second.parts == 0) keep_less(kPageBytes);
      open_.erase(page->first);
      gone(page->first);
      page = pages_.erase(page);
    }
    forget_blocks(context);
  }

 private:
  struct Page {
    const Context* context = nullptr;
    uint32_t parts = 0;    // in use
    uint64_t largest = 0;  // no hole is larger
    bool pinned = false;
    base::Holes<uint64_t> holes;  // by offset, with the number of the last free
  };
  struct Freed {
    const Context* context;
    uint64_t address, bytes, freed;
  };

  uint64_t kept() const { return kept_.load(std::memory_order_relaxed); }
  void keep_more(uint64_t bytes) { kept_.store(kept() + bytes, std::memory_order_relaxed); }
  void keep_less(uint64_t bytes) { kept_.store(kept() - bytes, std::memory_order_relaxed); }
  HeapPlace take_part(const Context* context, uint64_t bytes, bool may_order, bool* used);
  HeapPlace take_block(const Context* context, uint64_t bytes, bool may_order, bool* used);
  HeapPlace took(uint64_t base, Page* page, uint64_t offset, uint64_t bytes);
  bool give_part(const HeapPlace& place);
  bool give_block(const Context* context, const HeapPlace& place);
  uint64_t drop_page(uint64_t address);
  Freed drop_oldest();
  uint64_t kept_of(const Context* context) const;
  Freed drop_oldest_of(const Context* context);
  void forget_blocks(const Context* context);
  std::map<uint64_t, Page>::iterator page_of(uint64_t address);

  mutable base::Lock lock_;
  uint64_t frees_ = 0;    // so far
  uint64_t ordered_ = 0;  // work is in order behind all that used what was freed up to this one
  uint64_t limit_ = 0;
  std::atomic<uint64_t> kept_{0};  // blocks_, and pages without parts
  std::map<uint64_t, Page> pages_;
  std::map<uint64_t, Page*> open_;             // pages with holes that may be used
  std::vector<Freed> blocks_;                  // freed, the oldest first
  std::map<uint64_t, const Context*> pinned_;  // blocks, by address
};

}  // namespace tendril::client::cuda
