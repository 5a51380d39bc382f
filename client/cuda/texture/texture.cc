// SPDX-License-Identifier: Apache-2.0
// Arrays and mipmapped arrays: creation and destruction, which the worker charges. All other calls
// of texture.spec are generated, or in tensor_map.cc.
#include <string.h>

#include "client/cuda/bodies.h"
#include "client/cuda/memory/keeper.h"
#include "client/cuda/stream/capture.h"

namespace tendril::client::cuda {
namespace {

template <typename Handle>
CUresult create(Kind kind, Handle* out, const CUDA_ARRAY3D_DESCRIPTOR& descriptor,
                unsigned levels) {
  Context* context = nullptr;
  TENDRIL_TRY(require_context(&context));
  TENDRIL_TRY(check_unsafe_call());
  Object* object = create_object(kind, context->session, context);
  if (object == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  wire::cuda::array_create_request request;
  wire::cuda::array_create_reply reply;
  request.array = object->wire_id;
  request.descriptor = {reinterpret_cast<const uint8_t*>(&descriptor), sizeof descriptor};
  request.levels = levels;
  const CUresult result = call_for_memory(context->session, context, 0, request, reply);
  if (result == CUDA_SUCCESS)
    *out = handle_cast<Handle>(object);
  else
    destroy_object(kind, object);
  return result;
}

CUresult destroy(Kind kind, uint64_t handle) {
  Context* context = nullptr;
  Object* object = process() != nullptr ? find_object(kind, handle) : nullptr;
  TENDRIL_TRY(require_context_of(object != nullptr ? object->context : nullptr, &context));
  if (object == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  TENDRIL_TRY(check_unsafe_call());
  wire::cuda::array_destroy_request request;
  wire::cuda::array_destroy_reply reply;
  request.array = object->wire_id;
  const CUresult result = object->session->call(object->context, request, reply);
  if (result == CUDA_SUCCESS) destroy_object(kind, object);
  return result;
}

}  // namespace

CUresult cuArrayCreate_v2(CUarray* pHandle, const CUDA_ARRAY_DESCRIPTOR* pAllocateArray) {
  if (process() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (pHandle == nullptr || pAllocateArray == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUDA_ARRAY3D_DESCRIPTOR descriptor;
  memset(&descriptor, 0, sizeof descriptor);
  descriptor.Width = pAllocateArray->Width;
  descriptor.Height = pAllocateArray->Height;
  descriptor.Format = pAllocateArray->Format;
  descriptor.NumChannels = pAllocateArray->NumChannels;
  return create(Kind::kArray, pHandle, descriptor, 0);
}

CUresult cuArray3DCreate_v2(CUarray* pHandle, const CUDA_ARRAY3D_DESCRIPTOR* pAllocateArray) {
  if (process() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (pHandle == nullptr || pAllocateArray == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return create(Kind::kArray, pHandle, *pAllocateArray, 0);
}

CUresult cuArrayDestroy(CUarray hArray) { return destroy(Kind::kArray, handle_value(hArray)); }

CUresult cuMipmappedArrayCreate(CUmipmappedArray* pHandle,
                                const CUDA_ARRAY3D_DESCRIPTOR* pMipmappedArrayDesc,
                                unsigned int numMipmapLevels) {
  if (process() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (pHandle == nullptr || pMipmappedArrayDesc == nullptr || numMipmapLevels == 0)
    return CUDA_ERROR_INVALID_VALUE;
  return create(Kind::kMipmap, pHandle, *pMipmappedArrayDesc, numMipmapLevels);
}

CUresult cuMipmappedArrayDestroy(CUmipmappedArray hMipmappedArray) {
  return destroy(Kind::kMipmap, handle_value(hMipmappedArray));
}

}  // namespace tendril::client::cuda
