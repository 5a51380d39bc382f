// SPDX-License-Identifier: Apache-2.0
// What the memory bodies share: allocation with collision handling (memory.cc), host memory
// (host_memory.cc), virtual memory (virtual_memory.cc). Copies are in client/cuda/copy/copy.h.
#pragma once

#include <string.h>

#include <atomic>
#include <cstdint>
#include <vector>

#include "client/cuda/bodies.h"
#include "client/cuda/stream/stream.h"

namespace tendril::client::cuda {

// Puts a range that the worker gave out into the map, and occupies its addresses here. *collides:
// something else is there.
CUresult register_device_range(Context* context, uint64_t base, uint64_t bytes, RangeKind kind,
                               uint64_t pool, bool* collides);
// The program frees memory that the heap of its session has made (Range::capacity), and which is in
// the map no more.
void free_to_heap(const Range& range);
// A page or a block of the heap goes back to the server.
void give_block_back(const Context* context, uint64_t base);
// So does what is paid ahead on a device.
void give_up_paid(const Device* device, uint64_t bytes);
// Blocks whose addresses collide with something here. They are held until a free one arrives, so
// that the server does not offer them again. The server also avoids the addresses near them. A
// driver cuts small blocks from a large one, or from its own range. So requests grow, to use up the
// rest of that.
class Refused {
 public:
  struct Block {
    uint64_t address, bytes;
  };
  Refused(Session* session, uint64_t filler_most) : session_(session), filler_most_(filler_most) {}
  // False: enough blocks are held, and the caller gives this one back.
  bool add(Block block);
  // How much to ask for next. If that is more than wanted, the block only fills space: give it back
  // if it does not collide.
  uint64_t to_ask(uint64_t wanted) const { return filler_ > wanted ? filler_ : wanted; }
  void filled() { filler_ = 0; }
  void no_room_to_fill() { filler_ = filler_most_ = 0; }
  const std::vector<Block>& all() const { return all_; }

 private:
  Session* session_;
  uint64_t filler_most_, filler_ = 0;
  std::vector<Block> all_;
};

// Occupies addresses of this process for good. False: something else is there.
bool hold_addresses(uint64_t base, uint64_t bytes);
// The same. Also false: another server's memory is there.
bool hold_clear(uint64_t base, uint64_t bytes);
// Gets `bytes` from a server, at addresses where nothing is here. ask(bytes, &address) asks,
// settle(address) enters what came and is false where that collides, give_back(block) returns it.
template <typename Ask, typename Settle, typename GiveBack>
CUresult get_clear(Session* session, uint64_t bytes, uint64_t filler_most, Ask&& ask,
                   Settle&& settle, GiveBack&& give_back) {
  Refused refused(session, filler_most);
  CUresult result = CUDA_SUCCESS;
  for (;;) {
    Refused::Block block = {0, refused.to_ask(bytes)};
    const bool fills = block.bytes != bytes;
    result = ask(block.bytes, &block.address);
    if (result != CUDA_SUCCESS && !fills) break;
    if (result != CUDA_SUCCESS) {
      refused.no_room_to_fill();
    } else if (fills ? !hold_clear(block.address, block.bytes) : !settle(block.address)) {
      if (refused.add(block)) continue;
      give_back(block);
      result = CUDA_ERROR_OUT_OF_MEMORY;
      break;
    } else if (!fills) {
      break;
    } else {
      give_back(block);
      refused.filled();
    }
  }
  for (const Refused::Block& block : refused.all()) give_back(block);
  return result;
}

// Enters the memory of an allocation node, which is known once the node is made.
void register_graph_range(Session* session, Context* context, uint64_t base, uint64_t bytes);
// The first error of what was enqueued so far, without waiting for the GPU. For calls that only the
// server can judge.
CUresult outcome_so_far(Context* context);
CUresult free_managed(const Range& range);
// A managed variable of code that `session` has loaded: memory at the address that the server's
// driver chose, and its first value. Idempotent.
CUresult adopt_managed(Session* session, Context* home, uint64_t base, uint64_t bytes);
// The code of the variable is gone. What the program reads there from now on is stale.
void forget_managed(uint64_t base);
// Addresses reserved by a server; `wished` 0: any.
CUresult reserve_at(Session* session, uint64_t size, uint64_t alignment, uint64_t wished,
                    uint64_t flags, uint64_t* address);
CUresult release_at(Session* session, uint64_t address, uint64_t size);
// Physical memory: finds the record of a handle that the program holds, or null. And enters one
// that another process exported.
Object* held_allocation(uint64_t handle);
void adopt_allocation(Object* object, Device* device);
// Like register_device_range, for memory of a pool.
CUresult register_pool_range(Context* context, uint64_t base, uint64_t bytes, uint64_t pool,
                             bool* collides);
// Makes pinned pages that the worker has at the same addresses. Null: impossible. unshare_pages
// gives them up. Its `context` is the context that asked for them; null: that is gone.
void* share_pages(Context* context, uint64_t bytes);
void unshare_pages(Session* session, Context* context, void* memory, uint64_t bytes);
// The context is gone, and no work of it can use freed host memory that waits here.
void forget_kept_pages(const Context* context);
// From now on GPUs reach the pinned, registered or managed range at its own address.
CUresult map_host_range(Context* context, const Range& range);
// Unified addressing: a program may give kernels the address of any pinned or registered memory.
// While there is any, a launch looks for such addresses among its parameters and has the memory
// mirrored.
void map_pinned_slow(Context* context, const void* parameters, uint64_t bytes);
inline void map_pinned(Context* context, const void* parameters, uint64_t bytes) {
  if (__builtin_expect(process()->pinned_ranges.load(std::memory_order_relaxed) != 0, 0))
    map_pinned_slow(context, parameters, bytes);
}

}  // namespace tendril::client::cuda
