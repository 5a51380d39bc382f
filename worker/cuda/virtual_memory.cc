// SPDX-License-Identifier: Apache-2.0
// Handlers of api/cuda/virtual_memory.spec: reservations, physical memory under the quota,
// mappings.
#include "worker/cuda/virtual_memory.h"

#include "api/cuda_handlers.gen.h"
#include "worker/cuda/executor/scope.h"
#include "worker/cuda/ipc.h"
#include "worker/cuda/memory/kept_memory.h"
#include "worker/cuda/memory/mirror.h"

namespace tendril::worker::cuda {

void VirtualMemory::drop_if_unused(Executor& executor, uint64_t handle) {
  auto it = physical_.find(handle);
  if (it == physical_.end()) return;
  const Physical& physical = it->second;
  if (physical.handles != 0 || physical.mappings != 0 || physical.descriptors != 0) return;
  const Physical gone = physical;
  physical_.erase(it);
  // If others have it open, tendrild charges it before this worker stops paying.
  executor.ipc().gone(handle);
  executor.ipc().closed(handle);
  if (gone.ours) executor.charge().give_back(gone.slot, gone.bytes);
}

CUresult VirtualMemory::release(Executor& executor, uint64_t handle) {
  auto it = physical_.find(handle);
  const bool known = it != physical_.end() && it->second.handles != 0;
  if (known && it->second.handles == 1 && it->second.descriptors != 0 && !it->second.kept) {
    it->second.kept = true;
  } else if (const CUresult result = executor.driver().cuMemRelease(handle)) {
    return result;
  }
  if (known) --it->second.handles;
  drop_if_unused(executor, handle);
  return CUDA_SUCCESS;
}

void VirtualMemory::descriptor_closed(Executor& executor, uint64_t handle) {
  auto it = physical_.find(handle);
  if (it == physical_.end() || it->second.descriptors == 0) return;
  if (--it->second.descriptors == 0 && it->second.kept) {
    it->second.kept = false;
    executor.driver().cuMemRelease(handle);
  }
  drop_if_unused(executor, handle);
}

CUresult handle(Executor& executor, const wire::cuda::vm_reserve_request& request,
                wire::cuda::vm_reserve_reply& reply) {
  if (executor.driver().cuMemAddressReserve == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  CUdeviceptr address = 0;
  // Another server's driver may have chosen the address.
  if (request.wished != 0 && request.size <= UINT64_MAX - request.wished)
    executor.mirrors().vacate(request.wished, request.wished + request.size);
  const CUresult result = executor.driver().cuMemAddressReserve(
      &address, request.size, request.alignment, request.wished, request.flags);
  reply.address = address;
  return result;
}

CUresult handle(Executor& executor, const wire::cuda::vm_release_range_request& request,
                wire::cuda::vm_release_range_reply&) {
  return executor.driver().cuMemAddressFree(request.address, request.size);
}

CUresult handle(Executor& executor, const wire::cuda::vm_create_request& request,
                wire::cuda::vm_create_reply&) {
  Scope scope(executor);
  CUmemAllocationProp prop;
  if (!scope.image(request.properties, &prop)) return scope.error();
  if (prop.location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_NOT_SUPPORTED;
  const uint32_t slot = static_cast<uint32_t>(prop.location.id);
  prop = scope.resolve(prop);
  prop.win32HandleMetaData = nullptr;
  if (!scope.ok()) return scope.error();
  gpu::Driver& driver = executor.driver();
  if (driver.cuMemCreate == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  if (!executor.charge().take(slot, request.size)) {
    // If the driver would refuse the size anyway, the call answers the driver's error.
    size_t granularity = 0;
    const CUresult known =
        driver.cuMemGetAllocationGranularity(&granularity, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
    if (known != CUDA_SUCCESS) return known;
    return granularity != 0 && request.size % granularity != 0 ? CUDA_ERROR_INVALID_VALUE
                                                               : CUDA_ERROR_OUT_OF_MEMORY;
  }
  CUmemGenericAllocationHandle handle = 0;
  CUresult result = driver.cuMemCreate(&handle, request.size, &prop, request.flags);
  if (result == CUDA_SUCCESS && !executor.objects().bind(Kind::kAllocation, request.handle,
                                                         reinterpret_cast<void*>(handle))) {
    driver.cuMemRelease(handle);
    result = CUDA_ERROR_INVALID_HANDLE;
  }
  if (result == CUDA_SUCCESS)
    executor.virtual_memory().created(handle, slot, request.size);
  else
    executor.charge().give_back(slot, request.size);
  if (result != CUDA_SUCCESS) executor.kept_memory().refused(result, slot, request.size);
  return result;
}

CUresult handle(Executor& executor, const wire::cuda::vm_release_request& request) {
  Scope scope(executor);
  const auto handle = scope.get<CUmemGenericAllocationHandle>(Kind::kAllocation, request.handle);
  if (!scope.ok()) return scope.error();
  const CUresult result = executor.virtual_memory().release(executor, handle);
  if (result == CUDA_SUCCESS) scope.unbind(Kind::kAllocation, request.handle);
  return result;
}

CUresult handle(Executor& executor, const wire::cuda::vm_map_request& request,
                wire::cuda::vm_map_reply&) {
  Scope scope(executor);
  const auto handle = scope.get<CUmemGenericAllocationHandle>(Kind::kAllocation, request.handle);
  if (!scope.ok()) return scope.error();
  const CUresult result = executor.driver().cuMemMap(request.address, request.size, request.offset,
                                                     handle, request.flags);
  if (result == CUDA_SUCCESS)
    executor.virtual_memory().mapped(request.address, request.size, handle);
  return result;
}

CUresult handle(Executor& executor, const wire::cuda::vm_unmap_request& request,
                wire::cuda::vm_unmap_reply&) {
  const CUresult result = executor.driver().cuMemUnmap(request.address, request.size);
  if (result == CUDA_SUCCESS)
    executor.virtual_memory().unmapped(executor, request.address, request.size);
  return result;
}

CUresult handle(Executor& executor, const wire::cuda::vm_set_access_request& request,
                wire::cuda::vm_set_access_reply&) {
  Scope scope(executor);
  const uint64_t count = request.descriptors.count / sizeof(CUmemAccessDesc);
  if (count == 0 || request.descriptors.count % sizeof(CUmemAccessDesc) != 0)
    return CUDA_ERROR_INVALID_VALUE;
  const wire::Array<CUmemAccessDesc> sent = {
      reinterpret_cast<const CUmemAccessDesc*>(request.descriptors.data), count};
  const CUmemAccessDesc* descriptors = scope.resolve_all(sent);
  if (!scope.ok()) return scope.error();
  return executor.driver().cuMemSetAccess(request.address, request.size, descriptors, count);
}

CUresult handle(Executor& executor, const wire::cuda::vm_get_access_request& request,
                wire::cuda::vm_get_access_reply& reply) {
  Scope scope(executor);
  CUmemLocation location;
  if (!scope.image(request.location, &location)) return scope.error();
  location = scope.resolve(location);
  if (!scope.ok()) return scope.error();
  unsigned long long flags = 0;
  const CUresult result = executor.driver().cuMemGetAccess(&flags, &location, request.address);
  reply.flags = flags;
  return result;
}

CUresult handle(Executor& executor, const wire::cuda::vm_retain_request& request,
                wire::cuda::vm_retain_reply&) {
  gpu::Driver& driver = executor.driver();
  if (driver.cuMemRetainAllocationHandle == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  CUmemGenericAllocationHandle handle = 0;
  const CUresult result =
      driver.cuMemRetainAllocationHandle(&handle, reinterpret_cast<void*>(request.address));
  if (result != CUDA_SUCCESS) return result;
  if (!executor.objects().bind(Kind::kAllocation, request.handle,
                               reinterpret_cast<void*>(handle))) {
    driver.cuMemRelease(handle);
    return CUDA_ERROR_INVALID_HANDLE;
  }
  executor.virtual_memory().retained(handle);
  return CUDA_SUCCESS;
}

}  // namespace tendril::worker::cuda
