// SPDX-License-Identifier: Apache-2.0
// The session's shared virtual memory. The client names it by address, so every address is looked
// up before the driver sees it. Executor thread.
#pragma once

#include <cstdint>
#include <map>

#include "api/opencl_abi.gen.h"

namespace tendril::worker::opencl {

class SharedMemories {
 public:
  struct Allocation {
    cl_context context;
    void* base;  // as the driver gave it
    uint64_t bytes;
  };
  // How many there may be; each costs memory here.
  static constexpr size_t kMost = 65'536;

  bool full() const { return all_.size() >= kMost; }
  void add(uint64_t address, const Allocation& allocation) { all_[address] = allocation; }
  // Whether all of these bytes are one allocation's.
  bool has(uint64_t address, uint64_t bytes) const {
    auto after = all_.upper_bound(address);
    if (after == all_.begin()) return false;
    --after;
    const uint64_t offset = address - after->first;
    return offset < after->second.bytes && bytes <= after->second.bytes - offset;
  }
  // Null: no allocation begins there.
  const Allocation* at(uint64_t address) const {
    const auto found = all_.find(address);
    return found != all_.end() ? &found->second : nullptr;
  }
  void remove(uint64_t address) { all_.erase(address); }

 private:
  std::map<uint64_t, Allocation> all_;  // by the address that the client has
};

}  // namespace tendril::worker::opencl
