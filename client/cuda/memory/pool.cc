// SPDX-License-Identifier: Apache-2.0
// Stream-ordered allocation. The client knows the current pool of each device and names it in every
// allocation, so pointer queries can tell the pool without the network. A range leaves the map when
// it is freed. The free itself may wait here for an allocation that can use the block again
// (freed_blocks.h); such an allocation needs no round trip.
#include <string.h>

#include "client/cuda/memory/memory.h"
#include "client/cuda/stream/capture.h"

namespace tendril::client::cuda {
namespace {

constexpr uint64_t kChunk = 32u << 20;  // what a driver cuts the blocks of a pool from

CUresult need_device(CUdevice ordinal, Device** out) {
  if (process() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  *out = device_of(ordinal);
  return *out != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

Object* find_pool(uint64_t handle) {
  return handle != 0 ? find_object(Kind::kPool, handle) : nullptr;
}

// The device's own pool; it gets its id here, once.
CUresult default_pool(Device* d, Object** out) {
  {
    const base::Locked held(d->pool_lock);
    *out = find_pool(d->default_pool);
  }
  if (*out != nullptr) return CUDA_SUCCESS;
  Object* pool = create_object(Kind::kPool, d->session, nullptr);
  if (pool == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  wire::cuda::pool_default_request m;
  wire::cuda::pool_default_reply r;
  m.slot = d->slot;
  m.pool = pool->wire_id;
  const CUresult result = d->session->call(static_cast<const Context*>(nullptr), m, r);
  Object* other = nullptr;  // another thread was quicker
  {
    const base::Locked held(d->pool_lock);
    other = find_pool(d->default_pool);
    if (result == CUDA_SUCCESS && other == nullptr)
      d->default_pool = handle_value(handle_cast<CUmemoryPool>(pool));
  }
  *out = other != nullptr ? other : pool;
  if (result == CUDA_SUCCESS && other == nullptr) return CUDA_SUCCESS;
  destroy_object(Kind::kPool, pool);
  return other != nullptr ? CUDA_SUCCESS : result;
}

// A current pool that was destroyed is the default one again.
CUresult current_pool(Device* d, Object** out) {
  {
    const base::Locked held(d->pool_lock);
    *out = find_pool(d->current_pool);
  }
  return *out != nullptr ? CUDA_SUCCESS : default_pool(d, out);
}

void give_back(Context* c, uint64_t address, Stream* s) {
  FreedBlock block;
  block.context = c;
  block.stream = stream_wire_id(s);
  block.address = address;
  c->session->send_free(block);
}

// True: the free waits here. It must not wait if other processes may look at the memory, nor while
// anything is captured: the program's free came in time, but a later one in the legacy stream would
// be refused and end the capture.
bool keep_freed(Context* c, const Range& range, Stream* s) {
  if (range.kind != RangeKind::kPool || find_pool(range.pool) == nullptr) return false;
  const FreedBlock block{c, stream_wire_id(s), range.pool, range.bytes, range.base};
  const auto allowed = [] {
    return process()->open_captures.load() == 0 &&
           !process()->memory_is_shared.load(std::memory_order_relaxed);
  };
  return c->session->freed.keep(block, allowed,
                                [c](const FreedBlock& oldest) { c->session->send_free(oldest); });
}

// Takes a block that the stream has freed. If none fits, frees are sent whose memory the worker
// could use for the new one.
bool reuse_freed(Context* c, Stream* s, uint64_t pool, uint64_t bytes, CUdeviceptr* address) {
  if (c->session->freed.empty()) return false;
  const uint64_t found = c->session->freed.take({c, stream_wire_id(s), pool, bytes, 0});
  bool collides = false;
  if (found != 0) register_pool_range(c, found, bytes, pool, &collides);
  if (found != 0 && !collides) {
    *address = found;
    return true;
  }
  if (collides) give_back(c, found, s);  // another server has handed the same addresses out
  c->session->send_frees(FreedBlocks::kAnyStream, bytes);
  return false;
}

CUresult ask_for_memory(Context* c, const wire::cuda::pool_allocate_request& m,
                        wire::cuda::pool_allocate_reply& r) {
  CUresult result = c->session->call_ahead_of_frees(c, m, r);
  if (result == CUDA_ERROR_OUT_OF_MEMORY && !c->session->freed.empty())
    result = c->session->call(c, m, r);
  Session::note(c, result);
  return result;
}

// The driver says whether that is an error, null or an address. The range belongs to no pool, so
// that no later allocation of a byte gets it.
CUresult allocate_nothing(Context* c, Stream* s, const wire::cuda::pool_allocate_request& m,
                          CUdeviceptr* dptr) {
  wire::cuda::pool_allocate_reply r;
  TENDRIL_TRY(ask_for_memory(c, m, r));
  bool collides = false;
  if (r.address != 0 && is_capturing(s))
    register_graph_range(c->session, c, r.address, 1);
  else if (r.address != 0)
    register_pool_range(c, r.address, 1, 0, &collides);
  if (collides) {
    give_back(c, r.address, s);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *dptr = r.address;
  return CUDA_SUCCESS;
}

CUresult allocate(CUdeviceptr* dptr, uint64_t bytes, bool from_current, CUmemoryPool wanted,
                  CUstream hStream) {
  Context* c = nullptr;
  Stream* s = nullptr;
  TENDRIL_TRY(require_context(&c));
  if (dptr == nullptr) return CUDA_ERROR_INVALID_VALUE;
  TENDRIL_TRY(require_stream(c, hStream, &s));
  if (s != nullptr) c = s->context;
  TENDRIL_TRY(check_work(c, s));
  Object* pool = nullptr;
  if (from_current)
    TENDRIL_TRY(current_pool(c->device, &pool));
  else
    pool = find_pool(handle_value(wanted));
  if (pool == nullptr || pool->session != c->session) return CUDA_ERROR_INVALID_VALUE;
  wire::cuda::pool_allocate_request m;
  m.bytes = bytes;
  m.stream = stream_wire_id(s);
  m.pool = pool->wire_id;
  const uint64_t handle = pool->handle.load(std::memory_order_relaxed);
  if (bytes == 0) return allocate_nothing(c, s, m, dptr);
  if (!is_capturing(s) && reuse_freed(c, s, handle, bytes, dptr)) return CUDA_SUCCESS;
  const bool node = is_capturing(s);  // of a graph: it cannot be taken back
  const auto ask = [&](uint64_t so_much, uint64_t* address) {
    wire::cuda::pool_allocate_reply r;
    m.bytes = so_much;
    TENDRIL_TRY(ask_for_memory(c, m, r));
    *address = r.address;
    return CUDA_SUCCESS;
  };
  const auto settle = [&](uint64_t address) {
    bool collides = false;
    if (node)
      register_graph_range(c->session, c, address, bytes);
    else
      register_pool_range(c, address, bytes, handle, &collides);
    if (!collides) *dptr = address;
    return !collides;
  };
  return get_clear(c->session, bytes, kChunk, ask, settle,
                   [&](const Refused::Block& block) { give_back(c, block.address, s); });
}

CUresult device_location(const CUmemLocation* location, CUmemAllocationType type, CUdevice* out) {
  if (location == nullptr || type != CU_MEM_ALLOCATION_TYPE_PINNED) return CUDA_ERROR_INVALID_VALUE;
  if (location->type != CU_MEM_LOCATION_TYPE_DEVICE)
    return CUDA_ERROR_NOT_SUPPORTED;  // pools of host memory are the server's
  *out = location->id;
  return CUDA_SUCCESS;
}

// Bytes of an attribute's value; 0: no such attribute.
size_t attribute_bytes(CUmemPool_attribute attribute) {
  if (attribute >= CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES &&
      attribute <= CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES) {
    return sizeof(int);
  }
  return attribute >= CU_MEMPOOL_ATTR_RELEASE_THRESHOLD &&
                 attribute <= CU_MEMPOOL_ATTR_USED_MEM_HIGH
             ? sizeof(cuuint64_t)
             : 0;
}

CUresult need_pool(CUmemoryPool handle, const void* value, CUmemPool_attribute attribute,
                   Object** pool) {
  if (process() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  *pool = find_pool(handle_value(handle));
  return *pool != nullptr && value != nullptr && attribute_bytes(attribute) != 0
             ? CUDA_SUCCESS
             : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace

CUresult register_pool_range(Context* c, uint64_t base, uint64_t bytes, uint64_t pool,
                             bool* collides) {
  return register_device_range(c, base, bytes, RangeKind::kPool, pool, collides);
}

CUresult cuMemAllocAsync(CUdeviceptr* dptr, size_t bytesize, CUstream hStream) {
  return allocate(dptr, bytesize, true, nullptr, hStream);
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr* dptr, size_t bytesize, CUmemoryPool pool,
                                 CUstream hStream) {
  return allocate(dptr, bytesize, false, pool, hStream);
}

CUresult cuMemFreeAsync(CUdeviceptr dptr, CUstream hStream) {
  Context* c = nullptr;
  Stream* s = nullptr;
  TENDRIL_TRY(require_context(&c));
  TENDRIL_TRY(require_stream(c, hStream, &s));
  if (s != nullptr) c = s->context;
  TENDRIL_TRY(check_work(c, s));
  if (dptr == 0) return CUDA_SUCCESS;
  Range range;
  if (!process()->ranges.find(dptr, &range) || range.base != dptr) return CUDA_ERROR_INVALID_VALUE;
  if (range.session != c->session)
    return CUDA_ERROR_INVALID_VALUE;  // a stream of one server cannot order memory of another
  const bool of_graph = range.kind == RangeKind::kGraph;
  // Memory of cuMemAlloc may be freed in the order of a stream too. A graph may only free memory of
  // its own.
  if (!of_graph && range.kind != RangeKind::kPool && range.kind != RangeKind::kDevice)
    return CUDA_ERROR_INVALID_VALUE;
  if (!of_graph && is_capturing(s)) return CUDA_ERROR_INVALID_VALUE;
  if (!of_graph && !process()->ranges.remove(dptr, &range)) return CUDA_ERROR_INVALID_VALUE;
  if (keep_freed(c, range, s)) return CUDA_SUCCESS;
  give_back(c, dptr, s);
  return of_graph && !is_capturing(s) ? outcome_so_far(c) : CUDA_SUCCESS;
}

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool* pool_out, CUdevice dev) {
  Device* d = nullptr;
  Object* pool = nullptr;
  TENDRIL_TRY(need_device(dev, &d));
  if (pool_out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  TENDRIL_TRY(default_pool(d, &pool));
  *pool_out = handle_cast<CUmemoryPool>(pool);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetMemPool(CUmemoryPool* pool, CUdevice dev) {
  Device* d = nullptr;
  Object* found = nullptr;
  TENDRIL_TRY(need_device(dev, &d));
  if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
  TENDRIL_TRY(current_pool(d, &found));
  *pool = handle_cast<CUmemoryPool>(found);
  return CUDA_SUCCESS;
}

CUresult cuDeviceSetMemPool(CUdevice dev, CUmemoryPool pool) {
  Device* d = nullptr;
  TENDRIL_TRY(need_device(dev, &d));
  Object* found = find_pool(handle_value(pool));
  if (found == nullptr || found->session != d->session) return CUDA_ERROR_INVALID_VALUE;
  wire::cuda::pool_set_request m;
  wire::cuda::pool_set_reply r;
  m.slot = d->slot;
  m.pool = found->wire_id;
  TENDRIL_TRY(d->session->call(static_cast<const Context*>(nullptr), m, r));
  const base::Locked held(d->pool_lock);
  d->current_pool = handle_value(pool);
  return CUDA_SUCCESS;
}

CUresult cuMemGetDefaultMemPool(CUmemoryPool* pool_out, CUmemLocation* location,
                                CUmemAllocationType type) {
  CUdevice device = 0;
  TENDRIL_TRY(device_location(location, type, &device));
  return cuDeviceGetDefaultMemPool(pool_out, device);
}

CUresult cuMemGetMemPool(CUmemoryPool* pool, CUmemLocation* location, CUmemAllocationType type) {
  CUdevice device = 0;
  TENDRIL_TRY(device_location(location, type, &device));
  return cuDeviceGetMemPool(pool, device);
}

CUresult cuMemSetMemPool(CUmemLocation* location, CUmemAllocationType type, CUmemoryPool pool) {
  CUdevice device = 0;
  TENDRIL_TRY(device_location(location, type, &device));
  return cuDeviceSetMemPool(device, pool);
}

CUresult cuMemPoolDestroy(CUmemoryPool handle) {
  if (process() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  Object* pool = find_pool(handle_value(handle));
  if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
  wire::cuda::pool_destroy_request m;
  wire::cuda::pool_destroy_reply r;
  m.pool = pool->wire_id;
  TENDRIL_TRY(pool->session->call(static_cast<const Context*>(nullptr), m, r));
  destroy_object(Kind::kPool, pool);
  return CUDA_SUCCESS;
}

CUresult cuMemPoolTrimTo(CUmemoryPool handle, size_t minBytesToKeep) {
  if (process() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  Object* pool = find_pool(handle_value(handle));
  if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
  wire::cuda::pool_trim_request m;
  wire::cuda::pool_trim_reply r;
  m.pool = pool->wire_id;
  m.bytes = minBytesToKeep;
  return pool->session->call(static_cast<const Context*>(nullptr), m, r);
}

CUresult cuMemPoolSetAttribute(CUmemoryPool handle, CUmemPool_attribute attr, void* value) {
  Object* pool = nullptr;
  TENDRIL_TRY(need_pool(handle, value, attr, &pool));
  wire::cuda::pool_set_attribute_request m;
  wire::cuda::pool_set_attribute_reply r;
  m.pool = pool->wire_id;
  m.attribute = static_cast<uint32_t>(attr);
  memcpy(&m.value, value, attribute_bytes(attr));
  return pool->session->call(static_cast<const Context*>(nullptr), m, r);
}

CUresult cuMemPoolGetAttribute(CUmemoryPool handle, CUmemPool_attribute attr, void* value) {
  Object* pool = nullptr;
  TENDRIL_TRY(need_pool(handle, value, attr, &pool));
  wire::cuda::pool_get_attribute_request m;
  wire::cuda::pool_get_attribute_reply r;
  m.pool = pool->wire_id;
  m.attribute = static_cast<uint32_t>(attr);
  TENDRIL_TRY(pool->session->call(static_cast<const Context*>(nullptr), m, r));
  memcpy(value, &r.value, attribute_bytes(attr));
  return CUDA_SUCCESS;
}

}  // namespace tendril::client::cuda
