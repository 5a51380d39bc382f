// SPDX-License-Identifier: Apache-2.0
// Pinned memory of ours for copies with the program's pageable memory, when the server is on this
// host: pages that the worker has too, so that one copy by the processor and one by the GPU are all
// there is. Called by copies, on any thread; its lock is never held across a wait. A block that the
// GPU still reads is free again once somebody has waited for its stream or context: nobody is asked
// for that.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstdint>

namespace tendril::client::cuda {

struct Context;
struct Stream;
class Session;

class Staging {
 public:
  struct Block {
    uint8_t* data = nullptr;
    uint32_t first = 0, units = 0;
  };
  // Larger copies go beside the lane, where several threads carry them.
  static constexpr uint64_t kCopyMost = 2u << 20;
  // A large block goes in pieces of this size, so that the GPU takes one while the next is filled:
  // 1 MB in 80 us where filling it all first takes 91, and in pieces of 64 KB 99 (H200,
  // tendril_driver_bench).
  static constexpr uint64_t kPiece = 256u << 10;

  // Null data: there is none now, and the copy goes another way.
  Block take(Context* c, uint64_t bytes);
  // Copies `bytes` bytes to staged memory, where the GPU reads them next.
  static void fill(uint8_t* to, const void* from, uint64_t bytes);
  void give_back(const Block& block);
  // The same when all that `stream` (null: the legacy one of `c`) has been given so far is over.
  void give_back_after(const Block& block, Context* c, Stream* stream);
  // After the end of a context: what it was reading, and the memory itself when that context had
  // pinned it.
  void context_ended(Context* c);

 private:
  static constexpr uint64_t kUnit = 4096, kUnits = 1024;
  static constexpr uint64_t kStreamFrom = 64u << 10;
  static constexpr unsigned kReadMost = 64;
  // Making the memory costs a round trip and a millisecond, which a few copies are not worth.
  static constexpr uint32_t kCopiesBefore = 4;
  struct Read {
    Block block;
    Context* context;
    Stream* stream;
    uint64_t stream_id, serial;
  };

  void make(Context* c);
  bool find(uint32_t units, uint32_t* first) const;
  bool holds(const Block& block) const;
  void mark(const Block& block, bool taken);
  static bool is_over(const Read& read);
  template <typename Over>
  void drop_reads(Over&& over);

  pthread_mutex_t mutex_ = PTHREAD_MUTEX_INITIALIZER;
  std::atomic<uint32_t> copies_{0};
  bool refused_ = false, making_ = false;
  uint8_t* base_ = nullptr;
  Context* home_ = nullptr;  // which has pinned it
  bool taken_[kUnits] = {};
  uint32_t held_ = 0;        // blocks that threads are using
  unsigned read_count_ = 0;  // and those that the GPU reads, oldest first
  Read reads_[kReadMost];
};

}  // namespace tendril::client::cuda
