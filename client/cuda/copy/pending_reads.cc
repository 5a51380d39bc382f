// SPDX-License-Identifier: Apache-2.0
// See pending_reads.h.
#include "client/cuda/copy/pending_reads.h"

#include <algorithm>

#include "client/cuda/state.h"

namespace tendril::client::cuda {
namespace {

bool overlaps(const PendingReads::Read& read, uint64_t host, uint64_t bytes) {
  return read.host < host + bytes && host < read.host + read.bytes;
}

}  // namespace

void PendingReads::add(const Read& read) {
  const base::Locked held(lock_);
  reads_.push_back(read);
  count_.store(static_cast<uint32_t>(reads_.size()), std::memory_order_release);
}

bool PendingReads::pending(uint64_t host, uint64_t bytes) {
  if (count_.load(std::memory_order_acquire) == 0) return false;
  const base::Locked held(lock_);
  return std::any_of(reads_.begin(), reads_.end(),
                     [&](const Read& read) { return overlaps(read, host, bytes); });
}

template <typename Over>
void PendingReads::drop(Over&& over) {
  if (count_.load(std::memory_order_acquire) == 0) return;
  const base::Locked held(lock_);
  reads_.erase(std::remove_if(reads_.begin(), reads_.end(), over), reads_.end());
  count_.store(static_cast<uint32_t>(reads_.size()), std::memory_order_release);
}

void PendingReads::forget_stream(const Stream* stream) {
  drop([stream](const Read& read) { return read.stream == stream; });
}

void PendingReads::forget_context(const Context* context) {
  drop([context](const Read& read) { return read.context == context; });
}

void PendingReads::forget_memory(uint64_t host, uint64_t bytes) {
  drop([&](const Read& read) { return overlaps(read, host, bytes); });
}

// Removes only the first, because the copies of one stream arrive in order. If two streams copy
// into the same memory, the program must not rely on their order.
void PendingReads::arrived(const Session* session, uint64_t host, uint64_t bytes) {
  bool found = false;
  drop([&](const Read& read) {
    if (found || !read.comes || read.host != host || read.bytes != bytes) return false;
    found = read.context->session == session;
    return found;
  });
}

}  // namespace tendril::client::cuda
