// SPDX-License-Identifier: Apache-2.0
// Blocks of pools that the program has freed in the order of a stream, and whose frees are not sent
// yet. An allocation of the same size from the same pool in the same stream takes one of them
// without a message. That is correct, because the stream orders the new use behind the old one.
// pool.cc calls this. A session calls it before every call that waits, so that a query finds freed
// blocks free.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/lock.h"

namespace tendril::client::cuda {

struct Context;

struct FreedBlock {
  Context* context = nullptr;  // of the stream; each context has its own legacy stream
  uint64_t stream = 0;         // wire id
  uint64_t pool = 0;           // handle
  uint64_t bytes = 0;          // as the program asked; drivers round up in different ways
  uint64_t address = 0;
};

class FreedBlocks {
 public:
  // The most memory that may be withheld from other uses on a server.
  static constexpr uint32_t kBlocksMax = 128;
  static constexpr uint64_t kBytesMax = 256u << 20;
  static constexpr uint64_t kAnyStream = 0;

  // Needs no lock. True: neither this thread nor a thread that it has waited for has freed anything
  // that is here.
  bool empty() const { return count_.load(std::memory_order_relaxed) == 0; }

  // Keeps the block. The oldest blocks may be sent to make room. False: it is not kept, because it
  // is too large or `allowed()` says no. `send(const FreedBlock&)` enqueues a free. Both are called
  // under the lock, so that no other thread's call overtakes them.
  template <typename Allowed, typename Send>
  bool keep(const FreedBlock& block, Allowed&& allowed, Send&& send) {
    const base::Locked locked(lock_);
    if (block.bytes > kBytesMax || !allowed()) return false;
    while (size() == kBlocksMax || bytes_ + block.bytes > kBytesMax) send(remove(0));
    blocks_[size()] = block;
    bytes_ += block.bytes;
    count_.store(size() + 1, std::memory_order_relaxed);
    return true;
  }

  // The address of the block that fits and was freed last. 0: none fits.
  uint64_t take(const FreedBlock& wanted);

  // Sends the stream's blocks that have at least `bytes_min` bytes.
  template <typename Send>
  void give_back(uint64_t stream, uint64_t bytes_min, Send&& send) {
    const base::Locked locked(lock_);
    for (uint32_t i = 0; i < size();) {
      const FreedBlock& block = blocks_[i];
      if ((stream == kAnyStream || block.stream == stream) && block.bytes >= bytes_min)
        send(remove(i));
      else
        ++i;
    }
  }

 private:
  uint32_t size() const { return count_.load(std::memory_order_relaxed); }
  FreedBlock remove(uint32_t index);

  base::Lock lock_;
  std::atomic<uint32_t> count_{0};
  uint64_t bytes_ = 0;
  FreedBlock blocks_[kBlocksMax];  // the oldest first
};

}  // namespace tendril::client::cuda
