// SPDX-License-Identifier: Apache-2.0
// Copies of the client's host memory at the client's addresses, registered with the GPU, so that
// kernels reach them by the same pointer. Addresses must lie in the part of the address space that
// is set aside for this, so a hostile client cannot map over the worker. The executor owns the
// copies. While it waits in the driver, host functions keep them in step (push and fetch).
// Exception: pageable memory, such as a stack or a heap, that only copies in graphs name. The
// worker has its own stack and heap at such addresses, so the copy lies elsewhere and the driver is
// given that place.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#include "worker/cuda/executor/executor.h"

namespace tendril::worker::cuda {

class Mirrors {
 public:
  explicit Mirrors(transport::HostWindow window) : window_(std::move(window)) {}
  struct Mirror {
    uint64_t base = 0, bytes = 0;           // as the client named it
    uint64_t mapped = 0, mapped_bytes = 0;  // whole pages
    uint8_t* memory = nullptr;              // the copy of base
    uint8_t* shadow = nullptr;              // none: the client's own pages
    bool written = false;                   // GPUs may write it
    bool pageable = false;
    bool in_graph = false;  // nodes of graphs name it
    bool drivers = false;   // managed memory of the driver's: a variable of loaded code
  };
  // For a range that has a copy already, `written` is all that may be new.
  CUresult create(gpu::Driver* driver, uint64_t base, uint64_t bytes, bool written);
  // Takes in the pageable ranges that lie within the new one; to overlap another one is an error.
  CUresult create_pageable(uint64_t base, uint64_t bytes, bool written);
  // Is the client on this host, so that its managed memory is ours as well?
  bool shares() const { return window_.valid(); }
  // Pages of the client's window: whole ones, which both sides see. From here on like a mirror, but
  // for the keeping in step.
  CUresult share(gpu::Driver* driver, uint64_t base, uint64_t bytes);
  // A managed variable, which the driver has placed: the mirror is the variable itself.
  CUresult adopt(uint64_t base, uint64_t bytes);
  // Code has been unloaded, or a context is gone: variables that are no more are no mirrors any
  // more.
  void drop_lost(gpu::Driver* driver);
  // A mirror that graphs name stays mapped, as their nodes keep its address, until another one
  // takes its place.
  void destroy(gpu::Driver* driver, uint64_t base);
  void destroy_all(gpu::Driver* driver);
  // Maps nothing there, so that the driver does not give these addresses out; a mirror may come
  // there all the same. False: something is there already.
  bool occupy(uint64_t first, uint64_t bytes);
  Mirror* find(uint64_t address);
  // The client wrote these bytes; the GPU's own words beside them stay. Any thread.
  CUresult push(uint64_t address, const wire::Bytes& data);
  // What GPUs have written since the last look, as far as one reply holds it: pairs of address and
  // length, and the bytes. Any thread.
  struct Written {
    std::vector<uint64_t> offsets;
    std::vector<uint8_t> data;
    bool more = false;
    uint64_t both = 0;  // where the program had written, too, or 0
  };
  void fetch(Written* written);
  // Would fetch find anything? Away from the executor a variable of loaded code may be going away,
  // and counts as written. Any thread.
  bool any_written(bool on_executor);
  // Calls that make or end mirrors have been seen and not run: what follows them speaks of mirrors
  // that are not there yet.
  void change_is_coming() { changes_coming_.fetch_add(1); }
  bool changes_are_coming() const { return changes_coming_.load() != 0; }
  // The next of them begins. What it ends is out of the table before the driver is called, so
  // pushes and fetches need not wait for that.
  void change_begins() {
    if (changes_coming_.load() != 0) changes_coming_.fetch_sub(1);
  }
  // All of [address, address + bytes) is in one mirror, which a graph is going to name.
  bool name_in_graph(uint64_t address, uint64_t bytes);
  // Where the copy of a client's address lies; the address itself when it is none of pageable
  // memory.
  uint64_t place_of(uint64_t address) const;
  // The client's address of a place that place_of gave.
  uint64_t address_of(uint64_t place) const;

 private:
  transport::HostWindow window_;
  static constexpr uint64_t kPage = 4096;
  // The client's address space in parts of this size: pageable memory of one part keeps its
  // distances here, so that ranges may grow together.
  static constexpr uint64_t kPart = uint64_t{1} << 40;
  static constexpr size_t kPartsMax = 16;
  uint8_t* part_of(uint64_t base, uint64_t bytes);
  using Places = std::map<uint64_t, uint64_t>;  // first byte, bytes
  static void unmap(Places* places, uint64_t first, uint64_t end);
  void make_way(uint64_t first, uint64_t end) {
    unmap(&left_, first, end);
    unmap(&occupied_, first, end);
  }

  void put(uint64_t base, const Mirror& mirror) {
    std::lock_guard<std::mutex> hold(mutex_);
    all_[base] = mirror;
  }
  template <typename Changed>
  bool scan(Changed&& changed);

  // What push and fetch look at on other threads: `all_` and the shadows change under it, and only
  // on the executor. Never held in a call of the driver, which may wait for a host function that
  // pushes or fetches.
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

// What one end of a copy spans from its address on; as much as no mirror has when the client's
// numbers do not fit 64 bits.
uint64_t bytes_spanned(size_t x, size_t y, size_t z, size_t pitch, size_t height,
                       const CUDA_MEMCPY3D& copy);

// Does the driver know the address as managed memory?
bool is_managed(gpu::Driver* driver, uint64_t address);

// The driver takes any host address where it is not told the kind of memory: such addresses of the
// client's are asked about first. True: this is memory of the worker itself, which no client may
// read or write. Costs a call of the driver.
bool is_workers_own(Executor& executor, CUdeviceptr address, uint64_t bytes);

}  // namespace tendril::worker::cuda
