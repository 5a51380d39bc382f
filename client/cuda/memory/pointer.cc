// SPDX-License-Identifier: Apache-2.0
// Pointer attributes, answered from the map of ranges: PyTorch and the CUDA runtime ask for them
// all the time.
#include <string.h>

#include "client/cuda/bodies.h"

namespace tendril::client::cuda {
namespace {

template <typename T>
CUresult put(void* data, T value) {
  memcpy(data, &value, sizeof value);
  return CUDA_SUCCESS;
}

unsigned memory_type(const Range& range) {
  return range.kind == RangeKind::kPinned || range.kind == RangeKind::kRegistered
             ? CU_MEMORYTYPE_HOST
             : CU_MEMORYTYPE_DEVICE;
}

// Addresses that are reserved, with nothing mapped there.
CUresult attribute_of_reserved(const Range& range, CUpointer_attribute attribute, void* data) {
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      return put(data, range.base);
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      return put(data, static_cast<size_t>(range.bytes));
    case CU_POINTER_ATTRIBUTE_MAPPED:
      return put(data, 0u);
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

// Asks the worker's driver; 0 if it does not say.
uint64_t ask_worker(const Range& range, CUpointer_attribute attribute, CUdeviceptr ptr) {
  wire::cuda::memory_pointer_attribute_request request;
  wire::cuda::memory_pointer_attribute_reply reply;
  request.address = ptr;
  request.attribute = static_cast<uint32_t>(attribute);
  return range.session->call(static_cast<const Context*>(range.context), request, reply) ==
                 CUDA_SUCCESS
             ? reply.value
             : 0;
}

CUresult attribute_of(const Range& range, CUpointer_attribute attribute, CUdeviceptr ptr,
                      void* data) {
  if (range.kind == RangeKind::kReserved) return attribute_of_reserved(range, attribute, data);
  const bool of_no_context = range.kind == RangeKind::kMapped || range.kind == RangeKind::kPool ||
                             range.kind == RangeKind::kGraph;
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      return put(data, range.context != nullptr && !of_no_context
                           ? handle_cast<CUcontext>(range.context)
                           : CUcontext{});
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      return put(data, memory_type(range));
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      return put(data, ptr);
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      return range.host() ? put(data, reinterpret_cast<void*>(ptr)) : CUDA_ERROR_INVALID_VALUE;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
      return put(data, 0u);
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
      return put(data, static_cast<unsigned long long>(range.buffer_id));
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
      return put(data, static_cast<unsigned>(range.kind == RangeKind::kManaged));
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      return put(data, range.context != nullptr ? range.context->device->ordinal : CUdevice{0});
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
      return put(data, static_cast<unsigned>(range.kind == RangeKind::kDevice));
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      return put(data, range.base);
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      return put(data, static_cast<size_t>(range.bytes));
    case CU_POINTER_ATTRIBUTE_MAPPED:
      return put(data, 1u);
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
      return put(data, of_no_context ? ask_worker(range, attribute, ptr)
                                     : uint64_t{CU_MEM_HANDLE_TYPE_NONE});
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
      return put(data, 0u);
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
      return put(data, static_cast<unsigned>(CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE));
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
      return put(data, reinterpret_cast<CUmemoryPool>(range.pool));
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
      return put(data, static_cast<size_t>(range.bytes));
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
      return put(data, range.base);
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
      return put(data, static_cast<unsigned long long>(range.buffer_id));
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

// The plural form answers zeros where the singular one fails, as a driver does. `host`: the
// address, if CUDA does not know it.
void zero_attribute(CUpointer_attribute attribute, CUdeviceptr host, void* data) {
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:  // the program's own memory
      put(data, host);
      break;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      put(data, CUdevice{-2});
      break;
    case CU_POINTER_ATTRIBUTE_CONTEXT:
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
      put(data, uint64_t{0});
      break;
    default:
      put(data, 0u);
      break;
  }
}

}  // namespace

CUresult cuPointerGetAttribute(void* data, CUpointer_attribute attribute, CUdeviceptr ptr) {
  Process* program = process();
  if (program == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (data == nullptr || ptr == 0) return CUDA_ERROR_INVALID_VALUE;
  Range range;
  if (!program->ranges.find(ptr, &range)) return CUDA_ERROR_INVALID_VALUE;
  return attribute_of(range, attribute, ptr, data);
}

CUresult cuPointerGetAttributes(unsigned int numAttributes, CUpointer_attribute* attributes,
                                void** data, CUdeviceptr ptr) {
  Process* program = process();
  if (program == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (numAttributes == 0 || attributes == nullptr || data == nullptr)
    return CUDA_ERROR_INVALID_VALUE;
  Range range;
  const bool known = program->ranges.find(ptr, &range);
  for (unsigned i = 0; i < numAttributes; ++i) {
    if (data[i] == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (!known || attribute_of(range, attributes[i], ptr, data[i]) != CUDA_SUCCESS)
      zero_attribute(attributes[i], known ? 0 : ptr, data[i]);
  }
  return CUDA_SUCCESS;
}

CUresult cuPointerSetAttribute(const void* value, CUpointer_attribute attribute, CUdeviceptr ptr) {
  Process* program = process();
  if (program == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  Range range;
  if (value == nullptr || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS ||
      !program->ranges.find(ptr, &range))
    return CUDA_ERROR_INVALID_VALUE;
  return CUDA_SUCCESS;  // synchronous copies are complete when they return anyway
}

}  // namespace tendril::client::cuda
