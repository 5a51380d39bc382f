// SPDX-License-Identifier: Apache-2.0
// Handlers of api/cuda/pool.spec. An allocation is charged before the driver is asked and discharged when its free is
// enqueued: from then on the driver may hand the same bytes to the next allocation of the stream.
#include "api/cuda_handlers.gen.h"
#include "worker/cuda/ipc.h"
#include "worker/cuda/graph_memory.h"
#include "worker/cuda/scope.h"

namespace tendril::worker::cuda {

CUresult handle(Executor& w, const wire::cuda::pool_default_request& m, wire::cuda::pool_default_reply&) {
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

CUresult handle(Executor& w, const wire::cuda::pool_set_attribute_request& m, wire::cuda::pool_set_attribute_reply&) {
  Scope s(w);
  CUmemoryPool pool = s.get<CUmemoryPool>(Kind::kPool, m.pool);
  if (!s.ok()) return s.error();
  uint64_t value = m.value;
  return w.driver().cuMemPoolSetAttribute(pool, static_cast<CUmemPool_attribute>(m.attribute), &value);
}

CUresult handle(Executor& w, const wire::cuda::pool_get_attribute_request& m,
                wire::cuda::pool_get_attribute_reply& r) {
  Scope s(w);
  CUmemoryPool pool = s.get<CUmemoryPool>(Kind::kPool, m.pool);
  if (!s.ok()) return s.error();
  uint64_t room[8] = {};  // larger than any attribute
  const CUresult result = w.driver().cuMemPoolGetAttribute(pool, static_cast<CUmemPool_attribute>(m.attribute), room);
  r.value = room[0];
  return result;
}

CUresult handle(Executor& w, const wire::cuda::pool_allocate_request& m, wire::cuda::pool_allocate_reply& r) {
  if (w.context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  Scope s(w);
  CUstream stream = s.stream(m.stream);
  CUmemoryPool pool = s.get<CUmemoryPool>(Kind::kPool, m.pool);
  if (!s.ok()) return s.error();
  gpu::Driver& d = w.driver();
  uint32_t slot = w.slot();
  CUstreamCaptureStatus capturing = CU_STREAM_CAPTURE_STATUS_NONE;
  if (stream != CU_STREAM_LEGACY) d.cuStreamIsCapturing(stream, &capturing);
  if (capturing == CU_STREAM_CAPTURE_STATUS_ACTIVE) {  // an allocation node: launches pay
    if (m.bytes > w.charge().quota(slot)) return CUDA_ERROR_OUT_OF_MEMORY;
    w.graph_memory().use();
    CUdeviceptr address = 0;
    const CUresult result = d.cuMemAllocFromPoolAsync(&address, m.bytes, pool, stream);
    r.address = address;
    return result;
  }
  if (!w.charge().take(slot, m.bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  CUdeviceptr address = 0;
  CUresult result = d.cuMemAllocFromPoolAsync(&address, m.bytes, pool, stream);
  if (result != CUDA_SUCCESS) {
    w.charge().give_back(slot, m.bytes);
    return result;
  }
  // A pool may lie on another GPU than the stream: that one's slice pays.
  CUdevice device = -1;
  if (d.cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address) == CUDA_SUCCESS &&
      w.slot_of(device) != slot) {
    w.charge().give_back(slot, m.bytes);
    slot = w.slot_of(device);
    if (!w.charge().take(slot, m.bytes)) {
      d.cuMemFreeAsync(address, stream);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
  }
  w.charge().remember(address, slot, m.bytes, w.context());
  r.address = address;
  return CUDA_SUCCESS;
}

CUresult handle(Executor& w, const wire::cuda::pool_free_request& m) {
  Scope s(w);
  CUstream stream = s.stream(m.stream);
  if (!s.ok()) return s.error();
  const CUresult result = w.driver().cuMemFreeAsync(m.address, stream);
  if (result == CUDA_SUCCESS) {
    w.charge().release(m.address);
    w.ipc().gone(m.address);
  }
  return result;
}

}  // namespace tendril::worker::cuda
