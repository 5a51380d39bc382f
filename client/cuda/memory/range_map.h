// SPDX-License-Identifier: Apache-2.0
// The client's map of every address range that CUDA gave out: device memory of any server, pinned,
// registered and managed host memory, reserved virtual addresses. It answers pointer queries
// without the network, and tells a copy where its ends are. Readers share the lock.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "client/core/shared_lock.h"

namespace tendril::client::cuda {

struct Context;
class Session;

enum class RangeKind : uint8_t {
  kDevice,    // cuMemAlloc and friends, module globals
  kPool,      // stream-ordered allocation
  kGraph,     // of an allocation node; a launch of its graph allocates it, also after it was freed
  kMapped,    // virtual memory with physical memory behind it
  kReserved,  // virtual memory without
  kPinned,    // cuMemHostAlloc
  kRegistered,  // cuMemHostRegister
  kManaged,
  kImported,  // memory of another process, open here (client/cuda/memory/ipc.cc)
};

struct Range {
  uint64_t base = 0;
  uint64_t bytes = 0;
  RangeKind kind = RangeKind::kDevice;
  Context* context = nullptr;
  Session* session = nullptr;
  unsigned flags = 0;       // as given at allocation
  uint64_t buffer_id = 0;   // unique in this process
  uint64_t pool = 0;        // handle of its pool, for kPool
  uint64_t allocation = 0;  // handle of the physical memory, for kMapped
  // For kDevice of a heap (device_heap.h): what belongs to it there, and whether that is part of a
  // page. 0: of no heap.
  uint64_t capacity = 0;
  bool part = false;
  uint64_t sessions = 0;  // for kReserved: a bit for each session where the addresses are reserved
  // Host memory that GPUs read at the same address (client/cuda/memory/mirror.cc): of a session at
  // least, and a bit for each.
  bool mirrored = false;
  uint64_t mirrors = 0;
  bool shared =
      false;  // host memory whose very pages the worker of `session` has at the same address
  bool variable = false;  // managed memory that is a variable of loaded code
  bool held = false;      // the client holds the addresses with an inaccessible mapping

  // May so many bytes from `address`, which is in the range, be used? Neighbours may continue a
  // mapping.
  bool reaches(uint64_t address, uint64_t count) const {
    if (kind == RangeKind::kReserved) return false;  // nothing is mapped there
    return kind == RangeKind::kMapped || count <= bytes - (address - base);
  }
  bool host() const {
    return kind == RangeKind::kPinned || kind == RangeKind::kRegistered ||
           kind == RangeKind::kManaged;
  }
  bool mirrored_in(uint32_t session) const { return (mirrors >> (session & 63) & 1) != 0; }
  void mirror_in(uint32_t session) {
    mirrored = true;
    mirrors |= uint64_t{1} << (session & 63);
  }
  // True: the GPUs of `to` reach this host memory directly.
  bool shared_with(const Session* to) const { return shared && session == to; }
  bool device() const { return !host() && kind != RangeKind::kReserved; }
};

// Reservations (kReserved) are kept apart from the ranges in them. Each cuMemMap makes its own
// range (kMapped). An address that is in no range may still be in a reservation.
class RangeMap {
 public:
  // False: it would overlap an existing range. A kMapped range may lie in a reservation; everything
  // else must not.
  bool insert(const Range& range);
  // Addresses that a heap cuts up: only parts of it may lie there. False: something else does.
  bool insert_page(uint64_t base, uint64_t bytes);
  void remove_page(uint64_t base);
  // Copies the range that contains `address` to *out, or else the reservation that does.
  bool find(uint64_t address, Range* out) const;
  // Removes the range that starts at `base`; false if none does. *out gets it. Never a reservation.
  bool remove(uint64_t base, Range* out);
  // Inserts memory of a graph. Addresses that a graph of the same session had before are this
  // range's now; false when something else is there.
  bool insert_graph(const Range& range);
  // Forgets ranges of graphs. A server gives out addresses of graphs again once nothing needs them
  // there, and what the map knows of them is stale.
  void remove_graph(const Session* session, uint64_t base, uint64_t bytes);
  // The reservation that contains [base, base + bytes).
  bool find_reserved(uint64_t base, uint64_t bytes, Range* out) const;
  // Removes the reservation that starts at `base`; false if there is none or something is mapped in
  // it.
  bool remove_reserved(uint64_t base);
  // Notes that `session` has reserved the addresses too.
  void reserved_in(uint64_t base, uint32_t session);
  // The mappings that make up [base, base + bytes) exactly; false if they do not.
  bool mapped(uint64_t base, uint64_t bytes, std::vector<Range>* out) const;
  // Addresses that are in no range and no reservation.
  bool unknown(uint64_t base, uint64_t bytes) const;
  // Addresses of a reservation where nothing is mapped.
  bool vacant(uint64_t base, uint64_t bytes) const;
  // `session` has a mirror of the range that starts at base.
  void mark_mirrored(uint64_t base, uint32_t session);
  // Removes what ends with a context. Mappings stay: they belong to no context, and are reached
  // through the device's primary one.
  void remove_context(Context* context, Context* primary);
  template <typename Visit>
  void for_each(Visit&& visit) const {
    const core::Reading held(lock_);
    for (const auto& entry : ranges_) visit(entry.second);
  }

 private:
  void erase_graph(const Session* session, uint64_t base, uint64_t bytes);
  mutable core::SharedLock lock_;
  std::map<uint64_t, Range> ranges_;
  std::map<uint64_t, Range> reserved_;
  std::map<uint64_t, Range> pages_;  // of heaps
};

}  // namespace tendril::client::cuda
