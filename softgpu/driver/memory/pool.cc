// SPDX-License-Identifier: Apache-2.0
// Stream-ordered allocation and memory pools. An allocation gets its address and is charged at
// once. A free takes effect when the stream reaches it. A pool keeps statistics only: freed memory
// goes back to the device. Until the stream is there, only later allocations of the same stream may
// have it. It counts as reserved until somebody synchronises after that, because a driver's pool
// cannot give up what the host has not seen to be free. Then it counts as reserved up to the
// release threshold, until it is trimmed or allocated again.

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <set>

#include "softgpu/driver/device/device.h"
#include "softgpu/driver/entry.h"
#include "softgpu/driver/graph/graph_memory.h"
#include "softgpu/driver/memory/card_memory.h"
#include "softgpu/driver/memory/ipc.h"
#include "softgpu/driver/memory/memory_map.h"
#include "softgpu/driver/stream/work.h"

namespace tendril::softgpu {
namespace {

struct Pool {
  CUmemoryPool handle = nullptr;
  int device = 0;
  bool is_default = false;
  bool is_import = false;  // another process allocates from it
  CUmemPoolProps properties = {};
  std::mutex lock;
  int reuse[3] = {1, 1, 1};  // follow event dependencies, opportunistic, internal dependencies
  uint64_t release_threshold = 0;
  uint64_t used = 0, used_high = 0;
  std::map<const Stream*, uint64_t> ahead;  // freed in a stream that has still to get there
  uint64_t unseen = 0;                      // freed since the last synchronisation
  uint64_t kept = 0;                        // freed before it, and not given up
  uint64_t charged = 0;        // of the device's memory, with costs=card; else each block is
  std::set<uint64_t> leaving;  // addresses whose free a stream has still to reach
  std::map<int, CUmemAccess_flags> access;
};
using PoolPtr = std::shared_ptr<Pool>;
using PoolTable = HandleTable<CUmemoryPool, Pool, HandleKind::kPool>;

PoolTable& pools() {
  static auto& table = *new PoolTable;
  return table;
}

PoolPtr default_pool(int index) {
  Device* device = device_at(index);
  std::lock_guard guard(device->primary_lock);
  if (device->default_pool == nullptr) {
    auto made = std::make_shared<Pool>();
    made->device = index;
    made->is_default = true;
    made->properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    made->properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, index};
    made->handle = pools().mint();
    pools().put(made->handle, made);
    device->default_pool = made->handle;
    device->current_pool = made->handle;
  }
  return pools().get(device->default_pool);
}

PoolPtr current_pool(int index) {
  PoolPtr fallback = default_pool(index);
  Device* device = device_at(index);
  std::lock_guard guard(device->primary_lock);
  PoolPtr found = pools().get(device->current_pool);
  return found ? found : fallback;
}

std::atomic<bool> any_unseen{false};

// Pools that were destroyed while blocks of theirs were in use, by handle.
PoolTable& ended_pools() {
  static auto& table = *new PoolTable;
  return table;
}

PoolPtr pool_of(CUmemoryPool handle) {
  PoolPtr pool = pools().get(handle);
  return pool ? pool : ended_pools().get(handle);
}

uint64_t ahead_of(const Pool& pool) {
  uint64_t sum = 0;
  for (const auto& [stream, bytes] : pool.ahead) sum += bytes;
  return sum;
}

uint64_t held_by(const Pool& pool) { return pool.used + ahead_of(pool) + pool.unseen + pool.kept; }

// Takes or gives back what the pool needs to hold `bytes`. Caller holds the pool's lock.
bool recharge(Pool* pool, uint64_t bytes) {
  if (!costs_as_card()) return true;
  const uint64_t wanted = pool_cost(bytes);
  if (!change_charge(pool->device, pool->charged, wanted)) return false;
  pool->charged = wanted;
  return true;
}

// Caller holds the lock of a pool that may have been destroyed.
void end_if_empty(CUmemoryPool handle, Pool* pool) {
  if (pool->used == 0 && pool->ahead.empty() && ended_pools().remove(handle)) recharge(pool, 0);
}

// An allocation in a stream's order. False: the device has no room for the pool's growth.
bool grow(const PoolPtr& pool, uint64_t bytes, const Stream* stream) {
  std::lock_guard guard(pool->lock);
  const auto own = pool->ahead.find(stream);
  const uint64_t own_bytes = own != pool->ahead.end() ? own->second : 0;
  const uint64_t free = pool->kept + pool->unseen + own_bytes;
  if (!recharge(pool.get(), held_by(*pool) + (bytes > free ? bytes - free : 0))) return false;
  pool->used += bytes;
  pool->used_high = std::max(pool->used_high, pool->used);
  uint64_t again = std::min(bytes, free);
  for (uint64_t* part : {&pool->kept, &pool->unseen}) {
    const uint64_t taken = std::min(*part, again);
    *part -= taken;
    again -= taken;
  }
  if (again != 0 && (own->second -= again) == 0) pool->ahead.erase(own);
  return true;
}

// A free. `stream`: when it gets there; null: now.
void shrink(CUmemoryPool handle, uint64_t bytes, const Stream* stream) {
  const PoolPtr pool = pool_of(handle);
  if (!pool) return;
  std::lock_guard guard(pool->lock);
  pool->used -= bytes;
  (stream != nullptr ? pool->ahead[stream] : pool->unseen) += bytes;
  any_unseen = true;
  if (stream == nullptr) end_if_empty(handle, pool.get());
}

// The stream has got to a free of so many bytes. What it allocated meanwhile had some of them.
void reach(CUmemoryPool handle, uint64_t bytes, const Stream* stream) {
  const PoolPtr pool = pool_of(handle);
  if (!pool) return;
  std::lock_guard guard(pool->lock);
  if (const auto own = pool->ahead.find(stream); own != pool->ahead.end()) {
    const uint64_t freed = std::min(own->second, bytes);
    pool->unseen += freed;
    any_unseen = true;
    if ((own->second -= freed) == 0) pool->ahead.erase(own);
  }
  end_if_empty(handle, pool.get());
}

bool has_leaving(Pool& pool) {
  std::lock_guard guard(pool.lock);
  return !pool.leaving.empty();
}

CUresult allocate(CUdeviceptr* out, size_t bytes, const PoolPtr& wanted, CUstream handle) {
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  bytes = std::max<size_t>(bytes, 1);  // zero bytes are no error here, unlike in cuMemAlloc
  StreamPtr stream;
  ContextPtr context;
  if (CUresult bad = find_stream(handle, &stream, &context)) return bad;
  PoolPtr pool = wanted ? wanted : current_pool(context->device);
  if (pool->is_import) return CUDA_ERROR_INVALID_VALUE;
  if (any_capture()) {
    std::unique_lock guard(capture_lock());
    if (stream->capture) {
      CUDA_MEM_ALLOC_NODE_PARAMS params = {};
      params.poolProps = pool->properties;
      params.bytesize = bytes;
      WorkPtr work;
      CurrentScope scope(context->handle);
      if (CUresult bad = alloc_work(&params, &work)) return bad;
      if (CUresult bad = submit_work(stream, context, std::move(work))) return bad;
      *out = params.dptr;
      return CUDA_SUCCESS;
    }
  }
  if (pool->properties.maxSize != 0 && pool->used + bytes > pool->properties.maxSize)
    return CUDA_ERROR_OUT_OF_MEMORY;
  const auto take = [&] {
    MemoryMap& map = MemoryMap::instance();
    return costs_as_card() ? map.allocate_uncharged(pool->device, bytes, MemoryKind::kPool,
                                                    context->handle, pool->handle)
                           : map.allocate_device(pool->device, bytes, MemoryKind::kPool,
                                                 context->handle, pool->handle);
  };
  if (costs_as_card() && !grow(pool, bytes, stream.get())) return CUDA_ERROR_OUT_OF_MEMORY;
  uint64_t address = take();
  // memory that a driver would use again in the stream's order
  if (address == 0 && has_leaving(*pool)) {
    context->synchronise();
    address = take();
  }
  if (address == 0) {
    if (costs_as_card()) shrink(pool->handle, bytes, nullptr);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  if (!costs_as_card()) grow(pool, bytes, stream.get());
  *out = address;
  return CUDA_SUCCESS;
}

// The file that stands for a pool between processes holds its token.
bool write_token(int file, const PeerToken& token) {
  return pwrite(file, &token, sizeof token, 0) == static_cast<ssize_t>(sizeof token);
}

CUresult device_location(const CUmemLocation& location) {
  if (location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_NOT_SUPPORTED;
  return device_at(location.id) == nullptr ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

}  // namespace

void freed_at_once(CUmemoryPool pool, uint64_t bytes) {
  shrink(pool, bytes, nullptr);
  settle_pools();
}

void settle_pools() {
  if (!any_unseen.exchange(false)) return;
  for (auto& [handle, pool] : pools().all()) {
    std::lock_guard guard(pool->lock);
    const uint64_t others = pool->used + ahead_of(*pool);
    const uint64_t room = pool->release_threshold - std::min(pool->release_threshold, others);
    pool->kept = std::min(pool->kept + pool->unseen, room);
    pool->unseen = 0;
    recharge(pool.get(), held_by(*pool));
  }
}

SOFT(cuMemAllocAsync)(CUdeviceptr* dptr, size_t bytesize, CUstream hStream) {
  return allocate(dptr, bytesize, nullptr, hStream);
}

SOFT(cuMemAllocFromPoolAsync)
(CUdeviceptr* dptr, size_t bytesize, CUmemoryPool handle, CUstream hStream) {
  PoolPtr pool = pools().get(handle);
  return pool ? allocate(dptr, bytesize, pool, hStream) : CUDA_ERROR_INVALID_VALUE;
}

SOFT(cuMemFreeAsync)(CUdeviceptr dptr, CUstream hStream) {
  StreamPtr stream;
  ContextPtr context;
  if (CUresult bad = find_stream(hStream, &stream, &context)) return bad;
  if (dptr == 0) return CUDA_SUCCESS;
  auto found = MemoryMap::instance().find(dptr);
  const bool import = found && found->kind == MemoryKind::kImported && found->pool != nullptr;
  if (!found || found->base != dptr ||
      (!import && found->kind != MemoryKind::kPool && found->kind != MemoryKind::kDevice))
    return CUDA_ERROR_INVALID_VALUE;
  if (import) {
    context->submit(stream, {.run = [dptr] { drop_import(dptr); }, .after = {}, .token = nullptr});
    return CUDA_SUCCESS;
  }
  if (any_capture()) {
    std::lock_guard guard(capture_lock());
    if (stream->capture) {
      WorkPtr work;
      if (CUresult bad = free_work(dptr, &work)) return bad;
      return submit_work(stream, context, std::move(work));
    }
  }
  if (auto answer = free_graph_memory(dptr)) return *answer;
  // For the pool it is free now: later allocations of the stream may have it, and no others.
  PoolPtr pool = pools().get(found->pool);
  if (pool) {
    std::lock_guard guard(pool->lock);
    if (!pool->leaving.insert(dptr).second) return CUDA_ERROR_INVALID_VALUE;
  }
  const Stream* const order = stream.get();
  shrink(found->pool, found->bytes, order);
  // Runs after an error too: the memory must not stay taken.
  QueuedOp op;
  op.run = [dptr, pool, order, handle = found->pool, bytes = found->bytes] {
    auto gone = MemoryMap::instance().remove(dptr, {MemoryKind::kPool, MemoryKind::kDevice});
    if (pool) {
      std::lock_guard guard(pool->lock);
      pool->leaving.erase(dptr);
    }
    if (gone) MemoryMap::instance().free(*gone);
    reach(handle, bytes, order);
  };
  context->submit(stream, std::move(op));
  return CUDA_SUCCESS;
}

SOFT(cuDeviceGetDefaultMemPool)(CUmemoryPool* pool_out, CUdevice dev) {
  if (pool_out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (device_at(dev) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  *pool_out = default_pool(dev)->handle;
  return CUDA_SUCCESS;
}

SOFT(cuDeviceGetMemPool)(CUmemoryPool* pool, CUdevice dev) {
  if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (device_at(dev) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  *pool = current_pool(dev)->handle;
  return CUDA_SUCCESS;
}

SOFT(cuDeviceSetMemPool)(CUdevice dev, CUmemoryPool handle) {
  Device* device = device_at(dev);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  PoolPtr pool = pools().get(handle);
  if (!pool || pool->device != dev || pool->is_import) return CUDA_ERROR_INVALID_VALUE;
  default_pool(dev);
  std::lock_guard guard(device->primary_lock);
  device->current_pool = handle;
  return CUDA_SUCCESS;
}

SOFT(cuMemGetDefaultMemPool)
(CUmemoryPool* pool_out, CUmemLocation* location, CUmemAllocationType type) {
  if (pool_out == nullptr || location == nullptr || type != CU_MEM_ALLOCATION_TYPE_PINNED)
    return CUDA_ERROR_INVALID_VALUE;
  if (CUresult bad = device_location(*location)) return bad;
  return soft_cuDeviceGetDefaultMemPool(pool_out, location->id);
}

SOFT(cuMemGetMemPool)(CUmemoryPool* pool, CUmemLocation* location, CUmemAllocationType type) {
  if (pool == nullptr || location == nullptr || type != CU_MEM_ALLOCATION_TYPE_PINNED)
    return CUDA_ERROR_INVALID_VALUE;
  if (CUresult bad = device_location(*location)) return bad;
  return soft_cuDeviceGetMemPool(pool, location->id);
}

SOFT(cuMemSetMemPool)(CUmemLocation* location, CUmemAllocationType type, CUmemoryPool pool) {
  if (location == nullptr || type != CU_MEM_ALLOCATION_TYPE_PINNED) return CUDA_ERROR_INVALID_VALUE;
  if (CUresult bad = device_location(*location)) return bad;
  return soft_cuDeviceSetMemPool(location->id, pool);
}

SOFT(cuMemPoolCreate)(CUmemoryPool* pool, const CUmemPoolProps* poolProps) {
  if (pool == nullptr || poolProps == nullptr ||
      poolProps->allocType != CU_MEM_ALLOCATION_TYPE_PINNED)
    return CUDA_ERROR_INVALID_VALUE;
  if (CUresult bad = device_location(poolProps->location)) return bad;
  if (poolProps->handleTypes != CU_MEM_HANDLE_TYPE_NONE &&
      poolProps->handleTypes != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
    return CUDA_ERROR_NOT_SUPPORTED;
  auto made = std::make_shared<Pool>();
  made->device = poolProps->location.id;
  made->properties = *poolProps;
  made->handle = pools().mint();
  pools().put(made->handle, made);
  *pool = made->handle;
  return CUDA_SUCCESS;
}

SOFT(cuMemPoolDestroy)(CUmemoryPool handle) {
  PoolPtr pool = pools().get(handle);
  if (!pool || pool->is_default) return CUDA_ERROR_INVALID_VALUE;
  pools().remove(handle);
  std::lock_guard guard(pool->lock);
  pool->unseen = pool->kept = 0;
  recharge(pool.get(), held_by(*pool));
  if (held_by(*pool) != 0) ended_pools().put(handle, pool);
  return CUDA_SUCCESS;  // a device whose current pool this was falls back to its default
}

SOFT(cuMemPoolTrimTo)(CUmemoryPool handle, size_t minBytesToKeep) {
  PoolPtr pool = pools().get(handle);
  if (!pool) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard guard(pool->lock);
  const uint64_t others = pool->used + ahead_of(*pool) + pool->unseen;
  pool->kept =
      std::min<uint64_t>(pool->kept, minBytesToKeep - std::min<uint64_t>(minBytesToKeep, others));
  recharge(pool.get(), held_by(*pool));
  return CUDA_SUCCESS;
}

SOFT(cuMemPoolGetAttribute)(CUmemoryPool handle, CUmemPool_attribute attr, void* value) {
  PoolPtr pool = pools().get(handle);
  if (!pool || value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard guard(pool->lock);
  auto put = [&](uint64_t number) { memcpy(value, &number, sizeof number); };
  switch (attr) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
      memcpy(value, &pool->reuse[attr - 1], sizeof(int));
      break;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
      put(pool->release_threshold);
      break;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
      put(std::max(held_by(*pool), pool->charged));
      break;
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
      put(pool->used);
      break;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
      put(pool->used_high);
      break;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

SOFT(cuMemPoolSetAttribute)(CUmemoryPool handle, CUmemPool_attribute attr, void* value) {
  PoolPtr pool = pools().get(handle);
  if (!pool || value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard guard(pool->lock);
  uint64_t number = 0;
  switch (attr) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
      memcpy(&pool->reuse[attr - 1], value, sizeof(int));
      pool->reuse[attr - 1] = pool->reuse[attr - 1] != 0;
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
      memcpy(&pool->release_threshold, value, sizeof(uint64_t));
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
      memcpy(&number, value, sizeof number);
      if (number != 0) return CUDA_ERROR_INVALID_VALUE;  // high-water marks can only be reset
      pool->used_high = pool->used;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

SOFT(cuMemPoolSetAccess)(CUmemoryPool handle, const CUmemAccessDesc* map, size_t count) {
  PoolPtr pool = pools().get(handle);
  if (!pool || (count != 0 && map == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard guard(pool->lock);
  for (size_t i = 0; i < count; ++i) {
    if (device_location(map[i].location) != CUDA_SUCCESS) return CUDA_ERROR_INVALID_DEVICE;
    if (map[i].location.id == pool->device && map[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
      return CUDA_ERROR_INVALID_VALUE;
    pool->access[map[i].location.id] = map[i].flags;
  }
  return CUDA_SUCCESS;
}

SOFT(cuMemPoolGetAccess)(CUmemAccess_flags* flags, CUmemoryPool handle, CUmemLocation* location) {
  PoolPtr pool = pools().get(handle);
  if (!pool || flags == nullptr || location == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (CUresult bad = device_location(*location)) return bad;
  std::lock_guard guard(pool->lock);
  auto found = pool->access.find(location->id);
  *flags = location->id == pool->device  ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
           : found != pool->access.end() ? found->second
                                         : CU_MEM_ACCESS_FLAGS_PROT_NONE;
  return CUDA_SUCCESS;
}

SOFT(cuMemPoolExportToShareableHandle)
(void* handle_out, CUmemoryPool handle, CUmemAllocationHandleType type, unsigned long long flags) {
  PoolPtr pool = pools().get(handle);
  if (!pool || handle_out == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || pool->is_import ||
      (pool->properties.handleTypes & type) == 0)
    return CUDA_ERROR_INVALID_VALUE;
  PeerToken token = {};
  token.object = reinterpret_cast<uint64_t>(handle);
  token.device = pool->device;
  const int file = memfd_create("tendril-softgpu-test-pool", MFD_CLOEXEC);
  if (file < 0 || !make_token(PeerKind::kPool, &token) || !write_token(file, token)) {
    if (file >= 0) close(file);
    return CUDA_ERROR_OPERATING_SYSTEM;
  }
  *static_cast<int*>(handle_out) = file;
  return CUDA_SUCCESS;
}

SOFT(cuMemPoolImportFromShareableHandle)
(CUmemoryPool* pool_out, void* handle, CUmemAllocationHandleType type, unsigned long long flags) {
  if (pool_out == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_NOT_SUPPORTED;
  char content[sizeof(PeerToken)];
  PeerToken token;
  const int file = static_cast<int>(reinterpret_cast<intptr_t>(handle));
  if (pread(file, content, sizeof content, 0) != static_cast<ssize_t>(sizeof content) ||
      !read_token(content, PeerKind::kPool, &token))
    return CUDA_ERROR_INVALID_VALUE;
  if (device_at(token.device) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  auto made = std::make_shared<Pool>();
  made->device = token.device;
  made->is_import = true;
  made->properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  made->properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, token.device};
  made->handle = pools().mint();
  pools().put(made->handle, made);
  *pool_out = made->handle;
  return CUDA_SUCCESS;
}

SOFT(cuMemPoolExportPointer)(CUmemPoolPtrExportData* shareData_out, CUdeviceptr ptr) {
  if (shareData_out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  auto found = MemoryMap::instance().find(ptr);
  if (!found || found->kind != MemoryKind::kPool || found->base != ptr)
    return CUDA_ERROR_INVALID_VALUE;
  PoolPtr pool = pools().get(found->pool);
  if (!pool || (pool->properties.handleTypes & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) == 0)
    return CUDA_ERROR_INVALID_VALUE;
  PeerToken token = {};
  token.object = found->base;
  token.id = found->id;
  token.bytes = found->bytes;
  token.device = found->device;
  if (!make_token(PeerKind::kMemory, &token)) return CUDA_ERROR_OPERATING_SYSTEM;
  memset(shareData_out, 0, sizeof *shareData_out);
  memcpy(shareData_out, &token, sizeof token);
  return CUDA_SUCCESS;
}

SOFT(cuMemPoolImportPointer)
(CUdeviceptr* ptr_out, CUmemoryPool handle, CUmemPoolPtrExportData* shareData) {
  PoolPtr pool = pools().get(handle);
  PeerToken token;
  if (!pool || !pool->is_import || ptr_out == nullptr || shareData == nullptr ||
      !read_token(shareData, PeerKind::kMemory, &token))
    return CUDA_ERROR_INVALID_VALUE;
  SOFT_CONTEXT(context);
  return open_memory(token, context->handle, handle, ptr_out);
}

}  // namespace tendril::softgpu
