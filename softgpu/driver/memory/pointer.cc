// SPDX-License-Identifier: Apache-2.0
// Queries about pointers.

#include <cstring>

#include "softgpu/driver/device/context.h"
#include "softgpu/driver/entry.h"
#include "softgpu/driver/memory/memory_map.h"

namespace tendril::softgpu {
namespace {

template <typename T>
CUresult put(void* data, T value) {
  memcpy(data, &value, sizeof value);
  return CUDA_SUCCESS;
}

// Ranges of address space that the program reserved but did not map.
CUresult reserved_only(void* data, CUpointer_attribute attribute,
                       const std::pair<uint64_t, uint64_t>& range) {
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      return put<uint64_t>(data, range.first);
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      return put<size_t>(data, range.second);
    case CU_POINTER_ATTRIBUTE_MAPPED:
      return put<unsigned>(data, 0);
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult answer(void* data, CUpointer_attribute attribute, const Allocation& in, uint64_t address) {
  bool managed = in.kind == MemoryKind::kManaged;
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      return put<CUcontext>(data, in.kind == MemoryKind::kMapped || in.kind == MemoryKind::kPool
                                      ? nullptr
                                      : in.context);
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      return put<unsigned>(data,
                           in.on_device() || managed ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST);
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      return put<uint64_t>(data, address);
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      return in.on_device() ? CUDA_ERROR_INVALID_VALUE : put<uint64_t>(data, address);
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
      return put<unsigned>(data, in.sync_memops);
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
      return put<uint64_t>(data, in.id);
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
      return put<unsigned>(data, managed);
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      return put<int>(data, in.device);
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
      return put<unsigned>(data, in.kind == MemoryKind::kDevice);
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      return put<uint64_t>(data, in.base);
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      return put<size_t>(data, in.bytes);
    case CU_POINTER_ATTRIBUTE_MAPPED:
      return put<unsigned>(data, 1);
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
      return put<uint64_t>(data, in.kind == MemoryKind::kMapped
                                     ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
                                     : CU_MEM_HANDLE_TYPE_NONE);
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
      return put<unsigned>(data, 0);
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
      return put<unsigned>(data, CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE);
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
      return put<CUmemoryPool>(data, in.pool);
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
      return put<size_t>(data, in.bytes);
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
      return put<uint64_t>(data, in.base);
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
      return put<uint64_t>(data, in.id);
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
      return put<unsigned>(data, 0);
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

// cuPointerGetAttributes answers unknown pointers with zeros. Only the device number has another
// value for "none".
void answer_unknown(void* data, CUpointer_attribute attribute) {
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      put<int>(data, -2);
      break;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_MAPPED:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
      put<unsigned>(data, 0);
      break;
    default:
      put<uint64_t>(data, 0);
  }
}

}  // namespace

SOFT(cuPointerGetAttribute)(void* data, CUpointer_attribute attribute, CUdeviceptr ptr) {
  if (data == nullptr || attribute < CU_POINTER_ATTRIBUTE_CONTEXT ||
      attribute > CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE)
    return CUDA_ERROR_INVALID_VALUE;
  SOFT_CONTEXT(context);
  auto found = MemoryMap::instance().find(ptr);
  if (found) return answer(data, attribute, *found, ptr);
  if (auto range = MemoryMap::instance().reservation_of(ptr))
    return reserved_only(data, attribute, *range);
  return CUDA_ERROR_INVALID_VALUE;
}

SOFT(cuPointerGetAttributes)
(unsigned int numAttributes, CUpointer_attribute* attributes, void** data, CUdeviceptr ptr) {
  if (numAttributes == 0 || attributes == nullptr || data == nullptr)
    return CUDA_ERROR_INVALID_VALUE;
  // Unlike the singular form this needs no current context. A current context that has failed still
  // says so.
  ContextPtr context;
  const CUresult usable = usable_context(&context);
  if (usable != CUDA_SUCCESS && usable != CUDA_ERROR_INVALID_CONTEXT) return usable;
  auto found = MemoryMap::instance().find(ptr);
  auto range = MemoryMap::instance().reservation_of(ptr);
  for (unsigned i = 0; i < numAttributes; ++i) {
    if (data[i] == nullptr || attributes[i] < CU_POINTER_ATTRIBUTE_CONTEXT ||
        attributes[i] > CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE)
      return CUDA_ERROR_INVALID_VALUE;
    CUresult result = found   ? answer(data[i], attributes[i], *found, ptr)
                      : range ? reserved_only(data[i], attributes[i], *range)
                              : CUDA_ERROR_INVALID_VALUE;
    if (result != CUDA_SUCCESS) answer_unknown(data[i], attributes[i]);
  }
  return CUDA_SUCCESS;
}

SOFT(cuPointerSetAttribute)(const void* value, CUpointer_attribute attribute, CUdeviceptr ptr) {
  if (value == nullptr || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS)
    return CUDA_ERROR_INVALID_VALUE;
  SOFT_CONTEXT(context);
  unsigned wanted = *static_cast<const unsigned*>(value);
  bool known =
      MemoryMap::instance().update(ptr, [&](Allocation& in) { in.sync_memops = wanted != 0; });
  return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace tendril::softgpu
