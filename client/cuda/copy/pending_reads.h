// SPDX-License-Identifier: Apache-2.0
// Asynchronous copies into pinned memory that no wait has covered yet, and whose data has not
// arrived. Code that reads such memory for the program asks here first. Any thread. While there are
// no such copies, every question costs one load.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "base/lock.h"

namespace tendril::client::cuda {

struct Context;
struct Stream;
class Session;

class PendingReads {
 public:
  struct Read {
    Stream* stream;  // null: the legacy stream
    Context* context;
    uint64_t host, bytes;
    bool comes = false;  // by itself, over the lane
  };

  void add(const Read& read);
  // Does a pending copy write to this memory?
  bool pending(uint64_t host, uint64_t bytes);
  // A wait has covered everything in `stream`, in `context`, or everything that writes to that
  // memory.
  void forget_stream(const Stream* stream);
  void forget_context(const Context* context);
  void forget_memory(uint64_t host, uint64_t bytes);
  // The data of a copy that comes unasked has arrived.
  void arrived(const Session* session, uint64_t host, uint64_t bytes);

 private:
  template <typename Over>
  void drop(Over&& over);

  std::atomic<uint32_t> count_{0};  // of reads_, to be read without the lock
  base::Lock lock_;
  std::vector<Read> reads_;
};

}  // namespace tendril::client::cuda
