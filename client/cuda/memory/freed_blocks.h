// SPDX-License-Identifier: Apache-2.0
// Blocks of pools that the program has freed in the order of a stream, and whose frees are not sent
// yet. An allocation of the same size from the same pool in the same stream takes one of them
// without a message: the stream orders the new use behind the old one. pool.cc calls this, and so
// does a session before every call that waits: who looks at memory then finds freed blocks to be
// free.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/lock.h"

namespace tendril::client::cuda {

struct Context;

struct FreedBlock {
  Context* context = nullptr;  // of the stream; the legacy stream is one in each
  uint64_t stream = 0;         // wire id
  uint64_t pool = 0;           // handle
  uint64_t bytes = 0;          // as the program asked for: drivers round up, each in its own way
  uint64_t address = 0;
};

class FreedBlocks {
 public:
  // How much a server may be kept from using for something else.
  static constexpr uint32_t kBlocksMax = 128;
  static constexpr uint64_t kBytesMax = 256u << 20;
  static constexpr uint64_t kAnyStream = 0;

  // Needs no lock: true if there is nothing that this thread, or one that it has waited for, has
  // freed.
  bool empty() const { return count_.load(std::memory_order_relaxed) == 0; }

  // Keeps the block; the oldest ones may have to go for it. False: it is too large, or `allowed()`
  // says no, and it is not kept. `send(const FreedBlock&)` enqueues a free. Both are called under
  // the lock, so that no other thread's call overtakes them.
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

  // Of the blocks that fit, the address of the one freed last; 0: none fits.
  uint64_t take(const FreedBlock& wanted);

  // Sends those of the stream that have at least so many bytes.
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
