// SPDX-License-Identifier: Apache-2.0
// Handlers of api/cuda/pool.spec. A slice pays for all that its pools hold (kept_memory.h), used or
// free. The reason: as soon as a free is enqueued, the driver may give the same bytes to the next
// allocation of the stream.
#include "api/cuda_handlers.gen.h"
#include "worker/cuda/executor/scope.h"
#include "worker/cuda/ipc.h"
#include "worker/cuda/memory/kept_memory.h"

namespace tendril::worker::cuda {

CUresult handle(Executor& executor, const wire::cuda::pool_default_request& request,
                wire::cuda::pool_default_reply&) {
  Scope scope(executor);
  const CUdevice device = scope.device(request.slot);
  if (!scope.ok()) return scope.error();
  if (executor.driver().cuDeviceGetDefaultMemPool == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  CUmemoryPool pool = nullptr;
  const CUresult result = executor.driver().cuDeviceGetDefaultMemPool(&pool, device);
  if (result != CUDA_SUCCESS) return result;
  return executor.objects().bind(Kind::kPool, request.pool, pool) ? CUDA_SUCCESS
                                                                  : CUDA_ERROR_INVALID_HANDLE;
}

CUresult handle(Executor& executor, const wire::cuda::pool_set_request& request,
                wire::cuda::pool_set_reply&) {
  Scope scope(executor);
  const CUdevice device = scope.device(request.slot);
  CUmemoryPool pool = scope.get<CUmemoryPool>(Kind::kPool, request.pool);
  if (!scope.ok()) return scope.error();
  return executor.driver().cuDeviceSetMemPool(device, pool);
}

CUresult handle(Executor& executor, const wire::cuda::pool_set_attribute_request& request,
                wire::cuda::pool_set_attribute_reply&) {
  Scope scope(executor);
  CUmemoryPool pool = scope.get<CUmemoryPool>(Kind::kPool, request.pool);
  if (!scope.ok()) return scope.error();
  uint64_t value = request.value;
  return executor.driver().cuMemPoolSetAttribute(
      pool, static_cast<CUmemPool_attribute>(request.attribute), &value);
}

CUresult handle(Executor& executor, const wire::cuda::pool_get_attribute_request& request,
                wire::cuda::pool_get_attribute_reply& reply) {
  Scope scope(executor);
  CUmemoryPool pool = scope.get<CUmemoryPool>(Kind::kPool, request.pool);
  if (!scope.ok()) return scope.error();
  uint64_t room[8] = {};  // larger than any attribute
  const CUresult result = executor.driver().cuMemPoolGetAttribute(
      pool, static_cast<CUmemPool_attribute>(request.attribute), room);
  reply.value = room[0];
  return result;
}

CUresult handle(Executor& executor, const wire::cuda::pool_destroy_request& request,
                wire::cuda::pool_destroy_reply&) {
  Scope scope(executor);
  CUmemoryPool pool = scope.get<CUmemoryPool>(Kind::kPool, request.pool);
  if (!scope.ok()) return scope.error();
  const auto destroy = executor.driver().cuMemPoolDestroy;
  if (destroy == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  const CUresult result = destroy(pool);
  if (result != CUDA_SUCCESS) return result;
  executor.kept_memory().destroyed(pool);
  scope.unbind(Kind::kPool, request.pool);
  return result;
}

CUresult handle(Executor& executor, const wire::cuda::pool_trim_request& request,
                wire::cuda::pool_trim_reply&) {
  Scope scope(executor);
  CUmemoryPool pool = scope.get<CUmemoryPool>(Kind::kPool, request.pool);
  if (!scope.ok()) return scope.error();
  if (executor.driver().cuMemPoolTrimTo == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  const CUresult result = executor.driver().cuMemPoolTrimTo(pool, request.bytes);
  executor.kept_memory().settle_pools();
  return result;
}

CUresult handle(Executor& executor, const wire::cuda::pool_allocate_request& request,
                wire::cuda::pool_allocate_reply& reply) {
  if (executor.context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  Scope scope(executor);
  CUstream stream = scope.stream(request.stream);
  CUmemoryPool pool = scope.get<CUmemoryPool>(Kind::kPool, request.pool);
  if (!scope.ok()) return scope.error();
  gpu::Driver& driver = executor.driver();
  CUdeviceptr address = 0;
  CUresult result = CUDA_SUCCESS;
  CUstreamCaptureStatus capturing = CU_STREAM_CAPTURE_STATUS_NONE;
  if (stream != CU_STREAM_LEGACY) driver.cuStreamIsCapturing(stream, &capturing);
  if (capturing ==
      CU_STREAM_CAPTURE_STATUS_ACTIVE) {  // this makes an allocation node, and launches pay for it
    if (request.bytes > executor.charge().quota(executor.slot())) return CUDA_ERROR_OUT_OF_MEMORY;
    executor.kept_memory().use_graphs();
    result = driver.cuMemAllocFromPoolAsync(&address, request.bytes, pool, stream);
  } else {
    result = executor.kept_memory().allocate(pool, request.bytes, stream, &address);
  }
  reply.address = address;
  return result;
}

CUresult handle(Executor& executor, const wire::cuda::pool_free_request& request) {
  Scope scope(executor);
  CUstream stream = scope.stream(request.stream);
  if (!scope.ok()) return scope.error();
  const CUresult result = executor.driver().cuMemFreeAsync(request.address, stream);
  if (result == CUDA_SUCCESS) {
    executor.ipc().gone(request.address);
    executor.ipc().closed(request.address);
    executor.kept_memory().freed(request.address);
    if (executor.kept_memory().has_graphs() && !executor.streams().captures(stream))
      executor.kept_memory().note_order(request.stream);
  }
  return result;
}

}  // namespace tendril::worker::cuda
