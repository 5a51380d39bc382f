// SPDX-License-Identifier: Apache-2.0
// Mirrors: copies of the client's host memory at the client's addresses. They are registered with
// the GPU, so that kernels reach them by the same pointer. Addresses must lie in a part of the
// address space that is reserved for this, so a hostile client cannot map over the worker.
// Exception: the mirror of pageable memory, such as a stack or a heap, lies elsewhere, because the
// worker has its own stack and heap at such addresses. The driver gets the mirror's place. Only
// copies in graphs name such memory. The executor owns the mirrors. While it waits in the driver,
// host functions keep them in step (push and fetch).
#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#include "worker/core/client_room.h"
#include "worker/core/pinned_charge.h"
#include "worker/cuda/executor/executor.h"

namespace tendril::worker::cuda {

class Mirrors {
 public:
  // `host`: what the session may take of the machine's memory. `charge`: of its GPUs'.
  Mirrors(transport::HostWindow window, HostUse* host, Charge* charge, uint32_t slots)
      : window_(std::move(window)), host_(*host), pinned_(charge, slots) {
    const ClientRoom room = room_for_clients();
    if (room.end > room.begin) occupied_[room.begin] = room.end - room.begin;
  }
  struct Mirror {
    uint64_t base = 0, bytes = 0;           // as the client named it
    uint64_t mapped = 0, mapped_bytes = 0;  // whole pages
    uint8_t* memory = nullptr;              // the copy of base
    uint8_t* shadow = nullptr;              // null: the pages are the client's own
    bool written = false;                   // GPUs may write it
    bool pageable = false;
    bool in_graph = false;  // nodes of graphs name it
    bool drivers = false;   // the driver's managed memory: a variable of loaded code
  };
  // If the range has a mirror already, only `written` may differ.
  CUresult create(gpu::Driver* driver, uint64_t base, uint64_t bytes, bool written);
  // Pageable ranges inside the new one become part of it. Overlapping any other range is an error.
  CUresult create_pageable(uint64_t base, uint64_t bytes, bool written);
  // Is the client on this host? Then both processes share its managed memory.
  bool shares() const { return window_.valid(); }
  // Takes whole pages of the client's window, which both sides see. They are treated like a mirror
  // that needs no keeping in step.
  CUresult share(gpu::Driver* driver, uint64_t base, uint64_t bytes);
  // Takes a managed variable, which the driver has placed. The variable is its own mirror.
  CUresult adopt(uint64_t base, uint64_t bytes);
  // Code was unloaded, or a context is gone. Drops the mirrors of variables that no longer exist.
  void drop_lost(gpu::Driver* driver);
  // Exception: a mirror that graphs name stays mapped until another one takes its place, because
  // their nodes keep its address.
  void destroy(gpu::Driver* driver, uint64_t base);
  void destroy_all(gpu::Driver* driver);
  // Reserves these addresses, so that the driver does not give them out. A mirror may still be made
  // there. False: something else is there already.
  bool occupy(uint64_t first, uint64_t bytes);
  // Is it an address that is reserved so, or as room for clients?
  bool occupies(uint64_t address) const;
  // Gives such addresses back: the driver shall have them.
  void vacate(uint64_t first, uint64_t end);
  Mirror* find(uint64_t address);
  // The client wrote these bytes. Words beside them that the GPU wrote stay. Any thread.
  CUresult push(uint64_t address, const wire::Bytes& data);
  // What GPUs have written since the last fetch: pairs of address and length, and the bytes. At
  // most as much as one reply holds. Any thread.
  struct Written {
    std::vector<uint64_t> offsets;
    std::vector<uint8_t> data;
    bool more = false;
    uint64_t both = 0;  // an address where the program has written too, or 0
  };
  void fetch(Written* written);
  // Would fetch find anything? On other threads than the executor's, a variable of loaded code
  // counts as written, because it may be going away. Any thread.
  bool any_written(bool on_executor);
  // A call that makes or ends mirrors has arrived, but has not run. Messages behind it may name
  // mirrors that do not exist yet.
  void change_is_coming() { changes_coming_.fetch_add(1); }
  bool changes_are_coming() const { return changes_coming_.load() != 0; }
  // The next such call begins. It takes what it ends out of the table before it calls the driver.
  // So pushes and fetches need not wait for the driver.
  void change_begins() {
    if (changes_coming_.load() != 0) changes_coming_.fetch_sub(1);
  }
  // True: all of [address, address + bytes) is in one mirror. Marks it as named by a graph.
  bool name_in_graph(uint64_t address, uint64_t bytes);
  // The place of a client's address here. It differs from the address only in mirrors of pageable
  // memory.
  uint64_t place_of(uint64_t address) const;
  // The reverse of place_of.
  uint64_t address_of(uint64_t place) const;

 private:
  transport::HostWindow window_;
  HostUse& host_;
  PinnedCharge pinned_;
  static constexpr uint64_t kPage = 4096;
  // The client's address space is divided into parts of this size. Pageable memory of one part
  // keeps its distances here, so that ranges may grow together.
  static constexpr uint64_t kPart = uint64_t{1} << 40;
  static constexpr size_t kPartsMax = 16;
  uint8_t* part_of(uint64_t base, uint64_t bytes);
  using Places = std::map<uint64_t, uint64_t>;  // first byte, bytes
  static void unmap(uint64_t first, uint64_t end);
  // Takes the parts of `places` that lie within [first, end) out of it, and gives them to `part`.
  template <typename Part>
  static void take_out(Places* places, uint64_t first, uint64_t end, Part&& part);
  // The client has nothing here any more. In the room for clients the addresses stay reserved. The
  // system would give a gap to the next one who asks for memory, and the client would miss it.
  void leave(uint64_t first, uint64_t end);
  void make_way(uint64_t first, uint64_t end);

  // Memory for so many copies of a mirror: its own and the shadow. False: the session has its part.
  bool take(uint64_t bytes, unsigned copies);
  void give_back(uint64_t bytes, unsigned copies);
  void unpin_shared(uint64_t bytes);

  void put(uint64_t base, const Mirror& mirror) {
    std::lock_guard<std::mutex> hold(mutex_);
    all_[base] = mirror;
  }
  template <typename Changed>
  bool scan(Changed&& changed);

  // Guards `all_` and the shadows, which push and fetch use on other threads. Only the executor
  // changes them. The lock is never held in a driver call, because that call may wait for a host
  // function that pushes or fetches.
  std::mutex mutex_;
  std::atomic<uint32_t> changes_coming_{0};
  uint64_t resume_ = 0;
  uint64_t both_ = 0;  // for the next fetch
  std::map<uint64_t, Mirror> all_;
  std::map<uint64_t, uint8_t*>
      parts_;    // by number; reserved addresses, memory where there are mirrors
  Places left_;  // pages of destroyed mirrors that graphs named
  Places occupied_;
  uint64_t total_ = 0;
};

// The bytes that one end of a copy spans from its address on. If the client's numbers do not fit 64
// bits, the result is more than any mirror has.
uint64_t bytes_spanned(size_t x, size_t y, size_t z, size_t pitch, size_t height,
                       const CUDA_MEMCPY3D& copy);

// Does the driver know the address as managed memory?
bool is_managed(gpu::Driver* driver, uint64_t address);

// True: this is the worker's own memory, which no client may read or write. Check an address with
// it when the driver does not get the kind of memory, because the driver then takes any host
// address. Costs a call of the driver.
bool is_workers_own(Executor& executor, CUdeviceptr address, uint64_t bytes);

}  // namespace tendril::worker::cuda
