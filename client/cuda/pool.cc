// SPDX-License-Identifier: Apache-2.0
// Stream-ordered allocation. The client knows the current pool of each device and names it in every allocation, so
// pointer queries can tell the pool without the network. A range leaves the map when its free is enqueued; the
// worker's stream orders the rest.
#include <string.h>

#include "client/cuda/capture.h"
#include "client/cuda/memory.h"

namespace tendril::client::cuda {
namespace {

constexpr int kTriesMax = 8;

pthread_mutex_t g_mutex = PTHREAD_MUTEX_INITIALIZER;

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
  pthread_mutex_lock(&g_mutex);
  *out = find_pool(d->default_pool);
  pthread_mutex_unlock(&g_mutex);
  if (*out != nullptr) return CUDA_SUCCESS;
  Object* pool = create_object(Kind::kPool, d->session, nullptr);
  if (pool == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  wire::cuda::pool_default_request m;
  wire::cuda::pool_default_reply r;
  m.slot = d->slot;
  m.pool = pool->wire_id;
  const CUresult result = d->session->call(static_cast<const Context*>(nullptr), m, r);
  pthread_mutex_lock(&g_mutex);
  Object* other = find_pool(d->default_pool);  // another thread was quicker
  if (result == CUDA_SUCCESS && other == nullptr) d->default_pool = handle_value(handle_cast<CUmemoryPool>(pool));
  pthread_mutex_unlock(&g_mutex);
  *out = other != nullptr ? other : pool;
  if (result == CUDA_SUCCESS && other == nullptr) return CUDA_SUCCESS;
  destroy_object(Kind::kPool, pool);
  return other != nullptr ? CUDA_SUCCESS : result;
}

// A current pool that was destroyed is the default one again.
CUresult current_pool(Device* d, Object** out) {
  pthread_mutex_lock(&g_mutex);
  *out = find_pool(d->current_pool);
  pthread_mutex_unlock(&g_mutex);
  return *out != nullptr ? CUDA_SUCCESS : default_pool(d, out);
}

void give_back(Context* c, uint64_t address, Stream* s) {
  wire::cuda::pool_free_request m;
  m.address = address;
  m.stream = stream_wire_id(s);
  c->session->enqueue(c, m);
}

CUresult allocate(CUdeviceptr* dptr, uint64_t bytes, bool from_current, CUmemoryPool wanted, CUstream hStream) {
  Context* c = nullptr;
  Stream* s = nullptr;
  TENDRIL_TRY(require_context(&c));
  if (dptr == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
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
  uint64_t refused[kTriesMax];
  int refusals = 0;
  CUresult result = CUDA_SUCCESS;
  for (bool collides = true; collides;) {
    wire::cuda::pool_allocate_reply r;
    result = c->session->call(c, m, r);
    if (result != CUDA_SUCCESS) break;
    if (is_capturing(s)) {  // it is an allocation node
      register_graph_range(c->session, c, r.address, bytes);
      *dptr = r.address;
      break;
    }
    register_pool_range(c, r.address, bytes, handle, &collides);
    if (!collides) {
      *dptr = r.address;
    } else if (refusals == kTriesMax) {
      give_back(c, r.address, s);
      result = CUDA_ERROR_OUT_OF_MEMORY;
      break;
    } else {
      refused[refusals++] = r.address;
    }
  }
  for (int i = 0; i < refusals; ++i) give_back(c, refused[i], s);
  return result;
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
  return attribute >= CU_MEMPOOL_ATTR_RELEASE_THRESHOLD && attribute <= CU_MEMPOOL_ATTR_USED_MEM_HIGH
             ? sizeof(cuuint64_t)
             : 0;
}

CUresult need_pool(CUmemoryPool handle, const void* value, CUmemPool_attribute attribute, Object** pool) {
  if (process() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  *pool = find_pool(handle_value(handle));
  return *pool != nullptr && value != nullptr && attribute_bytes(attribute) != 0 ? CUDA_SUCCESS
                                                                                 : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace

CUresult register_pool_range(Context* c, uint64_t base, uint64_t bytes, uint64_t pool, bool* collides) {
  return register_device_range(c, base, bytes, RangeKind::kPool, pool, collides);
}

CUresult cuMemAllocAsync(CUdeviceptr* dptr, size_t bytesize, CUstream hStream) {
  return allocate(dptr, bytesize, true, nullptr, hStream);
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr* dptr, size_t bytesize, CUmemoryPool pool, CUstream hStream) {
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
  // Memory of cuMemAlloc may be freed in the order of a stream too; only a graph's own may be freed in a graph.
  if (!of_graph && range.kind != RangeKind::kPool && range.kind != RangeKind::kDevice) return CUDA_ERROR_INVALID_VALUE;
  if (!of_graph && is_capturing(s)) return CUDA_ERROR_INVALID_VALUE;
  if (!of_graph && !process()->ranges.remove(dptr, &range)) return CUDA_ERROR_INVALID_VALUE;
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
  pthread_mutex_lock(&g_mutex);
  d->current_pool = handle_value(pool);
  pthread_mutex_unlock(&g_mutex);
  return CUDA_SUCCESS;
}

CUresult cuMemGetDefaultMemPool(CUmemoryPool* pool_out, CUmemLocation* location, CUmemAllocationType type) {
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
