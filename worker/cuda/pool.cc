// SPDX-License-Identifier: Apache-2.0
// Handlers of api/cuda/pool.spec. A slice pays for what its pools hold (kept_memory.h), whether or
// not it is in use: from the moment that a free is enqueued the driver may hand the same bytes to
// the next allocation of the stream.
#include "api/cuda_handlers.gen.h"
#include "worker/cuda/executor/scope.h"
#include "worker/cuda/ipc.h"
#include "worker/cuda/memory/kept_memory.h"

namespace tendril::worker::cuda {

CUresult handle(Executor& w, const wire::cuda::pool_default_request& m,
                wire::cuda::pool_default_reply&) {
  Scope s(w);
  const CUdevice device = s.device(m.slot);
  if (!s.ok()) return s.error();
  if (w.driver().cuDeviceGetDefaultMemPool == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  CUmemoryPool pool = nullptr;
  const CUresult result = w.driver().cuDeviceGetDefaultMemPool(&pool, device);
  if (result != CUDA_SUCCESS) return result;
  return w.objects().bind(Kind::kPool, m.pool, pool) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult handle(Executor& w, const wire::cuda::pool_set_request& m, wire::cuda::pool_set_reply&) {
  Scope s(w);
  const CUdevice device = s.device(m.slot);
  CUmemoryPool pool = s.get<CUmemoryPool>(Kind::kPool, m.pool);
  if (!s.ok()) return s.error();
  return w.driver().cuDeviceSetMemPool(device, pool);
}

CUresult handle(Executor& w, const wire::cuda::pool_set_attribute_request& m,
                wire::cuda::pool_set_attribute_reply&) {
  Scope s(w);
  CUmemoryPool pool = s.get<CUmemoryPool>(Kind::kPool, m.pool);
  if (!s.ok()) return s.error();
  uint64_t value = m.value;
  return w.driver().cuMemPoolSetAttribute(pool, static_cast<CUmemPool_attribute>(m.attribute),
                                          &value);
}

CUresult handle(Executor& w, const wire::cuda::pool_get_attribute_request& m,
                wire::cuda::pool_get_attribute_reply& r) {
  Scope s(w);
  CUmemoryPool pool = s.get<CUmemoryPool>(Kind::kPool, m.pool);
  if (!s.ok()) return s.error();
  uint64_t room[8] = {};  // larger than any attribute
  const CUresult result =
      w.driver().cuMemPoolGetAttribute(pool, static_cast<CUmemPool_attribute>(m.attribute), room);
  r.value = room[0];
  return result;
}

CUresult handle(Executor& w, const wire::cuda::pool_destroy_request& m,
                wire::cuda::pool_destroy_reply&) {
  Scope s(w);
  CUmemoryPool pool = s.get<CUmemoryPool>(Kind::kPool, m.pool);
  if (!s.ok()) return s.error();
  const auto destroy = w.driver().cuMemPoolDestroy;
  if (destroy == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  w.kept_memory().destroying(pool);
  const CUresult result = destroy(pool);
  if (result == CUDA_SUCCESS) s.unbind(Kind::kPool, m.pool);
  return result;
}

CUresult handle(Executor& w, const wire::cuda::pool_trim_request& m, wire::cuda::pool_trim_reply&) {
  Scope s(w);
  CUmemoryPool pool = s.get<CUmemoryPool>(Kind::kPool, m.pool);
  if (!s.ok()) return s.error();
  if (w.driver().cuMemPoolTrimTo == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  const CUresult result = w.driver().cuMemPoolTrimTo(pool, m.bytes);
  w.kept_memory().settle_pools();
  return result;
}

CUresult handle(Executor& w, const wire::cuda::pool_allocate_request& m,
                wire::cuda::pool_allocate_reply& r) {
  if (w.context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  Scope s(w);
  CUstream stream = s.stream(m.stream);
  CUmemoryPool pool = s.get<CUmemoryPool>(Kind::kPool, m.pool);
  if (!s.ok()) return s.error();
  gpu::Driver& d = w.driver();
  CUdeviceptr address = 0;
  CUresult result = CUDA_SUCCESS;
  CUstreamCaptureStatus capturing = CU_STREAM_CAPTURE_STATUS_NONE;
  if (stream != CU_STREAM_LEGACY) d.cuStreamIsCapturing(stream, &capturing);
  if (capturing == CU_STREAM_CAPTURE_STATUS_ACTIVE) {  // an allocation node: launches pay
    if (m.bytes > w.charge().quota(w.slot())) return CUDA_ERROR_OUT_OF_MEMORY;
    w.kept_memory().use_graphs();
    result = d.cuMemAllocFromPoolAsync(&address, m.bytes, pool, stream);
  } else {
    result = w.kept_memory().allocate(pool, m.bytes, stream, &address);
  }
  r.address = address;
  return result;
}

CUresult handle(Executor& w, const wire::cuda::pool_free_request& m) {
  Scope s(w);
  CUstream stream = s.stream(m.stream);
  if (!s.ok()) return s.error();
  const CUresult result = w.driver().cuMemFreeAsync(m.address, stream);
  if (result == CUDA_SUCCESS) {
    w.kept_memory().freed(m.address);
    w.ipc().gone(m.address);
  }
  return result;
}

}  // namespace tendril::worker::cuda
