// SPDX-License-Identifier: Apache-2.0
// The client's map of every address range that CUDA gave out: device memory of any server, pinned, registered and managed host memory,
// reserved virtual addresses. It answers pointer queries without the network and tells a copy where its ends live. Readers share.
#pragma once

#include <pthread.h>

#include <cstdint>
#include <map>

namespace tendril::client::cuda {

struct Context;
class Session;

enum class RangeKind : uint8_t {
  kDevice,      // cuMemAlloc and friends, module globals
  kPool,        // stream-ordered allocation
  kMapped,      // virtual memory with physical memory behind it
  kReserved,    // virtual memory without
  kPinned,      // cuMemHostAlloc
  kRegistered,  // cuMemHostRegister
  kManaged,
};

struct Range {
  uint64_t base = 0;
  uint64_t bytes = 0;
  RangeKind kind = RangeKind::kDevice;
  Context* context = nullptr;
  Session* session = nullptr;
  unsigned flags = 0;         // as given at allocation
  uint64_t buffer_id = 0;     // unique in this process
  uint64_t pool = 0;          // handle of its pool, for kPool
  bool mirrored = false;      // host memory that GPUs read at the same address (client/cuda/mirror.cc)
  bool held = false;          // the client holds the addresses with an inaccessible mapping

  bool host() const { return kind == RangeKind::kPinned || kind == RangeKind::kRegistered || kind == RangeKind::kManaged; }
  bool device() const { return !host() && kind != RangeKind::kReserved; }
};

class RangeMap {
 public:
  // False when it would overlap an existing range.
  bool insert(const Range& range);
  // Copies the range that contains `address` to *out.
  bool find(uint64_t address, Range* out) const;
  // Removes the range that starts at `base`; false if none does. *out gets it.
  bool remove(uint64_t base, Range* out);
  // Sets `mirrored` of the range that starts at base.
  void mark_mirrored(uint64_t base);
  void remove_context(Context* context);
  template <typename Visit>
  void for_each(Visit&& visit) const {
    pthread_rwlock_rdlock(&lock_);
    for (const auto& entry : ranges_) visit(entry.second);
    pthread_rwlock_unlock(&lock_);
  }

 private:
  mutable pthread_rwlock_t lock_ = PTHREAD_RWLOCK_INITIALIZER;
  std::map<uint64_t, Range> ranges_;
};

}  // namespace tendril::client::cuda
