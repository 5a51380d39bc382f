// SPDX-License-Identifier: Apache-2.0
// Pinned, registered and managed host memory. If the server is on this host, pinned and managed
// memory are pages that the worker has too (docs/decisions/0007-shared-host-memory.md). Otherwise
// they are ordinary memory of this process. Registered memory always is. Such memory counts as
// pinned, because asynchronous copies with it are asynchronous. It gets a mirror in the worker only
// when the program asks for its device address, gives it to a kernel, or asks for managed memory.
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include <algorithm>
#include <set>

#include "client/common/log.h"
#include "client/cuda/memory/kept_pages.h"
#include "client/cuda/memory/memory.h"
#include "client/cuda/memory/mirror.h"

namespace tendril::client::cuda {

struct HostPlaces {
  std::atomic<uint64_t> window_next{0};  // where in the host window to try next
  // All registered memory lies or lay between these. So a value outside them is not its address.
  std::atomic<uint64_t> registered_low{UINT64_MAX}, registered_high{0};
  // Pages of managed variables; several variables may share one. They stay mapped. Otherwise
  // somebody else might get the page.
  base::Lock variables_lock;
  std::set<uint64_t> variable_pages;
  base::Lock kept_lock;
  KeptPages kept;
};

namespace {

using transport::kHostWindowBase;
using transport::kHostWindowBytes;

void widen_registered(uint64_t base, uint64_t end) {
  HostPlaces& places = process()->host_places.get();
  uint64_t low = places.registered_low.load(), high = places.registered_high.load();
  while (base < low && !places.registered_low.compare_exchange_weak(low, base)) {
  }
  while (end > high && !places.registered_high.compare_exchange_weak(high, end)) {
  }
}

uint64_t whole_pages(uint64_t bytes) { return (bytes + 4095) & ~uint64_t{4095}; }

// Maps the next free addresses with `map(address)`. Null: see errno. Each address is used only
// once; 16 TiB are enough. If the program uses the addresses, this steps over them in growing
// strides.
template <typename Map>
void* place(uint64_t bytes, Map&& map) {
  const uint64_t room = (bytes + (2u << 20) - 1) & ~uint64_t{(2u << 20) - 1};
  constexpr uint64_t kStrideMax = uint64_t{64} << 30;
  uint64_t stride = room;
  for (int tries = 0; tries < 64; ++tries) {
    const uint64_t offset = process()->host_places->window_next.fetch_add(stride);
    if (offset > kHostWindowBytes || room > kHostWindowBytes - offset) break;
    if (map(kHostWindowBase + offset)) return reinterpret_cast<void*>(kHostWindowBase + offset);
    if (errno != EEXIST) break;
    stride = std::max(room, std::min(2 * stride, kStrideMax));
  }
  return nullptr;
}

void* place_private(uint64_t bytes) {
  return place(bytes, [bytes](uint64_t at) {
    void* wanted = reinterpret_cast<void*>(at);
    void* got = mmap(wanted, bytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
    if (got != MAP_FAILED && got != wanted) {  // an old kernel takes the flag for a hint
      munmap(got, bytes);
      errno = EEXIST;
    }
    return got == wanted;
  });
}

}  // namespace

void* share_pages(Context* context, uint64_t bytes) {
  const transport::HostWindow& window = context->session->window;
  if (!window.valid()) return nullptr;
  bytes = whole_pages(bytes);
  void* memory = place(bytes, [&](uint64_t at) { return window.map(at, bytes); });
  if (memory == nullptr) return nullptr;
  wire::cuda::mirror_share_request request;
  wire::cuda::mirror_share_reply reply;
  request.address = reinterpret_cast<uint64_t>(memory);
  request.bytes = bytes;
  if (context->session->call(static_cast<const Context*>(context), request, reply) == CUDA_SUCCESS)
    return memory;
  window.unmap(request.address, bytes, true);
  return nullptr;
}

void unshare_pages(Session* session, Context* context, void* memory, uint64_t bytes) {
  wire::cuda::mirror_destroy_request request;
  request.address = reinterpret_cast<uint64_t>(memory);
  session->enqueue(context, request);
  session->window.unmap(request.address, whole_pages(bytes), true);
}

// Pinning is not allowed while a capture is open.
bool Session::may_share_pages() {
  return process()->open_captures.load(std::memory_order_relaxed) == 0;
}

void* Session::share_pages(void* owner, uint64_t bytes) {
  return cuda::share_pages(static_cast<Context*>(owner), bytes);
}

void Session::unshare_pages(void* pages, uint64_t bytes) {
  cuda::unshare_pages(this, nullptr, pages, bytes);
}

namespace {

// Tells a transport that could use it of memory that the program has pinned, or will unpin. What it
// does not want is copied.
void name_pinned(const Range& range) {
  const auto& pinned = range.session->pinned;
  if (pinned != nullptr) (void)pinned->add(reinterpret_cast<void*>(range.base), range.bytes);
}
void forget_pinned(const Range& range) {
  const auto& pinned = range.session->pinned;
  if (pinned != nullptr) pinned->remove(reinterpret_cast<void*>(range.base));
}

// Gives up what `allocate` made. Nothing uses it any more.
void unmap_host(const Range& range) {
  if (!range.shared) {
    forget_pinned(range);
    munmap(reinterpret_cast<void*>(range.base), range.bytes);
    return;
  }
  unshare_pages(range.session, range.context, reinterpret_cast<void*>(range.base), range.bytes);
}

// Copies from portable memory may be on their way to any server.
void settle_uploads(const Range& range) {
  for (Session* session : process()->sessions) session->uploads.settle(range.base, range.bytes);
}

// Waits until no work of the context can use host memory that it was given.
void wait_for_work(const Range& range) {
  const uint64_t before = range.session->calls();
  wire::cuda::context_synchronize_request request;
  wire::cuda::context_synchronize_reply reply;
  if (range.session->call(range.context, request, reply) == CUDA_SUCCESS &&
      range.context != nullptr)
    range.context->waited.store(before);
  process()->reads.forget_context(range.context);
}

bool still_used(const KeptPages::Block& block) {
  return !KeptPages::covered(block.calls, block.range.context->waited.load());
}

// Pages that the program has freed. If the GPU may still use them, pages that the worker has are
// waited for: to make new ones takes as long.
bool take_kept(Context* context, uint64_t bytes, Range* range) {
  HostPlaces& places = process()->host_places.get();
  const bool may_wait = process()->open_captures.load(std::memory_order_relaxed) == 0;
  KeptPages::Block block;
  {
    const base::Locked held(places.kept_lock);
    block = places.kept.take(context, bytes, [may_wait](const KeptPages::Block& one) {
      return (one.range.shared && may_wait) || !still_used(one);
    });
  }
  if (block.range.base == 0) return false;
  if (still_used(block)) wait_for_work(block.range);
  range->shared = block.range.shared;
  range->base = block.range.base;
  return true;
}

// The program has freed a range, which is in the map no more. Its pages wait for the next
// allocation, and the oldest ones go.
void keep_pages(const Range& range) {
  settle_uploads(range);
  HostPlaces& places = process()->host_places.get();
  std::vector<KeptPages::Block> gone;
  {
    const base::Locked held(places.kept_lock);
    places.kept.keep({range, range.session->calls()});
    while (places.kept.full()) gone.push_back(places.kept.oldest());
  }
  for (const KeptPages::Block& block : gone) {
    if (still_used(block)) wait_for_work(block.range);
    unmap_host(block.range);
  }
}

// Not memory that a server's copies still go to: their bytes come by its address.
bool may_keep_pages(const Range& range) {
  return range.context != nullptr && range.context->session == range.session &&
         KeptPages::fits(range) && !mirror_known(range.base) &&
         !process()->reads.pending(range.base, range.bytes) &&
         !process()->memory_is_shared.load(std::memory_order_relaxed);
}

CUresult allocate(void** pp, size_t bytes, unsigned flags, RangeKind kind, Context* context) {
  if (bytes > kHostWindowBytes) return CUDA_ERROR_OUT_OF_MEMORY;
  Range range;
  const bool was_kept = take_kept(context, bytes, &range);
  if (!was_kept) {
    void* memory = share_pages(context, bytes);
    range.shared = memory != nullptr;
    if (memory == nullptr) memory = place_private(bytes);
    if (memory == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
    range.base = reinterpret_cast<uint64_t>(memory);
  }
  range.bytes = bytes;
  range.kind = kind;
  range.context = context;
  range.session = context->session;
  range.flags = flags;
  range.buffer_id = process()->next_buffer_id.fetch_add(1);
  if (!process()->ranges.insert(range)) {
    unmap_host(range);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  if (kind == RangeKind::kPinned && !range.shared) process()->pinned_ranges.fetch_add(1);
  if (kind == RangeKind::kPinned && !range.shared && !was_kept) name_pinned(range);
  *pp = reinterpret_cast<void*>(range.base);
  return CUDA_SUCCESS;
}

Context* owner_of(void* p) {
  Range range;
  const bool known =
      process() != nullptr && process()->ranges.find(reinterpret_cast<uint64_t>(p), &range);
  return known ? range.context : nullptr;
}

CUresult host_range(void* p, Range* range) {
  if (p == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!process()->ranges.find(reinterpret_cast<uint64_t>(p), range) || !range->host())
    return CUDA_ERROR_INVALID_VALUE;
  return CUDA_SUCCESS;
}

}  // namespace

CUresult map_host_range(Context* context, const Range& range) {
  const uint32_t session = context->session->index;
  if (range.mirrored_in(session) || range.shared_with(context->session)) return CUDA_SUCCESS;
  TENDRIL_TRY(mirror_create(context->session, context, range.base, range.bytes, kMirrorKernels));
  process()->ranges.mark_mirrored(range.base, session);
  return CUDA_SUCCESS;
}

void map_pinned_slow(Context* context, const void* parameters, uint64_t bytes) {
  HostPlaces& places = process()->host_places.get();
  const uint64_t low = places.registered_low.load(std::memory_order_relaxed);
  const uint64_t high = places.registered_high.load(std::memory_order_relaxed);
  for (uint64_t at = 0; at + 8 <= bytes; at += 8) {
    uint64_t value;
    memcpy(&value, static_cast<const uint8_t*>(parameters) + at, sizeof value);
    Range range;
    if (value - kHostWindowBase >= kHostWindowBytes && (value < low || value >= high)) continue;
    // If the server cannot use the address, the kernel gets a fault, and copies still work.
    if (!process()->ranges.find(value, &range) || !range.host()) continue;
    if (range.mirrored_in(context->session->index))
      mirror_named(context->session, context, range.base);
    else
      (void)map_host_range(context, range);
  }
}

CUresult cuMemHostAlloc(void** pp, size_t bytesize, unsigned int Flags) {
  Context* context = nullptr;
  TENDRIL_TRY(require_context(&context));
  constexpr unsigned kKnown =
      CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
  if (pp == nullptr || bytesize == 0 || (Flags & ~kKnown) != 0) return CUDA_ERROR_INVALID_VALUE;
  // CU_MEMHOSTALLOC_DEVICEMAP alone maps nothing yet. Programs set it on staging buffers that no
  // kernel ever sees, and each mirror costs time at every launch.
  TENDRIL_TRY(allocate(pp, bytesize, Flags, RangeKind::kPinned, context));
  return CUDA_SUCCESS;
}

CUresult cuMemAllocHost_v2(void** pp, size_t bytesize) { return cuMemHostAlloc(pp, bytesize, 0); }

CUresult cuMemFreeHost(void* p) {
  Context* context = nullptr;
  Range range;
  TENDRIL_TRY(require_context_of(owner_of(p), &context));
  TENDRIL_TRY(host_range(p, &range));
  if (range.kind != RangeKind::kPinned || range.base != reinterpret_cast<uint64_t>(p))
    return CUDA_ERROR_INVALID_VALUE;
  const bool keeps = may_keep_pages(range);
  if (!keeps) {
    // Copies into it may still be on their way.
    wait_for_work(range);
    settle_uploads(range);
    mirror_forget(range.context, range.base);
  }
  if (!process()->ranges.remove(range.base, &range)) return CUDA_ERROR_INVALID_VALUE;
  if (!range.shared) process()->pinned_ranges.fetch_sub(1);
  if (keeps)
    keep_pages(range);
  else
    unmap_host(range);
  return CUDA_SUCCESS;
}

CUresult cuMemHostRegister_v2(void* p, size_t bytesize, unsigned int Flags) {
  Context* context = nullptr;
  TENDRIL_TRY(require_context(&context));
  constexpr unsigned kKnown = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP |
                              CU_MEMHOSTREGISTER_IOMEMORY | CU_MEMHOSTREGISTER_READ_ONLY;
  if (p == nullptr || bytesize == 0 || (Flags & ~kKnown) != 0) return CUDA_ERROR_INVALID_VALUE;
  if ((Flags & CU_MEMHOSTREGISTER_IOMEMORY) != 0) return CUDA_ERROR_NOT_SUPPORTED;
  Range range;
  range.base = reinterpret_cast<uint64_t>(p);
  range.bytes = bytesize;
  range.kind = RangeKind::kRegistered;
  range.context = context;
  range.session = context->session;
  range.flags = Flags;
  range.buffer_id = process()->next_buffer_id.fetch_add(1);
  if (!process()->ranges.insert(range)) return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  widen_registered(range.base, range.base + range.bytes);
  process()->pinned_ranges.fetch_add(1);
  name_pinned(range);
  return CUDA_SUCCESS;
}

CUresult cuMemHostUnregister(void* p) {
  Context* context = nullptr;
  TENDRIL_TRY(require_context_of(owner_of(p), &context));
  if (p == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Range range;
  if (!process()->ranges.find(reinterpret_cast<uint64_t>(p), &range) ||
      range.kind != RangeKind::kRegistered || range.base != reinterpret_cast<uint64_t>(p)) {
    return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
  }
  wire::cuda::context_synchronize_request request;
  wire::cuda::context_synchronize_reply reply;
  (void)range.session->call(range.context, request, reply);
  settle_uploads(range);
  process()->reads.forget_context(range.context);
  mirror_forget(range.context, range.base);
  forget_pinned(range);
  if (process()->ranges.remove(range.base, &range)) process()->pinned_ranges.fetch_sub(1);
  return CUDA_SUCCESS;
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr* pdptr, void* p, unsigned int Flags) {
  Context* context = nullptr;
  TENDRIL_TRY(require_context(&context));
  if (pdptr == nullptr || Flags != 0) return CUDA_ERROR_INVALID_VALUE;
  Range range;
  TENDRIL_TRY(host_range(p, &range));
  TENDRIL_TRY(map_host_range(context, range));
  *pdptr = reinterpret_cast<uint64_t>(p);  // unified addressing: the same value on both sides
  return CUDA_SUCCESS;
}

CUresult cuMemHostGetFlags(unsigned int* pFlags, void* p) {
  Context* context = nullptr;
  TENDRIL_TRY(require_context(&context));
  if (pFlags == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Range range;
  TENDRIL_TRY(host_range(p, &range));
  *pFlags = range.flags |
            CU_MEMHOSTALLOC_DEVICEMAP;  // with unified addressing all pinned memory is mapped
  return CUDA_SUCCESS;
}

CUresult cuMemAllocManaged(CUdeviceptr* dptr, size_t bytesize, unsigned int flags) {
  Context* context = nullptr;
  TENDRIL_TRY(require_context(&context));
  if (dptr == nullptr || bytesize == 0) return CUDA_ERROR_INVALID_VALUE;
  if (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST) return CUDA_ERROR_INVALID_VALUE;
  void* memory = nullptr;
  TENDRIL_TRY(allocate(&memory, bytesize, flags, RangeKind::kManaged, context));
  const uint64_t base = reinterpret_cast<uint64_t>(memory);
  Range range;
  process()->ranges.find(base, &range);
  const CUresult result = map_host_range(context, range);
  if (result != CUDA_SUCCESS) {
    process()->ranges.remove(base, &range);
    unmap_host(range);
    return result;
  }
  *dptr = base;
  return CUDA_SUCCESS;
}

CUresult free_managed(const Range& managed) {
  Range range;
  const bool keeps = managed.shared && may_keep_pages(managed);
  if (!keeps) {
    wait_for_work(managed);
    mirror_forget(managed.context, managed.base);
  }
  if (!process()->ranges.remove(managed.base, &range)) return CUDA_ERROR_INVALID_VALUE;
  if (keeps)
    keep_pages(range);
  else
    unmap_host(range);
  return CUDA_SUCCESS;
}

void forget_kept_pages(const Context* context) {
  HostPlaces& places = process()->host_places.get();
  for (;;) {
    KeptPages::Block block;
    {
      const base::Locked held(places.kept_lock);
      block = places.kept.take_any(context);
    }
    if (block.range.base == 0) return;
    block.range.context = nullptr;
    unmap_host(block.range);
  }
}

namespace {

bool place_variable(uint64_t base, uint64_t bytes) {
  HostPlaces& places = process()->host_places.get();
  const base::Locked held(places.variables_lock);
  std::set<uint64_t>& pages = places.variable_pages;
  bool placed = true;
  for (uint64_t page = base & ~uint64_t{4095}; placed && page < base + bytes; page += 4096) {
    if (pages.count(page) != 0) continue;
    void* wanted = reinterpret_cast<void*>(page);
    void* got = mmap(wanted, 4096, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    placed = got == wanted;
    if (placed) pages.insert(page);
    if (!placed && got != MAP_FAILED) munmap(got, 4096);
  }
  return placed;
}

}  // namespace

CUresult adopt_managed(Session* session, Context* home, uint64_t base, uint64_t bytes) {
  Range range;
  if (process()->ranges.find(base, &range) && range.base == base && range.variable)
    return CUDA_SUCCESS;
  if (!place_variable(base, bytes)) {
    log_once(LogLevel::kError,
             "a managed variable of %llu bytes lies at %#llx on server %s, where this program has "
             "something else; "
             "start the program again",
             static_cast<unsigned long long>(bytes), static_cast<unsigned long long>(base),
             session->endpoint.c_str());
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  range = {};
  range.base = base;
  range.bytes = bytes;
  range.kind = RangeKind::kManaged;
  range.context = home;
  range.session = session;
  range.flags = CU_MEM_ATTACH_GLOBAL;
  range.buffer_id = process()->next_buffer_id.fetch_add(1);
  range.mirror_in(session->index);
  range.variable = true;
  memset(reinterpret_cast<void*>(base), 0, bytes);  // as the mirror begins
  if (!process()->ranges.insert(range)) return CUDA_ERROR_OUT_OF_MEMORY;
  Context* usable = home->active.load(std::memory_order_relaxed) != 0 ? home : nullptr;
  const CUresult result = mirror_create(session, usable, base, bytes, kMirrorKernels);
  if (result == CUDA_SUCCESS)
    mirror_fetch_all(session, usable);
  else
    process()->ranges.remove(base, &range);
  return result;
}

void forget_managed(uint64_t base) {
  Range range;
  mirror_forget(nullptr, base);
  process()->ranges.remove(base, &range);
}

// Hints are checked and accepted. They have no effect: copies move the memory here, so there is
// nothing to advise or prefetch.
CUresult cuMemAdvise(CUdeviceptr devPtr, size_t count, CUmem_advise, CUdevice) {
  Context* context = nullptr;
  TENDRIL_TRY(require_context(&context));
  Range range;
  if (count == 0 || !process()->ranges.find(devPtr, &range)) return CUDA_ERROR_INVALID_VALUE;
  return range.kind == RangeKind::kManaged ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
CUresult cuMemAdvise_v2(CUdeviceptr devPtr, size_t count, CUmem_advise advice, CUmemLocation) {
  return cuMemAdvise(devPtr, count, advice, 0);
}
CUresult cuMemPrefetchAsync(CUdeviceptr devPtr, size_t count, CUdevice, CUstream hStream) {
  Context* context = nullptr;
  Stream* stream = nullptr;
  TENDRIL_TRY(require_context(&context));
  TENDRIL_TRY(require_stream(context, hStream, &stream));
  return cuMemAdvise(devPtr, count, CU_MEM_ADVISE_SET_READ_MOSTLY, 0);
}
CUresult cuMemPrefetchAsync_v2(CUdeviceptr devPtr, size_t count, CUmemLocation, unsigned int flags,
                               CUstream hStream) {
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  return cuMemPrefetchAsync(devPtr, count, 0, hStream);
}
namespace {

// Lists of managed ranges that are prefetched or whose contents are no longer wanted.
CUresult hint_batch(CUdeviceptr* dptrs, size_t* sizes, size_t count, unsigned long long flags,
                    CUstream hStream) {
  Context* context = nullptr;
  Stream* stream = nullptr;
  TENDRIL_TRY(require_context(&context));
  TENDRIL_TRY(require_stream(context, hStream, &stream));
  if (stream == nullptr || count == 0 || dptrs == nullptr || sizes == nullptr || flags != 0)
    return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count; ++i)
    TENDRIL_TRY(cuMemAdvise(dptrs[i], sizes[i], CU_MEM_ADVISE_SET_READ_MOSTLY, 0));
  return CUDA_SUCCESS;
}

}  // namespace

CUresult cuMemPrefetchBatchAsync(CUdeviceptr* dptrs, size_t* sizes, size_t count,
                                 CUmemLocation* prefetchLocs, size_t* prefetchLocIdxs,
                                 size_t numPrefetchLocs, unsigned long long flags,
                                 CUstream hStream) {
  if (prefetchLocs == nullptr || prefetchLocIdxs == nullptr || numPrefetchLocs == 0 ||
      numPrefetchLocs > count)
    return CUDA_ERROR_INVALID_VALUE;
  return hint_batch(dptrs, sizes, count, flags, hStream);
}
CUresult cuMemDiscardBatchAsync(CUdeviceptr* dptrs, size_t* sizes, size_t count,
                                unsigned long long flags, CUstream hStream) {
  return hint_batch(dptrs, sizes, count, flags, hStream);
}
CUresult cuMemDiscardAndPrefetchBatchAsync(CUdeviceptr* dptrs, size_t* sizes, size_t count,
                                           CUmemLocation* prefetchLocs, size_t* prefetchLocIdxs,
                                           size_t numPrefetchLocs, unsigned long long flags,
                                           CUstream hStream) {
  return cuMemPrefetchBatchAsync(dptrs, sizes, count, prefetchLocs, prefetchLocIdxs,
                                 numPrefetchLocs, flags, hStream);
}

CUresult cuMemRangeGetAttribute(void* data, size_t dataSize, CUmem_range_attribute,
                                CUdeviceptr devPtr, size_t count) {
  TENDRIL_TRY(cuMemAdvise(devPtr, count, CU_MEM_ADVISE_SET_READ_MOSTLY, 0));
  if (data == nullptr || dataSize < 4) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i + 4 <= dataSize; i += 4) static_cast<int*>(data)[i / 4] = 0;
  return CUDA_SUCCESS;
}
CUresult cuMemRangeGetAttributes(void** data, size_t* dataSizes, CUmem_range_attribute* attributes,
                                 size_t numAttributes, CUdeviceptr devPtr, size_t count) {
  if (data == nullptr || dataSizes == nullptr || attributes == nullptr)
    return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < numAttributes; ++i)
    TENDRIL_TRY(cuMemRangeGetAttribute(data[i], dataSizes[i], attributes[i], devPtr, count));
  return CUDA_SUCCESS;
}

}  // namespace tendril::client::cuda
