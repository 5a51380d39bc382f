// SPDX-License-Identifier: Apache-2.0
// Plain allocation: device memory, pinned, registered and managed host memory. Stream-ordered
// allocation is in pool.cc, virtual memory in virtual_memory.cc, queries about pointers in
// pointer.cc.

#include <unistd.h>

#include "softgpu/driver/config.h"
#include "softgpu/driver/device/device.h"
#include "softgpu/driver/entry.h"
#include "softgpu/driver/graph/graph_memory.h"
#include "softgpu/driver/memory/card_memory.h"
#include "softgpu/driver/memory/ipc.h"
#include "softgpu/driver/memory/memory_map.h"
#include "softgpu/driver/stream/stream.h"

namespace tendril::softgpu {
namespace {

constexpr size_t kPitchAlign = 512;  // CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT
constexpr unsigned kHostFlags =
    CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;

MemoryMap& map() { return MemoryMap::instance(); }

CUresult allocate(CUdeviceptr* out, size_t bytes) {
  SOFT_CONTEXT(context);
  if (out == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  if (CUresult bad = refuse_during_capture()) return bad;
  uint64_t address =
      map().allocate_device(context->device, bytes, MemoryKind::kDevice, context->handle);
  if (address == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  *out = address;
  return CUDA_SUCCESS;
}

// Freeing waits for work that may still use the memory, as drivers do.
void quiesce(const Allocation& gone) {
  if (ContextPtr owner = contexts().get(gone.context)) owner->synchronise();
}

CUresult host_alloc(void** out, size_t bytes, unsigned flags) {
  SOFT_CONTEXT(context);
  if (out == nullptr || bytes == 0 || (flags & ~kHostFlags) != 0) return CUDA_ERROR_INVALID_VALUE;
  if (CUresult bad = refuse_during_capture()) return bad;
  if (!pin_host(context->device, bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  uint64_t address =
      map().allocate_host(bytes, MemoryKind::kHost, context->device, context->handle, flags);
  if (address == 0) {
    unpin_host(context->device, bytes);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *out = reinterpret_cast<void*>(address);
  return CUDA_SUCCESS;
}

}  // namespace

SOFT(cuMemAlloc_v2)(CUdeviceptr* dptr, size_t bytesize) { return allocate(dptr, bytesize); }

SOFT(cuMemAllocPitch_v2)
(CUdeviceptr* dptr, size_t* pPitch, size_t WidthInBytes, size_t Height,
 unsigned int ElementSizeBytes) {
  SOFT_CONTEXT(context);
  if (pPitch == nullptr || WidthInBytes == 0 || Height == 0) return CUDA_ERROR_INVALID_VALUE;
  if (ElementSizeBytes != 4 && ElementSizeBytes != 8 && ElementSizeBytes != 16)
    return CUDA_ERROR_INVALID_VALUE;
  if (WidthInBytes > 0x7fffffff) return CUDA_ERROR_INVALID_VALUE;  // CU_DEVICE_ATTRIBUTE_MAX_PITCH
  size_t pitch = round_up(WidthInBytes, kPitchAlign);
  if (Height > config().device[context->device].memory_bytes / pitch)
    return CUDA_ERROR_OUT_OF_MEMORY;
  CUresult result = allocate(dptr, pitch * Height);
  if (result == CUDA_SUCCESS) *pPitch = pitch;
  return result;
}

SOFT(cuMemFree_v2)(CUdeviceptr dptr) {
  auto found = map().find(dptr);
  SOFT_CONTEXT_OF(found ? found->context : nullptr, context);
  if (dptr == 0) return CUDA_SUCCESS;
  if (CUresult bad = refuse_during_capture()) return bad;
  if (auto answer = free_graph_memory(dptr)) return *answer;
  if (found && found->base == dptr && found->kind == MemoryKind::kImported &&
      found->pool != nullptr) {
    quiesce(*found);
    drop_import(dptr);
    return context->error();
  }
  if (!found || found->base != dptr ||
      (found->kind != MemoryKind::kDevice && found->kind != MemoryKind::kManaged &&
       found->kind != MemoryKind::kPool))
    return CUDA_ERROR_INVALID_VALUE;
  quiesce(*found);
  auto gone = map().remove(dptr, {MemoryKind::kDevice, MemoryKind::kManaged, MemoryKind::kPool});
  if (!gone) return CUDA_ERROR_INVALID_VALUE;
  freed_at_once(gone->pool, gone->bytes);
  map().free(*gone);
  return context->error();
}

SOFT(cuMemGetInfo_v2)(size_t* free, size_t* total) {
  SOFT_CONTEXT(context);
  uint64_t used = map().used(context->device);
  uint64_t all = config().device[context->device].memory_bytes;
  if (free != nullptr) *free = all - used;
  if (total != nullptr) *total = all;
  return CUDA_SUCCESS;
}

SOFT(cuMemGetAddressRange_v2)(CUdeviceptr* pbase, size_t* psize, CUdeviceptr dptr) {
  SOFT_CONTEXT(context);
  auto found = map().find(dptr);
  if (!found) return CUDA_ERROR_NOT_FOUND;
  if (pbase != nullptr) *pbase = found->base;
  if (psize != nullptr) *psize = found->bytes;
  return CUDA_SUCCESS;
}

SOFT(cuMemHostAlloc)(void** pp, size_t bytesize, unsigned int Flags) {
  return host_alloc(pp, bytesize, Flags);
}
SOFT(cuMemAllocHost_v2)(void** pp, size_t bytesize) { return host_alloc(pp, bytesize, 0); }
SOFT(cuMemAllocHost)(void** pp, unsigned int bytesize) { return host_alloc(pp, bytesize, 0); }

SOFT(cuMemFreeHost)(void* p) {
  auto found = map().find(reinterpret_cast<uint64_t>(p));
  SOFT_CONTEXT_OF(found ? found->context : nullptr, context);
  if (p == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!found || found->kind != MemoryKind::kHost || found->base != reinterpret_cast<uint64_t>(p))
    return CUDA_ERROR_INVALID_VALUE;
  quiesce(*found);
  auto gone = map().remove(found->base, {MemoryKind::kHost});
  if (!gone) return CUDA_ERROR_INVALID_VALUE;
  unpin_host(gone->device, gone->bytes);
  map().free(*gone);
  return CUDA_SUCCESS;
}

SOFT(cuMemHostRegister_v2)(void* p, size_t bytesize, unsigned int Flags) {
  constexpr unsigned kAll = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP |
                            CU_MEMHOSTREGISTER_IOMEMORY | CU_MEMHOSTREGISTER_READ_ONLY;
  SOFT_CONTEXT(context);
  uint64_t address = reinterpret_cast<uint64_t>(p);
  if (p == nullptr || bytesize == 0 || (Flags & ~kAll) != 0 || address + bytesize < address ||
      address + bytesize > 1ull << 47)
    return CUDA_ERROR_INVALID_VALUE;
  if ((Flags & CU_MEMHOSTREGISTER_IOMEMORY) != 0) return CUDA_ERROR_NOT_SUPPORTED;
  if (!pin_host(context->device, bytesize)) return CUDA_ERROR_OUT_OF_MEMORY;
  const CUresult result =
      map().register_host(address, bytesize, context->device, context->handle, Flags);
  if (result != CUDA_SUCCESS) unpin_host(context->device, bytesize);
  return result;
}
SOFT(cuMemHostRegister)(void* p, size_t bytesize, unsigned int Flags) {
  return soft_cuMemHostRegister_v2(p, bytesize, Flags);
}

SOFT(cuMemHostUnregister)(void* p) {
  auto found = map().find(reinterpret_cast<uint64_t>(p));
  SOFT_CONTEXT_OF(found ? found->context : nullptr, context);
  if (p == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!found || found->kind != MemoryKind::kRegistered ||
      found->base != reinterpret_cast<uint64_t>(p))
    return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
  quiesce(*found);
  auto gone = map().remove(found->base, {MemoryKind::kRegistered});
  if (!gone) return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
  unpin_host(gone->device, gone->bytes);
  std::unique_lock running(map().execution());  // nobody reads it from here on
  return CUDA_SUCCESS;
}

SOFT(cuMemHostGetDevicePointer_v2)(CUdeviceptr* pdptr, void* p, unsigned int Flags) {
  SOFT_CONTEXT(context);
  if (pdptr == nullptr || p == nullptr || Flags != 0) return CUDA_ERROR_INVALID_VALUE;
  auto found = map().find(reinterpret_cast<uint64_t>(p));
  if (!found || !found->pinned_host()) return CUDA_ERROR_INVALID_VALUE;
  *pdptr = reinterpret_cast<uint64_t>(p);
  return CUDA_SUCCESS;
}

SOFT(cuMemHostGetFlags)(unsigned int* pFlags, void* p) {
  SOFT_CONTEXT(context);
  if (pFlags == nullptr) return CUDA_ERROR_INVALID_VALUE;
  auto found = map().find(reinterpret_cast<uint64_t>(p));
  if (!found || !found->pinned_host()) return CUDA_ERROR_INVALID_VALUE;
  *pFlags = found->flags | CU_MEMHOSTALLOC_DEVICEMAP;  // unified addressing maps all of it
  return CUDA_SUCCESS;
}

SOFT(cuMemAllocManaged)(CUdeviceptr* dptr, size_t bytesize, unsigned int flags) {
  SOFT_CONTEXT(context);
  if (dptr == nullptr || bytesize == 0 ||
      (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST))
    return CUDA_ERROR_INVALID_VALUE;
  if (CUresult bad = refuse_during_capture()) return bad;
  uint64_t address =
      map().allocate_host(bytesize, MemoryKind::kManaged, context->device, context->handle, flags);
  if (address == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  *dptr = address;
  return CUDA_SUCCESS;
}

}  // namespace tendril::softgpu
