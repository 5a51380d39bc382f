// SPDX-License-Identifier: Apache-2.0
// Green contexts. Multiprocessors are only counted: kernels of a green context run like all others.

#include <algorithm>
#include <cstring>

#include "softgpu/driver/config.h"
#include "softgpu/driver/device/context.h"
#include "softgpu/driver/device/device.h"
#include "softgpu/driver/entry.h"
#include "softgpu/driver/stream/stream.h"

namespace tendril::softgpu {
namespace {

constexpr unsigned kPartition = 2;  // multiprocessors come in pairs

struct Description {
  CUdevResource resource = {};
};
struct Green {
  CUgreenCtx handle = nullptr;
  CUdevResource resource = {};
  ContextPtr context;
};
using DescriptionTable = HandleTable<CUdevResourceDesc, Description, HandleKind::kDescription>;
using GreenTable = HandleTable<CUgreenCtx, Green, HandleKind::kGreen>;

DescriptionTable& descriptions() {
  static auto& table = *new DescriptionTable;
  return table;
}
GreenTable& greens() {
  static auto& table = *new GreenTable;
  return table;
}

CUdevResource multiprocessors(unsigned count) {
  CUdevResource resource;
  memset(&resource, 0, sizeof resource);
  resource.type = CU_DEV_RESOURCE_TYPE_SM;
  resource.sm = {count, kPartition, kPartition};
  return resource;
}

std::shared_ptr<Green> green_of(CUcontext context) {
  for (const auto& [handle, green] : greens().all())
    if (green->context->handle == context) return green;
  return nullptr;
}

}  // namespace

SOFT(cuDeviceGetDevResource)(CUdevice device, CUdevResource* resource, CUdevResourceType type) {
  if (device_at(device) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  if (resource == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (type != CU_DEV_RESOURCE_TYPE_SM) return CUDA_ERROR_INVALID_RESOURCE_TYPE;
  *resource = multiprocessors(config().sm_count);
  return CUDA_SUCCESS;
}

SOFT(cuCtxGetDevResource)(CUcontext hCtx, CUdevResource* resource, CUdevResourceType type) {
  ContextPtr context = contexts().get(hCtx);
  if (!context) return CUDA_ERROR_INVALID_CONTEXT;
  auto green = green_of(hCtx);
  if (!green) return soft_cuDeviceGetDevResource(context->device, resource, type);
  return soft_cuGreenCtxGetDevResource(green->handle, resource, type);
}

SOFT(cuGreenCtxGetDevResource)(CUgreenCtx hCtx, CUdevResource* resource, CUdevResourceType type) {
  auto green = greens().get(hCtx);
  if (!green) return CUDA_ERROR_INVALID_CONTEXT;
  if (resource == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (type != CU_DEV_RESOURCE_TYPE_SM) return CUDA_ERROR_INVALID_RESOURCE_TYPE;
  *resource = green->resource;
  return CUDA_SUCCESS;
}

SOFT(cuDevSmResourceSplitByCount)
(CUdevResource* result, unsigned int* nbGroups, const CUdevResource* input,
 CUdevResource* remaining, unsigned int useFlags, unsigned int minCount) {
  if (nbGroups == nullptr || input == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (input->type != CU_DEV_RESOURCE_TYPE_SM) return CUDA_ERROR_INVALID_RESOURCE_TYPE;
  const unsigned each = std::max((minCount + kPartition - 1) / kPartition * kPartition, kPartition);
  const unsigned possible = input->sm.smCount / each;
  if (possible == 0) return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
  const unsigned made = result == nullptr ? possible : std::min(possible, *nbGroups);
  for (unsigned i = 0; result != nullptr && i < made; ++i) result[i] = multiprocessors(each);
  if (remaining != nullptr) *remaining = multiprocessors(input->sm.smCount - made * each);
  *nbGroups = made;
  return CUDA_SUCCESS;
}

SOFT(cuDevResourceGenerateDesc)
(CUdevResourceDesc* phDesc, CUdevResource* resources, unsigned int nbResources) {
  if (phDesc == nullptr || resources == nullptr || nbResources != 1)
    return CUDA_ERROR_INVALID_VALUE;
  if (resources->type != CU_DEV_RESOURCE_TYPE_SM) return CUDA_ERROR_INVALID_RESOURCE_TYPE;
  auto made = std::make_shared<Description>();
  made->resource = *resources;
  *phDesc = descriptions().add(made);
  return CUDA_SUCCESS;
}

SOFT(cuGreenCtxCreate)
(CUgreenCtx* phCtx, CUdevResourceDesc desc, CUdevice dev, unsigned int flags) {
  auto description = descriptions().get(desc);
  if (phCtx == nullptr || !description || flags != CU_GREEN_CTX_DEFAULT_STREAM)
    return CUDA_ERROR_INVALID_VALUE;
  if (device_at(dev) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  auto made = std::make_shared<Green>();
  made->resource = description->resource;
  made->context = make_context(dev, 0, nullptr);
  if (!made->context) return CUDA_ERROR_OUT_OF_MEMORY;
  made->handle = greens().mint();
  greens().put(made->handle, made);
  *phCtx = made->handle;
  return CUDA_SUCCESS;
}

SOFT(cuGreenCtxDestroy)(CUgreenCtx hCtx) {
  auto green = greens().remove(hCtx);
  if (!green) return CUDA_ERROR_INVALID_CONTEXT;
  contexts().remove(green->context->handle);
  green->context->destroy();
  return CUDA_SUCCESS;
}

SOFT(cuCtxFromGreenCtx)(CUcontext* pContext, CUgreenCtx hCtx) {
  auto green = greens().get(hCtx);
  if (!green) return CUDA_ERROR_INVALID_CONTEXT;
  if (pContext == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *pContext = green->context->handle;
  return CUDA_SUCCESS;
}

SOFT(cuGreenCtxGetId)(CUgreenCtx greenCtx, unsigned long long* greenCtxId) {
  auto green = greens().get(greenCtx);
  if (!green) return CUDA_ERROR_INVALID_HANDLE;
  if (greenCtxId == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *greenCtxId = green->context->id;
  return CUDA_SUCCESS;
}

SOFT(cuGreenCtxStreamCreate)
(CUstream* phStream, CUgreenCtx greenCtx, unsigned int flags, int priority) {
  auto green = greens().get(greenCtx);
  if (!green) return CUDA_ERROR_INVALID_HANDLE;
  if (flags != CU_STREAM_NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
  CurrentScope scope(green->context->handle);
  return soft_cuStreamCreateWithPriority(phStream, flags, priority);
}

SOFT(cuStreamGetGreenCtx)(CUstream hStream, CUgreenCtx* phCtx) {
  StreamPtr stream;
  ContextPtr context;
  if (phCtx == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (CUresult bad = find_stream(hStream, &stream, &context)) return bad;
  auto green = green_of(context->handle);
  *phCtx = green ? green->handle : nullptr;
  return CUDA_SUCCESS;
}

SOFT(cuGreenCtxRecordEvent)(CUgreenCtx hCtx, CUevent hEvent) {
  auto green = greens().get(hCtx);
  return green ? soft_cuCtxRecordEvent(green->context->handle, hEvent) : CUDA_ERROR_INVALID_HANDLE;
}
SOFT(cuGreenCtxWaitEvent)(CUgreenCtx hCtx, CUevent hEvent) {
  auto green = greens().get(hCtx);
  return green ? soft_cuCtxWaitEvent(green->context->handle, hEvent) : CUDA_ERROR_INVALID_HANDLE;
}

}  // namespace tendril::softgpu
