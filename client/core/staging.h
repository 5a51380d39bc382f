// SPDX-License-Identifier: Apache-2.0
// The library's own pinned memory. It serves copies with the program's pageable memory if the
// server is on this host. The worker has the same pages. So such a copy is one copy by the
// processor and one by the GPU. Copies call this, on any thread. The lock is never held across a
// wait. A block that the GPU still reads becomes free when somebody has waited for its queue or
// context. No copy waits for that.
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
  // Where the copy runs, and up to which Session::serial waits have shown its work to be complete.
  struct Queue {
    const void* owner = nullptr;                        // its context, as share_pages takes it
    const std::atomic<uint64_t>* owner_done = nullptr;  // all work of the context
    const std::atomic<uint64_t>* queue_done = nullptr;  // the work of the queue
    const Record* record = nullptr;  // the queue's, if it can be destroyed; otherwise null
  };
  // Larger copies go beside the lane, where several threads carry them.
  static constexpr uint64_t kCopyMost = 2u << 20;
  // A large block goes in pieces of this size, so that the GPU copies one while the next is filled.
  // 1 MB takes 80 us in such pieces, 99 us in pieces of 64 KB, and 91 us in one piece (H200,
  // tendril_driver_bench).
  static constexpr uint64_t kPiece = 256u << 10;

  // Null data: there is no room now, and the copy must go another way. `owner` pins the pages if
  // they do not exist yet.
  Block take(Session* session, void* owner, uint64_t bytes);
  // Copies `bytes` bytes to staged memory, where the GPU reads them next.
  static void fill(uint8_t* to, const void* from, uint64_t bytes);
  void give_back(const Block& block);
  // The same, when everything that `queue` has so far is done.
  void give_back_after(Session* session, const Block& block, const Queue& queue);
  // `owner` has ended, and so have its reads. If it pinned the pages, they go too.
  void context_ended(Session* session, const void* owner);

 private:
  static constexpr uint64_t kUnit = 4096, kUnits = 1024;
  static constexpr uint64_t kStreamFrom = 64u << 10;
  static constexpr unsigned kReadMost = 64;
  // Making the memory costs a round trip and a millisecond. That is too much for a few copies.
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
