// SPDX-License-Identifier: Apache-2.0
// Stream-ordered allocation. The client knows the current pool of each device and names it in every
// allocation, so pointer queries can tell the pool without the network. A range leaves the map when
// it is freed. The free itself may wait here for an allocation that can use the block again
// (freed_blocks.h); such an allocation needs no round trip.
#include <string.h>

#include "client/cuda/memory/keeper.h"
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

// The device's own pool; it gets its id here, once. Only one thread asks, because the worker keeps
// each id that it hears for the pool.
CUresult default_pool(Device* device, Object** out) {
  const auto known = [device] {
    const base::Locked held(device->pool_lock);
    return find_pool(device->default_pool);
  };
  if (*out = known(); *out != nullptr) return CUDA_SUCCESS;
  TENDRIL_TRY(device->session->begin());
  const base::Locked asking(device->default_pool_lock);
  if (*out = known(); *out != nullptr) return CUDA_SUCCESS;
  Object* pool = create_object(Kind::kPool, device->session, nullptr);
  if (pool == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  wire::cuda::pool_default_request request;
  wire::cuda::pool_default_reply reply;
  request.slot = device->slot;
  request.pool = pool->wire_id;
  const CUresult result =
      device->session->call(static_cast<const Context*>(nullptr), request, reply);
  if (result != CUDA_SUCCESS) {
    destroy_object(Kind::kPool, pool);
    return result;
  }
  const base::Locked held(device->pool_lock);
  device->default_pool = handle_value(handle_cast<CUmemoryPool>(pool));
  *out = pool;
  return CUDA_SUCCESS;
}

// A current pool that was destroyed is the default one again.
CUresult current_pool(Device* device, Object** out) {
  {
    const base::Locked held(device->pool_lock);
    *out = find_pool(device->current_pool);
  }
  return *out != nullptr ? CUDA_SUCCESS : default_pool(device, out);
}

void give_back(Context* context, uint64_t address, Stream* stream) {
  FreedBlock block;
  block.context = context;
  block.stream = stream_wire_id(stream);
  block.address = address;
  context->session->send_free(block);
}

// True: the free waits here. It must not wait if other processes may look at the memory. Nor may it
// wait while anything is captured: a later free in the legacy stream would be refused and end the
// capture.
bool keep_freed(Context* context, const Range& range, Stream* stream) {
  if (range.kind != RangeKind::kPool || find_pool(range.pool) == nullptr) return false;
  const FreedBlock block{context, stream_wire_id(stream), range.pool, range.bytes, range.base};
  const auto allowed = [] {
    return process()->open_captures.load() == 0 &&
           !process()->memory_is_shared.load(std::memory_order_relaxed);
  };
  const bool kept = context->session->freed.keep(
      block, allowed, [context](const FreedBlock& oldest) { context->session->send_free(oldest); });
  if (kept) note_kept(context->session);
  return kept;
}

// Takes a block that the stream has freed. If none fits, frees are sent whose memory the worker
// could use for the new one.
bool reuse_freed(Context* context, Stream* stream, uint64_t pool, uint64_t bytes,
                 CUdeviceptr* address) {
  if (context->session->freed.empty()) return false;
  const uint64_t found =
      context->session->freed.take({context, stream_wire_id(stream), pool, bytes, 0});
  bool collides = false;
  if (found != 0) register_pool_range(context, found, bytes, pool, &collides);
  if (found != 0 && !collides) {
    *address = found;
    return true;
  }
  if (collides)
    give_back(context, found, stream);  // another server has given out the same addresses
  context->session->send_frees(FreedBlocks::kAnyStream, bytes);
  return false;
}

CUresult ask_for_memory(Context* context, const wire::cuda::pool_allocate_request& request,
                        wire::cuda::pool_allocate_reply& reply) {
  CUresult result = context->session->call_ahead_of_frees(context, request, reply);
  if (result == CUDA_ERROR_OUT_OF_MEMORY)
    result = call_for_memory(context->session, context, request.bytes, request, reply);
  Session::note(context, result);
  return result;
}

// The driver says whether that is an error, null or an address. The range belongs to no pool, so
// that no later allocation of a byte gets it.
CUresult allocate_nothing(Context* context, Stream* stream,
                          const wire::cuda::pool_allocate_request& request, CUdeviceptr* dptr) {
  wire::cuda::pool_allocate_reply reply;
  TENDRIL_TRY(ask_for_memory(context, request, reply));
  bool collides = false;
  if (reply.address != 0 && is_capturing(stream))
    register_graph_range(context->session, context, reply.address, 1);
  else if (reply.address != 0)
    register_pool_range(context, reply.address, 1, 0, &collides);
  if (collides) {
    give_back(context, reply.address, stream);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *dptr = reply.address;
  return CUDA_SUCCESS;
}

CUresult allocate(CUdeviceptr* dptr, uint64_t bytes, bool from_current, CUmemoryPool wanted,
                  CUstream hStream) {
  Context* context = nullptr;
  Stream* stream = nullptr;
  TENDRIL_TRY(require_context(&context));
  if (dptr == nullptr) return CUDA_ERROR_INVALID_VALUE;
  TENDRIL_TRY(require_stream(context, hStream, &stream));
  if (stream != nullptr) context = stream->context;
  TENDRIL_TRY(check_work(context, stream));
  Object* pool = nullptr;
  if (from_current)
    TENDRIL_TRY(current_pool(context->device, &pool));
  else
    pool = find_pool(handle_value(wanted));
  if (pool == nullptr || pool->session != context->session) return CUDA_ERROR_INVALID_VALUE;
  wire::cuda::pool_allocate_request request;
  request.bytes = bytes;
  request.stream = stream_wire_id(stream);
  request.pool = pool->wire_id;
  const uint64_t handle = pool->handle.load(std::memory_order_relaxed);
  if (bytes == 0) return allocate_nothing(context, stream, request, dptr);
  if (!is_capturing(stream) && reuse_freed(context, stream, handle, bytes, dptr))
    return CUDA_SUCCESS;
  const bool node = is_capturing(stream);  // a graph's node, which cannot be taken back
  const auto ask = [&](uint64_t so_much, uint64_t* address) {
    wire::cuda::pool_allocate_reply reply;
    request.bytes = so_much;
    TENDRIL_TRY(ask_for_memory(context, request, reply));
    *address = reply.address;
    return CUDA_SUCCESS;
  };
  const auto settle = [&](uint64_t address) {
    bool collides = false;
    if (node)
      register_graph_range(context->session, context, address, bytes);
    else
      register_pool_range(context, address, bytes, handle, &collides);
    if (!collides) *dptr = address;
    return !collides;
  };
  return get_clear(context->session, bytes, kChunk, ask, settle,
                   [&](const Refused::Block& block) { give_back(context, block.address, stream); });
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

CUresult register_pool_range(Context* context, uint64_t base, uint64_t bytes, uint64_t pool,
                             bool* collides) {
  return register_device_range(context, base, bytes, RangeKind::kPool, pool, collides);
}

CUresult cuMemAllocAsync(CUdeviceptr* dptr, size_t bytesize, CUstream hStream) {
  return allocate(dptr, bytesize, true, nullptr, hStream);
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr* dptr, size_t bytesize, CUmemoryPool pool,
                                 CUstream hStream) {
  return allocate(dptr, bytesize, false, pool, hStream);
}

CUresult cuMemFreeAsync(CUdeviceptr dptr, CUstream hStream) {
  Context* context = nullptr;
  Stream* stream = nullptr;
  TENDRIL_TRY(require_context(&context));
  TENDRIL_TRY(require_stream(context, hStream, &stream));
  if (stream != nullptr) context = stream->context;
  TENDRIL_TRY(check_work(context, stream));
  if (dptr == 0) return CUDA_SUCCESS;
  Range range;
  if (!process()->ranges.find(dptr, &range) || range.base != dptr) return CUDA_ERROR_INVALID_VALUE;
  if (range.session != context->session)
    return CUDA_ERROR_INVALID_VALUE;  // a stream of one server cannot order memory of another
  const bool of_graph = range.kind == RangeKind::kGraph;
  // Memory of cuMemAlloc may be freed in the order of a stream too. A graph may only free memory of
  // its own.
  if (!of_graph && range.kind != RangeKind::kPool && range.kind != RangeKind::kDevice)
    return CUDA_ERROR_INVALID_VALUE;
  if (!of_graph && is_capturing(stream)) return CUDA_ERROR_INVALID_VALUE;
  if (!of_graph && !process()->ranges.remove(dptr, &range)) return CUDA_ERROR_INVALID_VALUE;
  if (keep_freed(context, range, stream)) return CUDA_SUCCESS;
  if (range.capacity != 0) {
    free_to_heap(range);
    return CUDA_SUCCESS;
  }
  give_back(context, dptr, stream);
  return of_graph && !is_capturing(stream) ? outcome_so_far(context) : CUDA_SUCCESS;
}

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool* pool_out, CUdevice dev) {
  Device* device = nullptr;
  Object* pool = nullptr;
  TENDRIL_TRY(need_device(dev, &device));
  if (pool_out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  TENDRIL_TRY(default_pool(device, &pool));
  *pool_out = handle_cast<CUmemoryPool>(pool);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetMemPool(CUmemoryPool* pool, CUdevice dev) {
  Device* device = nullptr;
  Object* found = nullptr;
  TENDRIL_TRY(need_device(dev, &device));
  if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
  TENDRIL_TRY(current_pool(device, &found));
  *pool = handle_cast<CUmemoryPool>(found);
  return CUDA_SUCCESS;
}

CUresult cuDeviceSetMemPool(CUdevice dev, CUmemoryPool pool) {
  Device* device = nullptr;
  TENDRIL_TRY(need_device(dev, &device));
  Object* found = find_pool(handle_value(pool));
  if (found == nullptr || found->session != device->session) return CUDA_ERROR_INVALID_VALUE;
  wire::cuda::pool_set_request request;
  wire::cuda::pool_set_reply reply;
  request.slot = device->slot;
  request.pool = found->wire_id;
  TENDRIL_TRY(device->session->call(static_cast<const Context*>(nullptr), request, reply));
  const base::Locked held(device->pool_lock);
  device->current_pool = handle_value(pool);
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
  wire::cuda::pool_destroy_request request;
  wire::cuda::pool_destroy_reply reply;
  request.pool = pool->wire_id;
  TENDRIL_TRY(pool->session->call(static_cast<const Context*>(nullptr), request, reply));
  destroy_object(Kind::kPool, pool);
  return CUDA_SUCCESS;
}

CUresult cuMemPoolTrimTo(CUmemoryPool handle, size_t minBytesToKeep) {
  if (process() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  Object* pool = find_pool(handle_value(handle));
  if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
  wire::cuda::pool_trim_request request;
  wire::cuda::pool_trim_reply reply;
  request.pool = pool->wire_id;
  request.bytes = minBytesToKeep;
  return pool->session->call(static_cast<const Context*>(nullptr), request, reply);
}

CUresult cuMemPoolSetAttribute(CUmemoryPool handle, CUmemPool_attribute attr, void* value) {
  Object* pool = nullptr;
  TENDRIL_TRY(need_pool(handle, value, attr, &pool));
  wire::cuda::pool_set_attribute_request request;
  wire::cuda::pool_set_attribute_reply reply;
  request.pool = pool->wire_id;
  request.attribute = static_cast<uint32_t>(attr);
  memcpy(&request.value, value, attribute_bytes(attr));
  return pool->session->call(static_cast<const Context*>(nullptr), request, reply);
}

CUresult cuMemPoolGetAttribute(CUmemoryPool handle, CUmemPool_attribute attr, void* value) {
  Object* pool = nullptr;
  TENDRIL_TRY(need_pool(handle, value, attr, &pool));
  wire::cuda::pool_get_attribute_request request;
  wire::cuda::pool_get_attribute_reply reply;
  request.pool = pool->wire_id;
  request.attribute = static_cast<uint32_t>(attr);
  TENDRIL_TRY(pool->session->call(static_cast<const Context*>(nullptr), request, reply));
  memcpy(value, &reply.value, attribute_bytes(attr));
  return CUDA_SUCCESS;
}

}  // namespace tendril::client::cuda
