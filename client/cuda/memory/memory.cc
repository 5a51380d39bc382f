// SPDX-License-Identifier: Apache-2.0
// Device memory: allocation, freeing, and what the client knows of it. Allocations come from what
// the session's heap has (device_heap.h), and the heap from the worker. Addresses are the worker's
// real ones. If an address collides with memory of this process or of another server, the block is
// given back and another is asked for. So a pointer has only one meaning.
#include <errno.h>
#include <sys/mman.h>

#include <algorithm>
#include <set>

#include "client/cuda/bodies.h"
#include "client/cuda/memory/export_handle.h"
#include "client/cuda/memory/keeper.h"
#include "client/cuda/memory/memory.h"
#include "client/cuda/memory/occupied.h"
#include "client/cuda/stream/capture.h"

namespace tendril::client::cuda {

// Addresses of this process that nothing may use any more, in blocks.
struct HeldBlocks {
  base::Lock lock;
  std::set<uint64_t> all;
};

namespace {

constexpr uint64_t kBlock = 2u << 20;  // how coarsely a driver hands out addresses
constexpr uint64_t kUserTop = 0x7fff'ffff'f000;
// In each direction. A worker avoids at most 1 TiB in all.
constexpr uint64_t kNeighbourhood = 128ull << 30;
constexpr size_t kRefusedMax = 512;  // of one allocation
constexpr uint64_t kFillerLeast = 4096;

// Occupies [base, base + bytes) in this process with inaccessible pages, so that no later mmap of
// the program lands there. Blocks stay occupied for good, because addresses are plentiful, and a
// driver reuses its own.
bool hold(uint64_t base, uint64_t bytes) {
  for (const Device* device : process()->devices)
    if (device->arena.contains(base, bytes)) return true;
  if (base >= kUserTop || bytes > kUserTop - base)
    return true;  // not an address a process can have
  const uint64_t first = base & ~(kBlock - 1);
  const uint64_t end = (base + bytes + kBlock - 1) & ~(kBlock - 1);
  bool ok = true;
  const base::Locked locked(process()->held_blocks->lock);
  std::set<uint64_t>& held = process()->held_blocks->all;
  for (uint64_t at = first; at < end && ok;) {
    if (held.count(at) != 0) {
      at += kBlock;
      continue;
    }
    uint64_t run = at;
    while (run < end && held.count(run) == 0) run += kBlock;
    void* got = mmap(reinterpret_cast<void*>(at), run - at, PROT_NONE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
    if (got == MAP_FAILED || reinterpret_cast<uint64_t>(got) != at) {
      if (got != MAP_FAILED) munmap(got, run - at);
      ok = got == MAP_FAILED && errno != EEXIST;  // out of mappings is no collision
    } else {
      for (uint64_t block = at; block < run; block += kBlock) held.insert(held.end(), block);
    }
    at = run;
  }
  return ok;
}

void free_block(const Context* context, uint64_t address) {
  wire::cuda::memory_free_request request;
  request.address = address;
  context->session->enqueue(context, request);
}

Range device_range(Context* context, uint64_t base, uint64_t bytes, RangeKind kind) {
  Range range;
  range.base = base;
  range.bytes = bytes;
  range.kind = kind;
  range.context = context;
  range.session = context->session;
  range.buffer_id = process()->next_buffer_id.fetch_add(1, std::memory_order_relaxed);
  return range;
}

// Enters an allocation that lies in a place of the heap. False: something else is there.
bool enter_place(Context* context, const HeapPlace& place, uint64_t bytes) {
  Range range = device_range(context, place.address, bytes, RangeKind::kDevice);
  range.capacity = place.capacity;
  range.part = place.part;
  return process()->ranges.insert(range);
}

// An allocation that needs nobody. False: the heap has no room.
bool allocate_from_heap(Context* context, uint64_t bytes, CUdeviceptr* address) {
  // Waiting for the GPU would end a capture. A capture that another thread begins just now is the
  // worker's to look after.
  const bool may_order = process()->open_captures.load(std::memory_order_relaxed) == 0;
  for (;;) {
    const HeapPlace place = context->session->heap.take(context, bytes, may_order, [context] {
      context->session->enqueue(context, wire::cuda::memory_reuse_request{});
    });
    if (place.address == 0) return false;
    *address = place.address;
    if (enter_place(context, place, bytes)) return true;
    if (!place.part) give_block_back(context, place.address);  // another server gave those out
  }
}

CUresult ask_for_block(Context* context, uint64_t bytes, uint64_t* address) {
  wire::cuda::memory_allocate_request request;
  wire::cuda::memory_allocate_reply reply;
  request.bytes = bytes;
  TENDRIL_TRY(call_for_memory(context->session, context, bytes, request, reply));
  context->session->heap.left(reply.left);
  *address = reply.address;
  return CUDA_SUCCESS;
}

// Gets a page from the server, and an allocation in it.
CUresult allocate_in_new_page(Context* context, uint64_t bytes, CUdeviceptr* address) {
  constexpr uint64_t kPage = DeviceHeap::kPageBytes;
  const auto ask = [&](uint64_t, uint64_t* at) { return ask_for_block(context, kPage, at); };
  uint64_t page = 0;
  const auto settle = [&](uint64_t at) {
    process()->ranges.remove_graph(context->session, at, kPage);
    page = at;
    return hold(at, kPage) && process()->ranges.insert_page(at, kPage);
  };
  TENDRIL_TRY(get_clear(context->session, kPage, kPage, ask, settle,
                        [&](const Refused::Block& b) { free_block(context, b.address); }));
  const HeapPlace place = context->session->heap.add_page(context, page, bytes);
  *address = place.address;
  return enter_place(context, place, bytes) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

// Makes addresses of the device known to both ends, once. False: it has none.
bool open_arena(Context* context) {
  // In the middle of what processes have, and far from where libraries, heaps and stacks begin.
  constexpr uint64_t kFirst = 0x2000'0000'0000, kAlign = 1ull << 30, kApart = 1ull << 40;
  constexpr uint64_t kOwnLeast = 32ull << 30;
  constexpr int kTries = 6;
  Device* const device = context->device;
  if (device->arena.is_open()) return true;
  if (device->arena_refused.load(std::memory_order_relaxed)) return false;
  const base::Locked locked(device->arena_lock);
  if (device->arena.is_open()) return true;
  const bool maps =
      device->attributes[CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED] != 0;
  wire::cuda::arena_open_request request;
  request.own = base::rounded_up(std::max(kOwnLeast, 4 * device->memory_bytes), kAlign);
  request.bytes = 2 * request.own;
  request.wished =
      kFirst + static_cast<uint64_t>(device->ordinal) * base::rounded_up(request.bytes, kApart);
  for (int i = 0; maps && i < kTries; ++i, request.wished += kTries * kApart) {
    void* const wished = reinterpret_cast<void*>(request.wished);
    void* const got =
        mmap(wished, request.bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (got == MAP_FAILED) break;
    wire::cuda::arena_open_reply reply;
    if (got == wished) {
      const CUresult result = context->session->call(context, request, reply);
      if (result == CUDA_SUCCESS && reply.address == request.wished) {
        device->arena.open(request.wished, request.bytes, request.own);
        return true;
      }
      if (result != CUDA_SUCCESS) i = kTries;
    }
    munmap(got, request.bytes);
  }
  device->arena_refused.store(true, std::memory_order_relaxed);
  return false;
}

// Whole pages of the arena. CUDA_ERROR_NOT_SUPPORTED: there is none, or it has no addresses left.
CUresult take_from_arena(Context* context, uint64_t bytes, uint64_t* address) {
  if (!open_arena(context)) return CUDA_ERROR_NOT_SUPPORTED;
  DeviceArena& arena = context->device->arena;
  Others others;
  for (bool gave_up = false;;) {
    CUresult result = CUDA_SUCCESS;
    const auto send = [&](uint64_t at) {
      wire::cuda::arena_make_request make;
      make.address = at;
      make.bytes = bytes;
      result = context->session->enqueue(context, make);
    };
    const DeviceArena::Taken taken = arena.take(context, bytes, address, send);
    if (taken == DeviceArena::Taken::kYes) return result;
    if (taken == DeviceArena::Taken::kNoAddresses) return CUDA_ERROR_NOT_SUPPORTED;
    // What waits for another size is paid.
    if (!gave_up &&
        context->session->heap.give_up_some(context, arena.want(bytes), give_block_back))
      continue;
    wire::cuda::arena_pay_request pay;
    wire::cuda::arena_pay_reply paid;
    pay.bytes = bytes;
    pay.ahead = gave_up ? 0 : arena.ahead();
    if (pay.ahead != 0 && !keeps_from_now(context->session)) pay.ahead = 0;
    result = context->session->call(context, pay, paid);
    if (result == CUDA_SUCCESS) {
      arena.paid(paid.paid, paid.left);
      context->session->heap.left(paid.left);
      note_kept(context->session);
    } else if (result != CUDA_ERROR_OUT_OF_MEMORY ||
               (!context->session->give_up_kept() &&
                !others.give_back(context->session, context, bytes))) {
      return result;
    } else {
      gave_up = true;
    }
  }
}

CUresult allocate_in_arena(Context* context, uint64_t bytes, CUdeviceptr* address) {
  uint64_t at = 0;
  TENDRIL_TRY(take_from_arena(context, base::whole_pages(bytes), &at));
  process()->ranges.remove_graph(context->session, at, base::whole_pages(bytes));
  if (!base::shares_a_page(bytes)) {
    bool collides = false;
    *address = at;
    return register_device_range(context, at, bytes, RangeKind::kDevice, 0, &collides);
  }
  if (!process()->ranges.insert_page(at, DeviceHeap::kPageBytes)) return CUDA_ERROR_ALREADY_MAPPED;
  const HeapPlace place = context->session->heap.add_page(context, at, bytes);
  *address = place.address;
  return enter_place(context, place, bytes) ? CUDA_SUCCESS : CUDA_ERROR_ALREADY_MAPPED;
}

CUresult allocate(Context* context, uint64_t bytes, CUdeviceptr* address) {
  constexpr uint64_t kSane = uint64_t{1} << 48;
  if (allocate_from_heap(context, bytes, address)) return CUDA_SUCCESS;
  if (bytes > kSane) return CUDA_ERROR_OUT_OF_MEMORY;
  const CUresult in_arena = allocate_in_arena(context, bytes, address);
  if (in_arena != CUDA_ERROR_NOT_SUPPORTED) return in_arena;
  if (base::shares_a_page(bytes)) {
    const CUresult result = allocate_in_new_page(context, bytes, address);
    if (result != CUDA_ERROR_OUT_OF_MEMORY) return result;
    // Without memory for a page, a driver may still have room in one of its own.
  }
  const auto ask = [&](uint64_t so_much, uint64_t* at) {
    return ask_for_block(context, so_much, at);
  };
  const auto settle = [&](uint64_t at) {
    bool collides = false;
    *address = at;
    register_device_range(context, at, bytes, RangeKind::kDevice, 0, &collides);
    return !collides;
  };
  return get_clear(context->session, bytes, kBlock, ask, settle,
                   [&](const Refused::Block& block) { free_block(context, block.address); });
}

}  // namespace

void give_up_paid(const Device* device, uint64_t bytes) {
  wire::cuda::arena_give_up_request request;
  request.slot = device->slot;
  request.bytes = bytes;
  device->session->enqueue(static_cast<const Context*>(nullptr), request);
}

void give_block_back(const Context* context, uint64_t base) {
  Device* const device = context->device;
  process()->ranges.remove_page(base);
  const bool known = device->arena.give(
      base, [&] { free_block(context, base); },
      [&](uint64_t bytes) { give_up_paid(device, bytes); });
  if (!known) free_block(context, base);
}

bool hold_addresses(uint64_t base, uint64_t bytes) { return hold(base, bytes); }

bool hold_clear(uint64_t base, uint64_t bytes) {
  return hold(base, bytes) && process()->ranges.unknown(base, bytes);
}

CUresult register_device_range(Context* context, uint64_t base, uint64_t bytes, RangeKind kind,
                               uint64_t pool, bool* collides) {
  Range range = device_range(context, base, bytes, kind);
  range.pool = pool;
  // Blocks that share no page are used again as they are (device_heap.h).
  if (kind == RangeKind::kDevice && !base::shares_a_page(bytes)) range.capacity = bytes;
  process()->ranges.remove_graph(context->session, base, bytes);
  *collides = !hold(base, bytes) || !process()->ranges.insert(range);
  return *collides ? CUDA_ERROR_ALREADY_MAPPED : CUDA_SUCCESS;
}

// An allocation node cannot be taken back. So its addresses are kept even if the program has
// something there already. Kernels still work, and so do copies whose direction is stated.
void register_graph_range(Session* session, Context* context, uint64_t base, uint64_t bytes) {
  Range range = device_range(context, base, bytes, RangeKind::kGraph);
  range.session = session;
  if (hold(base, bytes)) process()->ranges.insert_graph(range);
}

void free_to_heap(const Range& range) {
  range.session->heap.give(range.context, {range.base, range.capacity, range.part},
                           give_block_back);
  note_kept(range.session);
}

bool Refused::add(Block block) {
  uint64_t first = 0, end = 0;
  const auto [address, bytes] = block;
  if (all_.empty() && occupied_around(address & ~(kBlock - 1), bytes + kBlock, &first, &end)) {
    wire::cuda::memory_avoid_request request;
    request.address = address > kNeighbourhood ? std::max(first, address - kNeighbourhood) : first;
    request.bytes = std::min(end, address + bytes + kNeighbourhood) - request.address;
    session_->enqueue(static_cast<const Context*>(nullptr), request);
  }
  if (all_.size() == kRefusedMax) return false;
  all_.push_back(block);
  // Not by bytes: a driver gives each block at least some hundred.
  filler_ = std::min(std::max(2 * bytes, kFillerLeast), filler_most_);
  return true;
}

CUresult outcome_so_far(Context* context) {
  wire::cuda::deferred_error_request request;
  wire::cuda::deferred_error_reply reply;
  return context->session->call(context, request, reply);
}

CUresult cuMemAlloc_v2(CUdeviceptr* dptr, size_t bytesize) {
  Context* context = nullptr;
  TENDRIL_TRY(require_context(&context));
  if (dptr == nullptr || bytesize == 0) return CUDA_ERROR_INVALID_VALUE;
  TENDRIL_TRY(check_unsafe_call());
  return allocate(context, bytesize, dptr);
}

CUresult cuMemAllocPitch_v2(CUdeviceptr* dptr, size_t* pPitch, size_t WidthInBytes, size_t Height,
                            unsigned int ElementSizeBytes) {
  constexpr uint64_t kPitchAlign = 512;        // what drivers round rows up to
  constexpr uint64_t kPitchMost = 0x7fffffff;  // CU_DEVICE_ATTRIBUTE_MAX_PITCH
  Context* context = nullptr;
  TENDRIL_TRY(require_context(&context));
  if (dptr == nullptr || pPitch == nullptr || WidthInBytes == 0 || Height == 0)
    return CUDA_ERROR_INVALID_VALUE;
  if (ElementSizeBytes != 4 && ElementSizeBytes != 8 && ElementSizeBytes != 16)
    return CUDA_ERROR_INVALID_VALUE;
  if (WidthInBytes > kPitchMost) return CUDA_ERROR_INVALID_VALUE;
  TENDRIL_TRY(check_unsafe_call());
  const uint64_t pitch = base::rounded_up(WidthInBytes, kPitchAlign);
  if (Height > (uint64_t{1} << 48) / pitch) return CUDA_ERROR_OUT_OF_MEMORY;
  TENDRIL_TRY(allocate(context, pitch * Height, dptr));
  *pPitch = pitch;
  return CUDA_SUCCESS;
}

CUresult cuMemFree_v2(CUdeviceptr dptr) {
  Context* context = nullptr;
  Range range;
  const bool known = process() != nullptr && process()->ranges.find(dptr, &range);
  TENDRIL_TRY(require_context_of(known ? range.context : nullptr, &context));
  if (dptr == 0) return CUDA_SUCCESS;
  if (!known || range.base != dptr) return CUDA_ERROR_INVALID_VALUE;
  if (range.variable) return CUDA_ERROR_INVALID_VALUE;
  if (range.kind == RangeKind::kManaged) return free_managed(range);
  if (range.kind == RangeKind::kGraph) {  // the next launch of its graph allocates it again
    TENDRIL_TRY(check_unsafe_call());
    Context* at = range.context != nullptr ? range.context : context;
    free_block(at, dptr);
    return outcome_so_far(at);
  }
  if (range.kind != RangeKind::kDevice && range.kind != RangeKind::kPool)
    return CUDA_ERROR_INVALID_VALUE;
  TENDRIL_TRY(check_unsafe_call());
  if (!process()->ranges.remove(dptr, &range)) return CUDA_ERROR_INVALID_VALUE;
  if (range.capacity != 0)
    free_to_heap(range);
  else
    free_block(range.context, dptr);
  return CUDA_SUCCESS;
}

CUresult cuMemGetInfo_v2(size_t* free, size_t* total) {
  Context* context = nullptr;
  TENDRIL_TRY(require_context(&context));
  if (free == nullptr && total == nullptr) return CUDA_ERROR_INVALID_VALUE;
  drop_closed_exports();
  wire::cuda::memory_info_request request;
  wire::cuda::memory_info_reply reply;
  Others others;
  do {
    TENDRIL_TRY(context->session->call(context, request, reply));
  } while (reply.others != 0 && others.may_come());
  if (free != nullptr) *free = reply.free;
  if (total != nullptr) *total = reply.total;
  return CUDA_SUCCESS;
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr* pbase, size_t* psize, CUdeviceptr dptr) {
  Context* context = nullptr;
  TENDRIL_TRY(require_context(&context));
  Range range;
  if (!process()->ranges.find(dptr, &range) || range.kind == RangeKind::kReserved)
    return CUDA_ERROR_NOT_FOUND;
  if (pbase != nullptr) *pbase = range.base;
  if (psize != nullptr) *psize = range.bytes;
  return CUDA_SUCCESS;
}

}  // namespace tendril::client::cuda
