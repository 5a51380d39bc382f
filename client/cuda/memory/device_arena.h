// SPDX-License-Identifier: Apache-2.0
// Addresses of one device that this process and the server's worker have both reserved, and what
// the slice has paid ahead. With both, an allocation needs nobody: the client says which memory is
// where, and the worker makes it in the order of the lane (docs/decisions/0027). Any thread.
//
// device_heap.h decides what is kept and cut up; memory.cc calls both. The class decides only. What
// is sent is the callers' doing, in functions that run under the lock, so that calls for an address
// are in the lane's order.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <map>

#include "base/holes.h"
#include "base/lock.h"
#include "base/page_blocks.h"

namespace tendril::client::cuda {

struct Context;

class DeviceArena {
 public:
  // The most that is paid ahead and not used. An eighth of what the slice had left is another
  // limit.
  static constexpr uint64_t kAheadMost = 64u << 20;
  static constexpr uint64_t kAheadLeast = 8u << 20;

  enum class Taken { kYes, kNotPaid, kNoAddresses };

  // Both ends have [base, base + bytes). The client gives out the first `own` bytes of it, the
  // worker the rest.
  void open(uint64_t base, uint64_t bytes, uint64_t own);
  // Needs no lock.
  bool is_open() const { return bytes_.load(std::memory_order_acquire) != 0; }
  bool contains(uint64_t address, uint64_t count) const {
    const uint64_t room = bytes_.load(std::memory_order_acquire), offset = address - base_;
    return offset < room && count <= room - offset;
  }

  // Takes addresses for `bytes`, whole pages, which are paid. Then send(address) tells the worker.
  template <typename Send>
  Taken take(const Context* context, uint64_t bytes, uint64_t* address, Send&& send) {
    const base::Locked locked(lock_);
    const Taken taken = take_locked(context, bytes, address);
    if (taken == Taken::kYes) send(*address);
    return taken;
  }
  // Gives a block back. False: it is not of this arena. send_free() tells the worker, which then
  // holds what was paid for it for this client. What is too much goes back: send_back(bytes).
  template <typename SendFree, typename SendBack>
  bool give(uint64_t address, SendFree&& send_free, SendBack&& send_back) {
    if (!contains(address, 1)) return false;
    const base::Locked locked(lock_);
    if (blocks_.count(address) == 0) return false;
    send_free();
    give_locked(address);
    const uint64_t most = std::max(most_, wanted_);
    if (paid_ <= most) return true;
    send_back(paid_ - most);
    paid_ = most;
    return true;
  }
  // Gives back all that is paid ahead.
  template <typename SendBack>
  bool give_up(SendBack&& send_back) {
    if (!is_open()) return false;
    const base::Locked locked(lock_);
    if (paid_ == 0) return false;
    send_back(paid_);
    paid_ = 0;
    next_ahead_ = kAheadLeast;
    return true;
  }
  // Others may have the block open from now on. Once it is given back, it is paid for no more.
  void share(uint64_t address);
  // What is missing for `bytes`. Until they are taken, so much may be paid ahead.
  uint64_t want(uint64_t bytes);
  // How much to ask for beside what an allocation needs. It grows while a program asks on.
  uint64_t ahead();
  // The worker has paid `bytes` more. The slice has `left`.
  void paid(uint64_t bytes, uint64_t left);
  // The context is gone with its blocks. Nothing is paid for them any more.
  void forget(const Context* context);

 private:
  struct Block {
    uint64_t bytes;
    const Context* context;
    bool shared = false;
  };
  Taken take_locked(const Context* context, uint64_t bytes, uint64_t* address);
  void give_locked(uint64_t address);

  base::Lock lock_;
  uint64_t base_ = 0;  // constant once bytes_ is set
  std::atomic<uint64_t> bytes_{0};
  uint64_t paid_ = 0, most_ = 0, wanted_ = 0, next_ahead_ = kAheadLeast;
  base::Holes<> holes_;
  std::map<uint64_t, Block> blocks_;  // by address
};

}  // namespace tendril::client::cuda
