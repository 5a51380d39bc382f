// SPDX-License-Identifier: Apache-2.0
// What a session is charged for physical memory. Memory goes back to the driver when no handle of
// the client, no mapping and no descriptor needs it. Only then does the slice stop paying. Memory
// of other sessions is tracked too, but its owner pays for it. Executor thread only.
#pragma once

#include <cstdint>
#include <map>
#include <unordered_map>

#include "worker/cuda/executor/executor.h"

namespace tendril::worker::cuda {

class VirtualMemory {
 public:
  // `handle` is the driver's.
  void created(uint64_t handle, uint32_t slot, uint64_t bytes) {
    physical_[handle] = {slot, bytes, 1, true};
  }
  // Imported. It may be the second time, and it may be this session's own memory.
  void imported(uint64_t handle, uint32_t slot, uint64_t bytes) {
    const auto [it, fresh] = physical_.try_emplace(handle, Physical{slot, bytes, 1, false});
    if (!fresh) ++it->second.handles;
  }
  void retained(uint64_t handle) {
    auto it = physical_.find(handle);
    if (it != physical_.end()) ++it->second.handles;
  }
  // The client releases a handle. While there are descriptors, the driver's last handle is kept, so
  // that its number is not reused.
  CUresult release(Executor& executor, uint64_t handle);
  void exported(uint64_t handle) {
    auto it = physical_.find(handle);
    if (it != physical_.end()) ++it->second.descriptors;
  }
  void descriptor_closed(Executor& executor, uint64_t handle);
  void mapped(uint64_t address, uint64_t bytes, uint64_t handle) {
    mappings_[address] = {bytes, handle};
    auto it = physical_.find(handle);
    if (it != physical_.end()) ++it->second.mappings;
  }
  void unmapped(Executor& executor, uint64_t address, uint64_t bytes) {
    for (auto it = mappings_.lower_bound(address);
         it != mappings_.end() && it->first - address < bytes;) {
      const uint64_t handle = it->second.handle;
      it = mappings_.erase(it);
      auto physical = physical_.find(handle);
      if (physical != physical_.end() && physical->second.mappings != 0)
        --physical->second.mappings;
      drop_if_unused(executor, handle);
    }
  }
  void describe(uint64_t handle, uint32_t* slot, uint64_t* bytes) const {
    auto it = physical_.find(handle);
    if (it == physical_.end()) return;
    *slot = it->second.slot;
    *bytes = it->second.bytes;
  }

 private:
  struct Physical {
    uint32_t slot;
    uint64_t bytes;
    uint32_t handles;
    bool ours;  // charged here
    uint32_t mappings = 0, descriptors = 0;
    bool kept = false;  // a handle that the client has released
  };
  struct Mapping {
    uint64_t bytes, handle;
  };
  void drop_if_unused(Executor& executor, uint64_t handle);

  std::unordered_map<uint64_t, Physical> physical_;
  std::map<uint64_t, Mapping> mappings_;
};

}  // namespace tendril::worker::cuda
