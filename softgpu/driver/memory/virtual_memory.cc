// SPDX-License-Identifier: Apache-2.0
// Virtual memory management. A physical allocation is a memory file, mapped into reserved ranges.
// Handles count references: one of the creator, and one of each mapping.

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>

#include "softgpu/driver/device/context.h"
#include "softgpu/driver/device/device.h"
#include "softgpu/driver/entry.h"
#include "softgpu/driver/memory/memory_map.h"

namespace tendril::softgpu {
namespace {

struct Physical {
  CUmemGenericAllocationHandle handle = 0;
  CUmemAllocationProp properties = {};
  size_t bytes = 0;
  int file = -1;
  bool charged = false;
  std::atomic<unsigned> references{1};
  ~Physical() {
    if (file >= 0) close(file);
    if (charged) MemoryMap::instance().discharge(properties.location.id, bytes);
  }
};
using PhysicalPtr = std::shared_ptr<Physical>;
using PhysicalTable = HandleTable<CUmemGenericAllocationHandle, Physical, HandleKind::kAllocation>;

PhysicalTable& physicals() {
  static auto& table = *new PhysicalTable;
  return table;
}

void drop(CUmemGenericAllocationHandle handle) {
  PhysicalPtr physical = physicals().get(handle);
  if (physical && physical->references.fetch_sub(1) == 1) physicals().remove(handle);
}

CUresult check_properties(const CUmemAllocationProp* p) {
  if (p == nullptr || p->type != CU_MEM_ALLOCATION_TYPE_PINNED) return CUDA_ERROR_INVALID_VALUE;
  if (p->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
    return CUDA_ERROR_NOT_SUPPORTED;  // host pools are off in the attributes
  if (device_at(p->location.id) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  unsigned handles = p->requestedHandleTypes;
  return (handles & ~static_cast<unsigned>(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)) != 0
             ? CUDA_ERROR_NOT_SUPPORTED
             : CUDA_SUCCESS;
}

}  // namespace

SOFT(cuMemGetAllocationGranularity)
(size_t* granularity, const CUmemAllocationProp* prop, CUmemAllocationGranularity_flags option) {
  if (granularity == nullptr ||
      static_cast<unsigned>(option) > CU_MEM_ALLOC_GRANULARITY_RECOMMENDED)
    return CUDA_ERROR_INVALID_VALUE;
  if (CUresult bad = check_properties(prop)) return bad;
  *granularity = kPageBytes;
  return CUDA_SUCCESS;
}

SOFT(cuMemAddressReserve)
(CUdeviceptr* ptr, size_t size, size_t alignment, CUdeviceptr addr, unsigned long long flags) {
  if (ptr == nullptr || size == 0 || size % kPageBytes != 0 || flags != 0 ||
      (alignment & (alignment - 1)) != 0)
    return CUDA_ERROR_INVALID_VALUE;
  uint64_t address =
      MemoryMap::instance().reserve(size, std::max<uint64_t>(alignment, kPageBytes), addr);
  if (address == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  *ptr = address;
  return CUDA_SUCCESS;
}

SOFT(cuMemAddressFree)(CUdeviceptr ptr, size_t size) {
  return MemoryMap::instance().unreserve(ptr, size);
}

SOFT(cuMemCreate)
(CUmemGenericAllocationHandle* handle, size_t size, const CUmemAllocationProp* prop,
 unsigned long long flags) {
  if (handle == nullptr || size == 0 || size % kPageBytes != 0 || flags != 0)
    return CUDA_ERROR_INVALID_VALUE;
  if (CUresult bad = check_properties(prop)) return bad;
  auto made = std::make_shared<Physical>();
  made->properties = *prop;
  made->bytes = size;
  if (!MemoryMap::instance().charge(prop->location.id, size)) return CUDA_ERROR_OUT_OF_MEMORY;
  made->charged = true;
  made->file = memfd_create("tendril-softgpu-test-memory", MFD_CLOEXEC);
  if (made->file < 0 || ftruncate(made->file, static_cast<off_t>(size)) != 0)
    return CUDA_ERROR_OUT_OF_MEMORY;
  made->handle = physicals().mint();
  physicals().put(made->handle, made);
  *handle = made->handle;
  return CUDA_SUCCESS;
}

SOFT(cuMemRelease)(CUmemGenericAllocationHandle handle) {
  if (!physicals().get(handle)) return CUDA_ERROR_INVALID_VALUE;
  drop(handle);
  return CUDA_SUCCESS;
}

SOFT(cuMemMap)
(CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
 unsigned long long flags) {
  PhysicalPtr physical = physicals().get(handle);
  if (!physical || flags != 0 || size == 0 || size % kPageBytes != 0 || ptr % kPageBytes != 0 ||
      offset % kPageBytes != 0)
    return CUDA_ERROR_INVALID_VALUE;
  if (offset >= physical->bytes) return CUDA_ERROR_INVALID_VALUE;
  if (size > physical->bytes - offset) return CUDA_ERROR_NOT_SUPPORTED;  // measured on an H200
  CUresult result = MemoryMap::instance().map(ptr, size, physical->file, offset, handle,
                                              physical->properties.location.id);
  if (result == CUDA_SUCCESS) physical->references.fetch_add(1);
  return result;
}

SOFT(cuMemUnmap)(CUdeviceptr ptr, size_t size) {
  if (size == 0 || size % kPageBytes != 0) return CUDA_ERROR_INVALID_VALUE;
  for (auto& [handle, context] : contexts().all()) context->synchronise();
  std::vector<uint64_t> done;
  CUresult result = MemoryMap::instance().unmap(ptr, size, &done);
  for (uint64_t handle : done) drop(handle);
  return result;
}

SOFT(cuMemSetAccess)(CUdeviceptr ptr, size_t size, const CUmemAccessDesc* desc, size_t count) {
  if (desc == nullptr || count == 0 || size == 0) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count; ++i) {
    if (desc[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_NOT_SUPPORTED;
    if (device_at(desc[i].location.id) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
    CUmemAccess_flags flags = desc[i].flags;
    if (flags != CU_MEM_ACCESS_FLAGS_PROT_NONE && flags != CU_MEM_ACCESS_FLAGS_PROT_READ &&
        flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
      return CUDA_ERROR_INVALID_VALUE;
    if (CUresult bad = MemoryMap::instance().set_access(ptr, size, desc[i].location.id,
                                                        flags != CU_MEM_ACCESS_FLAGS_PROT_NONE))
      return bad;
  }
  return CUDA_SUCCESS;
}

SOFT(cuMemGetAccess)(unsigned long long* flags, const CUmemLocation* location, CUdeviceptr ptr) {
  if (flags == nullptr || location == nullptr || location->type != CU_MEM_LOCATION_TYPE_DEVICE)
    return CUDA_ERROR_INVALID_VALUE;
  if (device_at(location->id) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  auto found = MemoryMap::instance().find(ptr);
  if (!found || found->kind != MemoryKind::kMapped) return CUDA_ERROR_INVALID_VALUE;
  *flags = MemoryMap::instance().access(ptr, location->id) > 0 ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
                                                               : CU_MEM_ACCESS_FLAGS_PROT_NONE;
  return CUDA_SUCCESS;
}

SOFT(cuMemRetainAllocationHandle)(CUmemGenericAllocationHandle* handle, void* addr) {
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  auto found = MemoryMap::instance().find(reinterpret_cast<uint64_t>(addr));
  if (!found || found->kind != MemoryKind::kMapped) return CUDA_ERROR_INVALID_VALUE;
  PhysicalPtr physical = physicals().get(found->handle);
  if (!physical) return CUDA_ERROR_INVALID_VALUE;
  physical->references.fetch_add(1);
  *handle = physical->handle;
  return CUDA_SUCCESS;
}

SOFT(cuMemGetAllocationPropertiesFromHandle)
(CUmemAllocationProp* prop, CUmemGenericAllocationHandle handle) {
  PhysicalPtr physical = physicals().get(handle);
  if (!physical || prop == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *prop = physical->properties;
  return CUDA_SUCCESS;
}

SOFT(cuMemExportToShareableHandle)
(void* shareableHandle, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType handleType,
 unsigned long long flags) {
  PhysicalPtr physical = physicals().get(handle);
  if (!physical || shareableHandle == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (handleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
      (physical->properties.requestedHandleTypes & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) == 0)
    return CUDA_ERROR_INVALID_VALUE;
  int copy = fcntl(physical->file, F_DUPFD_CLOEXEC, 0);
  if (copy < 0) return CUDA_ERROR_OPERATING_SYSTEM;
  *static_cast<int*>(shareableHandle) = copy;
  return CUDA_SUCCESS;
}

// A dma-buf's stand-in: the memory file, which begins where the range does.
SOFT(cuMemGetHandleForAddressRange)
(void* handle, CUdeviceptr dptr, size_t size, CUmemRangeHandleType handleType,
 unsigned long long flags) {
  constexpr uint64_t kHostPage = 4096;
  SOFT_CONTEXT(context);
  if (handle == nullptr || size == 0 || dptr % kHostPage != 0 || size % kHostPage != 0 ||
      handleType != CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD)
    return CUDA_ERROR_INVALID_VALUE;
  auto found = MemoryMap::instance().find(dptr);
  if (!found || !found->on_device() || size > found->bytes - (dptr - found->base))
    return CUDA_ERROR_INVALID_VALUE;
  PhysicalPtr physical =
      found->kind == MemoryKind::kMapped ? physicals().get(found->handle) : nullptr;
  // Memory that begins in the middle of a file has no descriptor of its own here.
  if (!physical || flags != 0 || dptr != found->base || physical->bytes != found->bytes)
    return CUDA_ERROR_NOT_SUPPORTED;
  int copy = fcntl(physical->file, F_DUPFD_CLOEXEC, 0);
  if (copy < 0) return CUDA_ERROR_OPERATING_SYSTEM;
  *static_cast<int*>(handle) = copy;
  return CUDA_SUCCESS;
}

SOFT(cuMemImportFromShareableHandle)
(CUmemGenericAllocationHandle* handle, void* osHandle, CUmemAllocationHandleType shHandleType) {
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (shHandleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_NOT_SUPPORTED;
  SOFT_CONTEXT(context);
  struct stat status;
  int file = static_cast<int>(reinterpret_cast<intptr_t>(osHandle));
  if (fstat(file, &status) != 0 || !S_ISREG(status.st_mode) || status.st_size <= 0 ||
      status.st_size % kPageBytes != 0)
    return CUDA_ERROR_UNKNOWN;
  auto made = std::make_shared<Physical>();
  made->properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  made->properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  made->properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, context->device};
  made->bytes = static_cast<size_t>(status.st_size);
  made->file = fcntl(file, F_DUPFD_CLOEXEC, 0);  // the exporter's process pays for the memory
  if (made->file < 0) return CUDA_ERROR_OPERATING_SYSTEM;
  made->handle = physicals().mint();
  physicals().put(made->handle, made);
  *handle = made->handle;
  return CUDA_SUCCESS;
}

}  // namespace tendril::softgpu
