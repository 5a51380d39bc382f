// SPDX-License-Identifier: Apache-2.0
// Device memory that the worker has made by the driver's virtual-memory calls: pages and large
// blocks that the client's heap asked for, and memory of other sessions that is open here. It knows
// of each block its address, its physical memory and the GPUs that reach it. So memory can leave a
// block and come back at the same address (docs/decisions/0027). The handlers of memory.cc and
// ipc.cc call this; the charge is theirs. Executor thread.
//
// A device without these calls has no blocks: its allocations are cuMemAlloc's.
#pragma once

#include <cstdint>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/fd.h"
#include "base/holes.h"
#include "worker/cuda/executor/executor.h"

namespace tendril::worker::cuda {

// Waits for all that the program has given the GPUs, as cuMemFree does. Unmapping does not (seen on
// an H100). While anything is captured a wait is not allowed; then a free is asked to wait, which
// is. Returns the error of the call's own context.
CUresult wait_for_all(Executor& executor);
// Whether that wait may last: something is not done, or waited for, or captured. Asks each stream,
// and leaves any context current in the driver.
bool anything_runs(Executor& executor);

class DeviceBlocks {
 public:
  struct Block {
    uint64_t address = 0, bytes = 0;  // whole pages of base::kGpuPageBytes
    uint32_t slot = 0;
    const WorkerContext* context = nullptr;     // it ends with this one
    CUmemGenericAllocationHandle physical = 0;  // 0: its memory has left
    bool exported = false;                      // others may have it mapped
    bool of_arena = false;                      // the client chose its address
    std::string token = {};                     // imported: under which; else empty
    uint32_t opened = 0;                        // imported: how often
  };

  explicit DeviceBlocks(Executor* executor) : w_(*executor) {}
  ~DeviceBlocks();

  // Whether memory of the slot's GPU is made here.
  bool serves(uint32_t slot) { return device_of(slot).usable; }
  // Makes `bytes`, which are rounded up to whole pages, for the call's context.
  CUresult make(uint64_t bytes, CUdeviceptr* address);
  // The arena of the call's slot: addresses that the client has too, and of which it gives out the
  // first `own` itself. False: they are not free here, or there is an arena.
  bool open_arena(uint64_t wished, uint64_t bytes, uint64_t own);
  bool has_arena(uint32_t slot) { return device_of(slot).arena_bytes != 0; }
  // Makes a block where the client wants it.
  CUresult make_at(uint64_t address, uint64_t bytes);
  // The block that begins at, or contains, an address; null: none does.
  Block* find(uint64_t address);
  // Waits for the GPU and gives a block back, as cuMemFree does. The caller stops paying for it.
  CUresult give_back(Block* block);
  // The context is gone, and so are its blocks. gone(address) is called for each.
  template <typename Gone>
  void forget(const WorkerContext* context, Gone&& gone) {
    for (auto at = reach_.begin(); at != reach_.end();)
      at = at->first == context || at->second == context ? reach_.erase(at) : std::next(at);
    for (auto at = blocks_.begin(); at != blocks_.end();) {
      Block* const block = &at->second;
      ++at;
      if (block->context != context) continue;
      const uint64_t address = block->address;
      erase(block);
      gone(address);
    }
  }
  // Addresses that a client cannot use are not given out again.
  void avoid(uint64_t address, uint64_t bytes);
  // What `from` runs may reach memory of `to`, or may no more.
  CUresult let_reach(const WorkerContext* from, const WorkerContext* to, bool allowed);

  // A descriptor of the block's physical memory, for another session's import.
  CUresult export_to(Block* block, base::Fd* fd);
  // Maps what another session exported under `token`. The same token gives the same block, and
  // counts. Memory of `slot`'s GPU; the call's context reaches it.
  CUresult import(const std::string& token, const base::Fd& fd, uint32_t slot, uint64_t bytes,
                  Block** block);
  // Ends one opening. After the last one the block is gone.
  CUresult close(Block* block);

  // For memory that leaves a GPU while its addresses stay. The caller has waited for the GPU, and
  // has copied what must live. The charge stays as it is. Not for imported blocks, and what is
  // exported frees nothing as long as others have it.
  template <typename Visit>
  void for_each(Visit&& visit) {
    for (auto& entry : blocks_) visit(&entry.second);
  }
  CUresult release_memory(Block* block);
  // Gives it physical memory again, with any content.
  CUresult restore_memory(Block* block);

 private:
  struct Window {
    uint64_t base, bytes;
  };
  struct Device {
    bool known = false, usable = false;
    CUdevice device = -1;
    CUmemAllocationProp properties = {};
    base::Holes<> holes;                       // of windows
    uint64_t arena_base = 0, arena_bytes = 0;  // of the client
  };
  Device& device_of(uint32_t slot);
  uint64_t take_addresses(uint32_t slot, uint64_t bytes);
  void give_addresses(uint32_t slot, uint64_t address, uint64_t bytes);
  bool open_window(uint32_t slot, uint64_t bytes);
  bool reaches(CUdevice device, const WorkerContext* to);
  CUresult map(const Block& block);
  CUresult fill(Block* block);
  void erase(Block* block);

  Executor& w_;
  std::map<uint32_t, Device> devices_;  // by slot
  std::map<uint64_t, Block> blocks_;    // by address
  std::vector<Window> windows_;
  std::set<std::pair<const WorkerContext*, const WorkerContext*>> reach_;
};

}  // namespace tendril::worker::cuda
