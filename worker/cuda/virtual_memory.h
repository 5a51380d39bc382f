// SPDX-License-Identifier: Apache-2.0
// What a session's physical memory is charged for. Memory goes back when neither the client's handle nor a mapping needs it any more,
// and only then does the slice stop paying. Executor thread only.
#pragma once

#include <cstdint>
#include <map>
#include <unordered_map>

#include "worker/cuda/charge.h"

namespace tendril::worker::cuda {

class VirtualMemory {
 public:
  // `handle` is the driver's.
  void created(uint64_t handle, uint32_t slot, uint64_t bytes) { physical_[handle] = {slot, bytes, 1, 0}; }
  void retained(uint64_t handle) {
    auto it = physical_.find(handle);
    if (it != physical_.end()) ++it->second.handles;
  }
  void released(Charge& charge, uint64_t handle) {
    auto it = physical_.find(handle);
    if (it != physical_.end() && it->second.handles != 0) --it->second.handles;
    drop_if_unused(charge, handle);
  }
  void mapped(uint64_t address, uint64_t bytes, uint64_t handle) {
    mappings_[address] = {bytes, handle};
    auto it = physical_.find(handle);
    if (it != physical_.end()) ++it->second.mappings;
  }
  void unmapped(Charge& charge, uint64_t address, uint64_t bytes) {
    for (auto it = mappings_.lower_bound(address); it != mappings_.end() && it->first - address < bytes;) {
      const uint64_t handle = it->second.handle;
      it = mappings_.erase(it);
      auto physical = physical_.find(handle);
      if (physical != physical_.end() && physical->second.mappings != 0) --physical->second.mappings;
      drop_if_unused(charge, handle);
    }
  }

 private:
  struct Physical {
    uint32_t slot;
    uint64_t bytes;
    uint32_t handles, mappings;
  };
  struct Mapping {
    uint64_t bytes, handle;
  };
  void drop_if_unused(Charge& charge, uint64_t handle) {
    auto it = physical_.find(handle);
    if (it == physical_.end() || it->second.handles != 0 || it->second.mappings != 0) return;
    charge.give_back(it->second.slot, it->second.bytes);
    physical_.erase(it);
  }
  std::unordered_map<uint64_t, Physical> physical_;
  std::map<uint64_t, Mapping> mappings_;
};

}  // namespace tendril::worker::cuda
