// SPDX-License-Identifier: Apache-2.0
// Handlers of api/cuda/virtual_memory.spec: reservations, physical memory under the quota,
// mappings.
#include "worker/cuda/virtual_memory.h"

#include "api/cuda_handlers.gen.h"
#include "worker/cuda/executor/scope.h"
#include "worker/cuda/ipc.h"

namespace tendril::worker::cuda {

void VirtualMemory::drop_if_unused(Executor& w, uint64_t handle) {
  auto it = physical_.find(handle);
  if (it == physical_.end()) return;
  const Physical& physical = it->second;
  if (physical.handles != 0 || physical.mappings != 0 || physical.descriptors != 0) return;
  if (it->second.ours) w.charge().give_back(it->second.slot, it->second.bytes);
  physical_.erase(it);
  w.ipc().gone(handle);
  w.ipc().closed(handle);
}

CUresult VirtualMemory::release(Executor& w, uint64_t handle) {
  auto it = physical_.find(handle);
  const bool known = it != physical_.end() && it->second.handles != 0;
  if (known && it->second.handles == 1 && it->second.descriptors != 0 && !it->second.kept) {
    it->second.kept = true;
  } else if (const CUresult result = w.driver().cuMemRelease(handle)) {
    return result;
  }
  if (known) --it->second.handles;
  drop_if_unused(w, handle);
  return CUDA_SUCCESS;
}

void VirtualMemory::descriptor_closed(Executor& w, uint64_t handle) {
  auto it = physical_.find(handle);
  if (it == physical_.end() || it->second.descriptors == 0) return;
  if (--it->second.descriptors == 0 && it->second.kept) {
    it->second.kept = false;
    w.driver().cuMemRelease(handle);
  }
  drop_if_unused(w, handle);
}

CUresult handle(Executor& w, const wire::cuda::vm_reserve_request& m,
                wire::cuda::vm_reserve_reply& r) {
  if (w.driver().cuMemAddressReserve == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  CUdeviceptr address = 0;
  const CUresult result =
      w.driver().cuMemAddressReserve(&address, m.size, m.alignment, m.wished, m.flags);
  r.address = address;
  return result;
}

CUresult handle(Executor& w, const wire::cuda::vm_release_range_request& m,
                wire::cuda::vm_release_range_reply&) {
  return w.driver().cuMemAddressFree(m.address, m.size);
}

CUresult handle(Executor& w, const wire::cuda::vm_create_request& m, wire::cuda::vm_create_reply&) {
  Scope s(w);
  CUmemAllocationProp prop;
  if (!s.image(m.properties, &prop)) return s.error();
  if (prop.location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_NOT_SUPPORTED;
  const uint32_t slot = static_cast<uint32_t>(prop.location.id);
  prop = s.resolve(prop);
  prop.win32HandleMetaData = nullptr;
  if (!s.ok()) return s.error();
  gpu::Driver& d = w.driver();
  if (d.cuMemCreate == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  if (!w.charge().take(slot, m.size)) {
    // A size that the driver would refuse anyway keeps its own error.
    size_t granularity = 0;
    const CUresult known =
        d.cuMemGetAllocationGranularity(&granularity, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
    if (known != CUDA_SUCCESS) return known;
    return granularity != 0 && m.size % granularity != 0 ? CUDA_ERROR_INVALID_VALUE
                                                         : CUDA_ERROR_OUT_OF_MEMORY;
  }
  CUmemGenericAllocationHandle handle = 0;
  CUresult result = d.cuMemCreate(&handle, m.size, &prop, m.flags);
  if (result == CUDA_SUCCESS &&
      !w.objects().bind(Kind::kAllocation, m.handle, reinterpret_cast<void*>(handle))) {
    d.cuMemRelease(handle);
    result = CUDA_ERROR_INVALID_HANDLE;
  }
  if (result == CUDA_SUCCESS)
    w.virtual_memory().created(handle, slot, m.size);
  else
    w.charge().give_back(slot, m.size);
  return result;
}

CUresult handle(Executor& w, const wire::cuda::vm_release_request& m) {
  Scope s(w);
  const auto handle = s.get<CUmemGenericAllocationHandle>(Kind::kAllocation, m.handle);
  if (!s.ok()) return s.error();
  const CUresult result = w.virtual_memory().release(w, handle);
  if (result == CUDA_SUCCESS) s.unbind(Kind::kAllocation, m.handle);
  return result;
}

CUresult handle(Executor& w, const wire::cuda::vm_map_request& m, wire::cuda::vm_map_reply&) {
  Scope s(w);
  const auto handle = s.get<CUmemGenericAllocationHandle>(Kind::kAllocation, m.handle);
  if (!s.ok()) return s.error();
  const CUresult result = w.driver().cuMemMap(m.address, m.size, m.offset, handle, m.flags);
  if (result == CUDA_SUCCESS) w.virtual_memory().mapped(m.address, m.size, handle);
  return result;
}

CUresult handle(Executor& w, const wire::cuda::vm_unmap_request& m, wire::cuda::vm_unmap_reply&) {
  const CUresult result = w.driver().cuMemUnmap(m.address, m.size);
  if (result == CUDA_SUCCESS) w.virtual_memory().unmapped(w, m.address, m.size);
  return result;
}

CUresult handle(Executor& w, const wire::cuda::vm_set_access_request& m,
                wire::cuda::vm_set_access_reply&) {
  Scope s(w);
  const uint64_t count = m.descriptors.count / sizeof(CUmemAccessDesc);
  if (count == 0 || m.descriptors.count % sizeof(CUmemAccessDesc) != 0)
    return CUDA_ERROR_INVALID_VALUE;
  const wire::Array<CUmemAccessDesc> sent = {
      reinterpret_cast<const CUmemAccessDesc*>(m.descriptors.data), count};
  const CUmemAccessDesc* descriptors = s.resolve_all(sent);
  if (!s.ok()) return s.error();
  return w.driver().cuMemSetAccess(m.address, m.size, descriptors, count);
}

CUresult handle(Executor& w, const wire::cuda::vm_get_access_request& m,
                wire::cuda::vm_get_access_reply& r) {
  Scope s(w);
  CUmemLocation location;
  if (!s.image(m.location, &location)) return s.error();
  location = s.resolve(location);
  if (!s.ok()) return s.error();
  unsigned long long flags = 0;
  const CUresult result = w.driver().cuMemGetAccess(&flags, &location, m.address);
  r.flags = flags;
  return result;
}

CUresult handle(Executor& w, const wire::cuda::vm_retain_request& m, wire::cuda::vm_retain_reply&) {
  gpu::Driver& d = w.driver();
  if (d.cuMemRetainAllocationHandle == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  CUmemGenericAllocationHandle handle = 0;
  const CUresult result =
      d.cuMemRetainAllocationHandle(&handle, reinterpret_cast<void*>(m.address));
  if (result != CUDA_SUCCESS) return result;
  if (!w.objects().bind(Kind::kAllocation, m.handle, reinterpret_cast<void*>(handle))) {
    d.cuMemRelease(handle);
    return CUDA_ERROR_INVALID_HANDLE;
  }
  w.virtual_memory().retained(handle);
  return CUDA_SUCCESS;
}

}  // namespace tendril::worker::cuda
