// SPDX-License-Identifier: Apache-2.0
// Calls that have nothing to do here and must still answer correctly: profiler switches, hints for
// managed memory, flushes.

#include <cstring>

#include "softgpu/driver/device/context.h"
#include "softgpu/driver/device/device.h"
#include "softgpu/driver/entry.h"
#include "softgpu/driver/memory/memory_map.h"
#include "softgpu/driver/stream/stream.h"

namespace tendril::softgpu {
namespace {

CUresult managed_range(CUdeviceptr address, size_t bytes) {
  auto found = MemoryMap::instance().find(address);
  if (!found || found->kind != MemoryKind::kManaged || bytes == 0 ||
      bytes > found->bytes - (address - found->base))
    return CUDA_ERROR_INVALID_VALUE;
  return CUDA_SUCCESS;
}

CUresult check_location(const CUmemLocation& location) {
  switch (location.type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
      return device_at(location.id) == nullptr ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
    case CU_MEM_LOCATION_TYPE_HOST:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT:
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUmemLocation location_of(CUdevice device) {
  return device == CU_DEVICE_CPU ? CUmemLocation{CU_MEM_LOCATION_TYPE_HOST, 0}
                                 : CUmemLocation{CU_MEM_LOCATION_TYPE_DEVICE, device};
}

}  // namespace

SOFT(cuProfilerStart)() {
  SOFT_CONTEXT(context);
  return CUDA_SUCCESS;
}
SOFT(cuProfilerStop)() {
  SOFT_CONTEXT(context);
  return CUDA_SUCCESS;
}
SOFT(cuProfilerInitialize)
(const char* configFile, const char* outputFile, CUoutput_mode outputMode) {
  return CUDA_ERROR_NOT_SUPPORTED;
}

SOFT(cuFlushGPUDirectRDMAWrites)
(CUflushGPUDirectRDMAWritesTarget target, CUflushGPUDirectRDMAWritesScope scope) {
  SOFT_CONTEXT(context);
  const bool known = target == CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX &&
                     (scope == CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER ||
                      scope == CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_ALL_DEVICES);
  return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;  // what others write is there at once
}

SOFT(cuMemPrefetchAsync_v2)
(CUdeviceptr devPtr, size_t count, CUmemLocation location, unsigned int flags, CUstream hStream) {
  StreamPtr stream;
  ContextPtr context;
  if (CUresult bad = find_stream(hStream, &stream, &context)) return bad;
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (CUresult bad = check_location(location)) return bad;
  return managed_range(devPtr, count);
}

SOFT(cuMemPrefetchAsync)(CUdeviceptr devPtr, size_t count, CUdevice dstDevice, CUstream hStream) {
  return soft_cuMemPrefetchAsync_v2(devPtr, count, location_of(dstDevice), 0, hStream);
}

SOFT(cuMemAdvise_v2)
(CUdeviceptr devPtr, size_t count, CUmem_advise advice, CUmemLocation location) {
  if (advice < CU_MEM_ADVISE_SET_READ_MOSTLY || advice > CU_MEM_ADVISE_UNSET_ACCESSED_BY)
    return CUDA_ERROR_INVALID_VALUE;
  SOFT_CONTEXT(context);
  return managed_range(devPtr, count);
}

SOFT(cuMemAdvise)(CUdeviceptr devPtr, size_t count, CUmem_advise advice, CUdevice device) {
  return soft_cuMemAdvise_v2(devPtr, count, advice, location_of(device));
}

SOFT(cuMemDiscardBatchAsync)
(CUdeviceptr* dptrs, size_t* sizes, size_t count, unsigned long long flags, CUstream hStream) {
  StreamPtr stream;
  ContextPtr context;
  if (CUresult bad = find_stream(hStream, &stream, &context)) return bad;
  if (count == 0 || dptrs == nullptr || sizes == nullptr || flags != 0 || stream->is_legacy)
    return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count; ++i)
    if (CUresult bad = managed_range(dptrs[i], sizes[i])) return bad;
  return CUDA_SUCCESS;
}
SOFT(cuMemPrefetchBatchAsync)
(CUdeviceptr* dptrs, size_t* sizes, size_t count, CUmemLocation* locations, size_t* indices,
 size_t locationCount, unsigned long long flags, CUstream hStream) {
  if (locations == nullptr || indices == nullptr || locationCount == 0 || locationCount > count)
    return CUDA_ERROR_INVALID_VALUE;
  return soft_cuMemDiscardBatchAsync(dptrs, sizes, count, flags, hStream);
}
SOFT(cuMemDiscardAndPrefetchBatchAsync)
(CUdeviceptr* dptrs, size_t* sizes, size_t count, CUmemLocation* locations, size_t* indices,
 size_t locationCount, unsigned long long flags, CUstream hStream) {
  return soft_cuMemPrefetchBatchAsync(dptrs, sizes, count, locations, indices, locationCount, flags,
                                      hStream);
}

SOFT(cuLogsCurrent)(CUlogIterator* iterator_out, unsigned int flags) {
  if (iterator_out == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  *iterator_out = 0;
  return CUDA_SUCCESS;
}
SOFT(cuLogsDumpToMemory)
(CUlogIterator* iterator, char* buffer, size_t* size, unsigned int flags) {
  if (buffer == nullptr || size == nullptr || *size == 0 || flags != 0)
    return CUDA_ERROR_INVALID_VALUE;
  buffer[0] = '\0';
  *size = 0;
  return CUDA_SUCCESS;
}

SOFT(cuMemRangeGetAttribute)
(void* data, size_t dataSize, CUmem_range_attribute attribute, CUdeviceptr devPtr, size_t count) {
  if (data == nullptr || dataSize == 0 || dataSize % 4 != 0) return CUDA_ERROR_INVALID_VALUE;
  SOFT_CONTEXT(context);
  if (CUresult bad = managed_range(devPtr, count)) return bad;
  int none = attribute == CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY ||
                     attribute == CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE ||
                     attribute == CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE
                 ? 0
                 : CU_DEVICE_INVALID;
  if (attribute < CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY ||
      attribute > CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID)
    return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < dataSize / 4; ++i) memcpy(static_cast<char*>(data) + 4 * i, &none, 4);
  return CUDA_SUCCESS;
}

SOFT(cuMemRangeGetAttributes)
(void** data, size_t* dataSizes, CUmem_range_attribute* attributes, size_t numAttributes,
 CUdeviceptr devPtr, size_t count) {
  if (data == nullptr || dataSizes == nullptr || attributes == nullptr || numAttributes == 0)
    return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < numAttributes; ++i)
    if (CUresult bad =
            soft_cuMemRangeGetAttribute(data[i], dataSizes[i], attributes[i], devPtr, count))
      return bad;
  return CUDA_SUCCESS;
}

}  // namespace tendril::softgpu
