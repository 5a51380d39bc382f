// SPDX-License-Identifier: Apache-2.0
// Array creation and description. See array.h.

#include "softgpu/driver/memory/array.h"

#include "api/cuda/array_format.h"
#include "softgpu/driver/device/context.h"
#include "softgpu/driver/entry.h"
#include "softgpu/driver/memory/memory_map.h"

namespace tendril::softgpu {

namespace {

// The bytes of all levels of a mipmap are taken together: they go to *mipmap_bytes, if it is given.
CUresult create(CUarray* out, const CUDA_ARRAY3D_DESCRIPTOR& descriptor,
                uint64_t* mipmap_bytes = nullptr) {
  SOFT_CONTEXT(context);
  size_t element = api::channel_bytes(descriptor.Format) * descriptor.NumChannels;
  unsigned channels = descriptor.NumChannels;
  if (element == 0 || (channels != 1 && channels != 2 && channels != 4) || descriptor.Width == 0)
    return CUDA_ERROR_INVALID_VALUE;
  if (descriptor.Width > 131072 || descriptor.Height > 65536 || descriptor.Depth > 16384)
    return CUDA_ERROR_INVALID_VALUE;
  if (descriptor.Height == 0 && descriptor.Depth != 0 &&
      (descriptor.Flags & CUDA_ARRAY3D_LAYERED) == 0)
    return CUDA_ERROR_INVALID_VALUE;
  auto made = std::make_shared<Array>();
  made->pitch = descriptor.Width * element;
  made->rows = descriptor.Height == 0 ? 1 : descriptor.Height;
  made->slices = descriptor.Depth == 0 ? 1 : descriptor.Depth;
  uint64_t bytes = static_cast<uint64_t>(made->pitch) * made->rows * made->slices;
  const uint64_t cost = array_cost(made->pitch, made->rows, made->slices);
  if (mipmap_bytes != nullptr)
    *mipmap_bytes += cost;
  else if (!take_hidden(context->device, HiddenMemory::Kind::kArray, cost, &made->memory))
    return CUDA_ERROR_OUT_OF_MEMORY;
  made->bytes.resize(bytes);
  made->descriptor = descriptor;
  made->context = context->handle;
  made->handle = arrays().add(made);
  *out = made->handle;
  return CUDA_SUCCESS;
}

template <typename T>
CUDA_ARRAY3D_DESCRIPTOR flat(const T& from) {
  return {from.Width, from.Height, 0, from.Format, from.NumChannels, 0};
}

}  // namespace

Array::~Array() { give_back_hidden(memory); }
MipmappedArray::~MipmappedArray() { give_back_hidden(memory); }

ArrayTable& arrays() {
  static auto& table = *new ArrayTable;
  return table;
}

MipmapTable& mipmaps() {
  static auto& table = *new MipmapTable;
  return table;
}

void drop_arrays(CUcontext context) {
  for (const auto& [handle, mipmap] : mipmaps().all())
    if (mipmap->levels.front()->context == context) mipmaps().remove(handle);
  for (const auto& [handle, array] : arrays().all())
    if (array->context == context) arrays().remove(handle);
}

SOFT(cuArrayCreate_v2)(CUarray* pHandle, const CUDA_ARRAY_DESCRIPTOR* p) {
  return pHandle == nullptr || p == nullptr ? CUDA_ERROR_INVALID_VALUE : create(pHandle, flat(*p));
}
SOFT(cuArrayCreate)(CUarray* pHandle, const CUDA_ARRAY_DESCRIPTOR_v1* p) {
  return pHandle == nullptr || p == nullptr ? CUDA_ERROR_INVALID_VALUE : create(pHandle, flat(*p));
}
SOFT(cuArray3DCreate_v2)(CUarray* pHandle, const CUDA_ARRAY3D_DESCRIPTOR* p) {
  return pHandle == nullptr || p == nullptr ? CUDA_ERROR_INVALID_VALUE : create(pHandle, *p);
}
SOFT(cuArray3DCreate)(CUarray* pHandle, const CUDA_ARRAY3D_DESCRIPTOR_v1* p) {
  if (pHandle == nullptr || p == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return create(pHandle, {p->Width, p->Height, p->Depth, p->Format, p->NumChannels, p->Flags});
}

SOFT(cuArrayDestroy)(CUarray hArray) {
  const ArrayPtr array = arrays().get(hArray);
  SOFT_CONTEXT_OF(array ? array->context : nullptr, context);
  if (array) context->synchronise();  // work may still use it
  return arrays().remove(hArray) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

SOFT(cuArray3DGetDescriptor_v2)(CUDA_ARRAY3D_DESCRIPTOR* p, CUarray hArray) {
  ArrayPtr array = arrays().get(hArray);
  if (p == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!array) return CUDA_ERROR_INVALID_HANDLE;
  *p = array->descriptor;
  return CUDA_SUCCESS;
}

SOFT(cuArrayGetDescriptor_v2)(CUDA_ARRAY_DESCRIPTOR* p, CUarray hArray) {
  ArrayPtr array = arrays().get(hArray);
  if (p == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!array) return CUDA_ERROR_INVALID_HANDLE;
  const CUDA_ARRAY3D_DESCRIPTOR& d = array->descriptor;
  *p = {d.Width, d.Height, d.Format, d.NumChannels};
  return CUDA_SUCCESS;
}

SOFT(cuArrayGetMemoryRequirements)
(CUDA_ARRAY_MEMORY_REQUIREMENTS* requirements, CUarray hArray, CUdevice device) {
  ArrayPtr array = arrays().get(hArray);
  if (requirements == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!array) return CUDA_ERROR_INVALID_HANDLE;
  *requirements = {};
  requirements->size = round_up(array->bytes.size(), 65536);
  requirements->alignment = 65536;
  return CUDA_SUCCESS;
}

namespace {

size_t halved(size_t extent) { return extent > 1 ? extent / 2 : extent; }

}  // namespace

SOFT(cuMipmappedArrayCreate)
(CUmipmappedArray* pHandle, const CUDA_ARRAY3D_DESCRIPTOR* p, unsigned int numMipmapLevels) {
  SOFT_CONTEXT(context);
  if (pHandle == nullptr || p == nullptr || numMipmapLevels == 0) return CUDA_ERROR_INVALID_VALUE;
  CUDA_ARRAY3D_DESCRIPTOR descriptor = *p;
  auto made = std::make_shared<MipmappedArray>();
  uint64_t bytes = 0;
  for (unsigned i = 0; i < numMipmapLevels; ++i) {
    CUarray level = nullptr;
    const CUresult bad = create(&level, descriptor, &bytes);
    if (bad != CUDA_SUCCESS) {
      for (const ArrayPtr& made_level : made->levels) arrays().remove(made_level->handle);
      return bad;
    }
    made->levels.push_back(arrays().get(level));
    const bool smallest = descriptor.Width == 1 && descriptor.Height <= 1 &&
                          (descriptor.Depth <= 1 || (descriptor.Flags & CUDA_ARRAY3D_LAYERED) != 0);
    if (smallest) break;  // programs that ask for more levels get no more
    descriptor.Width = halved(descriptor.Width);
    descriptor.Height = halved(descriptor.Height);
    if ((descriptor.Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)) == 0)
      descriptor.Depth = halved(descriptor.Depth);
  }
  if (!take_hidden(context->device, HiddenMemory::Kind::kArray, bytes, &made->memory)) {
    for (const ArrayPtr& level : made->levels) arrays().remove(level->handle);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *pHandle = mipmaps().add(made);
  return CUDA_SUCCESS;
}

SOFT(cuMipmappedArrayDestroy)(CUmipmappedArray hMipmappedArray) {
  MipmappedArrayPtr mipmap = mipmaps().get(hMipmappedArray);
  SOFT_CONTEXT_OF(mipmap ? mipmap->levels.front()->context : nullptr, context);
  if (!mipmap) return CUDA_ERROR_INVALID_HANDLE;
  context->synchronise();  // work may still use it
  for (const ArrayPtr& level : mipmap->levels) arrays().remove(level->handle);
  mipmaps().remove(hMipmappedArray);
  return CUDA_SUCCESS;
}

SOFT(cuMipmappedArrayGetLevel)
(CUarray* pLevelArray, CUmipmappedArray hMipmappedArray, unsigned int level) {
  SOFT_CONTEXT(context);
  MipmappedArrayPtr mipmap = mipmaps().get(hMipmappedArray);
  if (pLevelArray == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!mipmap) return CUDA_ERROR_INVALID_HANDLE;
  if (level >= mipmap->levels.size()) return CUDA_ERROR_INVALID_VALUE;
  *pLevelArray = mipmap->levels[level]->handle;
  return CUDA_SUCCESS;
}

}  // namespace tendril::softgpu
