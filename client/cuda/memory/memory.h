// SPDX-License-Identifier: Apache-2.0
// What the memory bodies share: allocation with collision handling (memory.cc), host memory
// (host_memory.cc), copies (copy.cc).
#pragma once

#include <string.h>

#include <atomic>
#include <cstdint>
#include <vector>

#include "client/cuda/bodies.h"
#include "client/cuda/stream/stream.h"

namespace tendril::client::cuda {

// Puts a range that the worker gave out into the map and occupies its addresses here. *collides:
// something else is there.
CUresult register_device_range(Context* c, uint64_t base, uint64_t bytes, RangeKind kind,
                               uint64_t pool, bool* collides);
CUresult allocate_device(Context* c, const wire::cuda::memory_allocate_request& m, uint64_t bytes,
                         RangeKind kind, uint64_t* address, uint64_t* pitch);
// Blocks that a server gave out and that collide with something here. They are kept until one does
// not, for otherwise the server would give the same again; and it is kept away from the
// neighbourhood. What is left of the block that a driver cuts small ones from, or of a range of its
// own that nothing keeps it from, is used up by larger and larger ones.
class Refused {
 public:
  struct Block {
    uint64_t address, bytes;
  };
  Refused(Session* session, uint64_t filler_most) : session_(session), filler_most_(filler_most) {}
  // False: these are enough, and the block is the caller's to give back.
  bool add(Block block);
  // How much to ask for next where so much is wanted. More than that: only to fill, and given back
  // when it does not collide.
  uint64_t to_ask(uint64_t wanted) const { return filler_ > wanted ? filler_ : wanted; }
  void filled() { filler_ = 0; }
  void no_room_to_fill() { filler_ = filler_most_ = 0; }
  const std::vector<Block>& all() const { return all_; }

 private:
  Session* session_;
  uint64_t filler_most_, filler_ = 0;
  std::vector<Block> all_;
};

// Occupies addresses of this process, for good. False: something else is there.
bool hold_addresses(uint64_t base, uint64_t bytes);
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
    } else if (fills ? !hold_addresses(block.address, block.bytes) : !settle(block.address)) {
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

// The memory of an allocation node, known from the moment when the node is made.
void register_graph_range(Session* session, Context* c, uint64_t base, uint64_t bytes);
// For calls that only the server can judge: the first error that what was enqueued has left behind,
// without waiting for the GPU.
CUresult outcome_so_far(Context* c);
CUresult free_managed(const Range& range);
// A managed variable of code that `session` has loaded: memory at the address that the server's
// driver chose, and its first value. Idempotent.
CUresult adopt_managed(Session* session, Context* home, uint64_t base, uint64_t bytes);
// Its code is gone. What the program reads there from now on is stale.
void forget_managed(uint64_t base);
// Addresses reserved by a server; `wished` 0: any.
CUresult reserve_at(Session* session, uint64_t size, uint64_t alignment, uint64_t wished,
                    uint64_t flags, uint64_t* address);
CUresult release_at(Session* session, uint64_t address, uint64_t size);
// Physical memory: the record of a handle that the program holds, or null; and one that another
// process exported.
Object* held_allocation(uint64_t handle);
void adopt_allocation(Object* object, Device* device);
// As register_device_range, for memory of a pool.
CUresult register_pool_range(Context* c, uint64_t base, uint64_t bytes, uint64_t pool,
                             bool* collides);
// Sets the reason for which synchronous copies are waited for from now on, and waits for those of
// the contexts of `session` (null: all) that nobody has waited for.
void copies_matter(std::atomic<bool>* reason, const Session* session);
// From now on other processes see memory of this one, or the other way round: what a synchronous
// copy wrote must be there when it returns.
inline void memory_is_shared() { copies_matter(&process()->memory_is_shared, nullptr); }
// Pages of this process that the worker has at the same addresses, pinned; null where that cannot
// be. And no more of them: `c` is the context that asked for them, null when that is gone.
void* share_pages(Context* c, uint64_t bytes);
void unshare_pages(Session* session, Context* c, void* memory, uint64_t bytes);
// From now on GPUs reach the pinned, registered or managed range at its own address.
CUresult map_host_range(Context* c, const Range& range);
// Unified addressing: kernels may be given the address of any pinned or registered memory. A launch
// looks for such addresses among its parameters while there is any, and has the memory mirrored.
void map_pinned_slow(Context* c, const void* parameters, uint64_t bytes);
inline void map_pinned(Context* c, const void* parameters, uint64_t bytes) {
  if (__builtin_expect(process()->pinned_ranges.load(std::memory_order_relaxed) != 0, 0))
    map_pinned_slow(c, parameters, bytes);
}

// One linear copy between any two places; `stream` null with `async` false: the call is synchronous
// on the legacy stream.
struct CopyStream {
  Stream* stream = nullptr;  // null: the legacy stream
  bool async = false;
};
// The context through which an address is reached: its own, when the map knows that another server
// has it.
Context* context_for(Context* current, uint64_t address);
uint64_t wire_stream(CopyStream on);
// Asks for `bytes` bytes and waits until they are in `into`: small ones come with the reply, others
// beside it.
template <typename Request, typename Answer>
CUresult fetch(Context* c, Request& m, Answer& r, void* into, uint64_t bytes) {
  if (bytes <= wire::kReplyInlineMax) return c->session->call_for_bytes(c, m, into, bytes);
  session::Lane* lane = c->session->lane.get();
  m.transfer = lane->new_transfer_id();
  lane->expect_bulk(m.transfer, into, bytes);
  const CUresult result = c->session->call(c, m, r);
  if (result != CUDA_SUCCESS)
    lane->cancel_bulk(m.transfer);
  else if (!c->session->wait_bulk(m.transfer, bytes))
    return Session::lost_result();
  return result;
}

CUresult copy_to_device(Context* c, uint64_t destination, const void* source, uint64_t bytes,
                        CopyStream on);
CUresult copy_from_device(Context* c, void* destination, uint64_t source, uint64_t bytes,
                          CopyStream on);
CUresult copy_device(Context* c, uint64_t destination, uint64_t source, uint64_t bytes,
                     CopyStream on);
CUresult copy_any(Context* c, uint64_t destination, uint64_t source, uint64_t bytes, CopyStream on);

// Host memory that a shaped copy is about to read or write: waits for what must come first.
CUresult settle_for_reading(Context* c, const void* source, uint64_t bytes, CopyStream on);
CUresult settle_for_writing(Context* c, const void* destination, uint64_t bytes, CopyStream on);

// The end of a synchronous copy to the device, which is enqueued: work that the program enqueues
// next, anywhere, comes after it. The first stream that does not wait for the legacy one is made
// to, for the copies, by the worker (Executor::begin_apart).
CUresult finish_copy(Context* c, CopyStream on);

// A graph goes to `stream`: what its copies write is not in pinned memory before a wait.
void remember_graph_writes(Context* c, Stream* stream);

}  // namespace tendril::client::cuda
