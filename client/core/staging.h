// SPDX-License-Identifier: Apache-2.0
// Our own pinned memory, for copies with the program's pageable memory when the server is on this
// host. The worker has the same pages, so such a copy is one by the processor and one by the GPU.
// Called by copies, on any thread; the lock is never held across a wait. A block that the GPU still
// reads becomes free once somebody has waited for its queue or context; no copy waits for that.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/lock.h"
#include "client/core/record.h"

namespace tendril::client::core {

class Session;

class Staging {
 public:
  struct Block {
    uint8_t* data = nullptr;
    uint32_t first = 0, units = 0;
  };
  // Where the copy runs, and how far waits have shown its work to be complete: counts of
  // Session::serial.
  struct Queue {
    const void* owner = nullptr;                        // its context, as share_pages takes it
    const std::atomic<uint64_t>* owner_done = nullptr;  // all work of the context
    const std::atomic<uint64_t>* queue_done = nullptr;  // the work of the queue
    const Record* record = nullptr;  // of a queue that can be destroyed; else null
  };
  // Larger copies go beside the lane, where several threads carry them.
  static constexpr uint64_t kCopyMost = 2u << 20;
  // A large block goes in pieces of this size, so that the GPU takes one while the next is filled:
  // 1 MB takes 80 us in such pieces, 99 us in pieces of 64 KB, 91 us in one (H200,
  // tendril_driver_bench).
  static constexpr uint64_t kPiece = 256u << 10;

  // Null data: there is no room now, and the copy goes another way. `owner` pins the pages if they
  // have yet to be made.
  Block take(Session* session, void* owner, uint64_t bytes);
  // Copies `bytes` bytes to staged memory, where the GPU reads them next.
  static void fill(uint8_t* to, const void* from, uint64_t bytes);
  void give_back(const Block& block);
  // The same, when everything that `queue` has been given so far is over.
  void give_back_after(Session* session, const Block& block, const Queue& queue);
  // `owner` has ended, and with it what it was reading. Its pages go too if it pinned them.
  void context_ended(Session* session, const void* owner);

 private:
  static constexpr uint64_t kUnit = 4096, kUnits = 1024;
  static constexpr uint64_t kStreamFrom = 64u << 10;
  static constexpr unsigned kReadMost = 64;
  // Making the memory costs a round trip and a millisecond: too much for a few copies.
  static constexpr uint32_t kCopiesBefore = 4;
  struct Read {
    Block block;
    Queue queue;
    uint64_t record_id, serial;
  };

  void make(Session* session, void* owner);
  Block take_locked(uint32_t units);
  bool find(uint32_t units, uint32_t* first) const;
  bool holds(const Block& block) const;
  void mark(const Block& block, bool taken);
  static bool is_over(const Read& read);
  template <typename Over>
  void drop_reads(Over&& over);

  base::Lock lock_;
  std::atomic<uint32_t> copies_{0};
  bool refused_ = false, making_ = false;
  uint8_t* base_ = nullptr;
  const void* home_ = nullptr;  // the owner that pinned the pages
  bool taken_[kUnits] = {};
  uint32_t held_ = 0;        // blocks that threads are using
  unsigned read_count_ = 0;  // and those that the GPU reads, oldest first
  Read reads_[kReadMost];
};

}  // namespace tendril::client::core
