// SPDX-License-Identifier: Apache-2.0
// Texture and surface objects. See texture.h; the engine samples (ptx/handlers/handlers_image.cc).
// Views that reinterpret a format or select levels and layers are refused. So are block-compressed
// formats.

#include "softgpu/driver/code/texture.h"

#include <cstdio>
#include <optional>

#include "api/cuda/array_format.h"
#include "softgpu/driver/device/context.h"
#include "softgpu/driver/entry.h"
#include "softgpu/driver/memory/memory_map.h"

namespace tendril::softgpu {
namespace {

struct ImageObject {
  CUDA_RESOURCE_DESC resource = {};
  CUDA_TEXTURE_DESC texture = {};
  std::optional<CUDA_RESOURCE_VIEW_DESC> view;
  std::vector<ArrayPtr> arrays;  // levels; none of linear memory
  bool surface = false;
  CUcontext context = nullptr;
};
using TextureTable = HandleTable<CUtexObject, ImageObject, HandleKind::kTexture>;
using SurfaceTable = HandleTable<CUsurfObject, ImageObject, HandleKind::kSurface>;

TextureTable& textures() {
  static auto& table = *new TextureTable;
  return table;
}
SurfaceTable& surfaces() {
  static auto& table = *new SurfaceTable;
  return table;
}

Image::Texel texel_of(CUarray_format format) {
  switch (format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
      return Image::Texel::kU8;
    case CU_AD_FORMAT_UNSIGNED_INT16:
      return Image::Texel::kU16;
    case CU_AD_FORMAT_UNSIGNED_INT32:
      return Image::Texel::kU32;
    case CU_AD_FORMAT_SIGNED_INT8:
      return Image::Texel::kS8;
    case CU_AD_FORMAT_SIGNED_INT16:
      return Image::Texel::kS16;
    case CU_AD_FORMAT_SIGNED_INT32:
      return Image::Texel::kS32;
    case CU_AD_FORMAT_HALF:
      return Image::Texel::kF16;
    default:
      return Image::Texel::kF32;
  }
}

bool sane_format(CUarray_format format, unsigned channels) {
  return api::channel_bytes(format) != 0 && (channels == 1 || channels == 2 || channels == 4);
}

// The arrays behind a resource; an error if they cannot be sampled.
CUresult take_resource(const CUDA_RESOURCE_DESC& from, ImageObject* out) {
  out->resource = from;
  switch (from.resType) {
    case CU_RESOURCE_TYPE_ARRAY: {
      check_live(from.res.array.hArray);
      ArrayPtr array = arrays().get(from.res.array.hArray);
      if (!array) return CUDA_ERROR_INVALID_HANDLE;
      out->arrays.push_back(std::move(array));
      return CUDA_SUCCESS;
    }
    case CU_RESOURCE_TYPE_MIPMAPPED_ARRAY: {
      check_live(from.res.mipmap.hMipmappedArray);
      MipmappedArrayPtr mipmap = mipmaps().get(from.res.mipmap.hMipmappedArray);
      if (!mipmap) return CUDA_ERROR_INVALID_HANDLE;
      out->arrays = mipmap->levels;
      return CUDA_SUCCESS;
    }
    case CU_RESOURCE_TYPE_LINEAR: {
      const auto& p = from.res.linear;
      if (!sane_format(p.format, p.numChannels) || p.sizeInBytes == 0)
        return CUDA_ERROR_INVALID_VALUE;
      return MemoryMap::instance().resolve(p.devPtr, p.sizeInBytes) != nullptr
                 ? CUDA_SUCCESS
                 : CUDA_ERROR_INVALID_VALUE;
    }
    case CU_RESOURCE_TYPE_PITCH2D: {
      const auto& p = from.res.pitch2D;
      if (!sane_format(p.format, p.numChannels) || p.width == 0 || p.height == 0)
        return CUDA_ERROR_INVALID_VALUE;
      const size_t row = p.width * api::channel_bytes(p.format) * p.numChannels;
      if (p.pitchInBytes < row) return CUDA_ERROR_INVALID_VALUE;
      const uint64_t bytes = p.pitchInBytes * (p.height - 1) + row;
      return MemoryMap::instance().resolve(p.devPtr, bytes) != nullptr ? CUDA_SUCCESS
                                                                       : CUDA_ERROR_INVALID_VALUE;
    }
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

bool plain_view(const CUDA_RESOURCE_VIEW_DESC& view) {
  return view.format == CU_RES_VIEW_FORMAT_NONE && view.firstMipmapLevel == 0 &&
         view.firstLayer == 0;
}

Image::Level level_of(const Array& array) {
  Image::Level level;
  level.bytes = const_cast<uint8_t*>(array.bytes.data());
  level.pitch = array.pitch;
  level.slice = array.pitch * array.rows;
  level.width = static_cast<uint32_t>(array.descriptor.Width);
  level.height = static_cast<uint32_t>(array.rows);
  level.depth = static_cast<uint32_t>(array.slices);
  return level;
}

// Memory instead of an array; false if it does not exist any more.
bool take_memory(const CUDA_RESOURCE_DESC& from, Image* image) {
  MemoryMap& map = MemoryMap::instance();
  Image::Level level;
  if (from.resType == CU_RESOURCE_TYPE_LINEAR) {
    const auto& p = from.res.linear;
    const size_t texel = api::channel_bytes(p.format) * p.numChannels;
    image->texel = texel_of(p.format), image->channels = p.numChannels;
    image->linear_memory = true;
    level.bytes = map.resolve(p.devPtr, p.sizeInBytes);
    level.width = static_cast<uint32_t>(p.sizeInBytes / texel);
  } else {
    const auto& p = from.res.pitch2D;
    image->texel = texel_of(p.format), image->channels = p.numChannels;
    const size_t row = p.width * api::channel_bytes(p.format) * p.numChannels;
    level.bytes = map.resolve(p.devPtr, p.pitchInBytes * (p.height - 1) + row);
    level.pitch = p.pitchInBytes;
    level.width = static_cast<uint32_t>(p.width), level.height = static_cast<uint32_t>(p.height);
  }
  image->levels.push_back(level);
  return level.bytes != nullptr;
}

void take_sampling(const CUDA_TEXTURE_DESC& from, Image* image) {
  for (int i = 0; i < 3; ++i) image->edge[i] = static_cast<Image::Edge>(from.addressMode[i]);
  image->filtered = from.filterMode == CU_TR_FILTER_MODE_LINEAR;
  image->normalized = (from.flags & CU_TRSF_NORMALIZED_COORDINATES) != 0;
  image->raw = (from.flags & CU_TRSF_READ_AS_INTEGER) != 0;
  image->srgb = (from.flags & CU_TRSF_SRGB) != 0;
  image->between_levels = from.mipmapFilterMode == CU_TR_FILTER_MODE_LINEAR;
  image->bias = from.mipmapLevelBias;
  image->lowest_level = from.minMipmapLevelClamp;
  image->highest_level = from.maxMipmapLevelClamp;
  for (int i = 0; i < 4; ++i) image->border[i] = from.borderColor[i];
}

void add_image(uint64_t handle, const ImageObject& object, ImageSnapshot* out) {
  Image image;
  image.surface = object.surface;
  take_sampling(object.texture, &image);
  for (const ArrayPtr& array : object.arrays) {
    image.levels.push_back(level_of(*array));
    image.texel = texel_of(array->descriptor.Format),
    image.channels = array->descriptor.NumChannels;
    image.layered = (array->descriptor.Flags & CUDA_ARRAY3D_LAYERED) != 0;
    out->arrays.push_back(array);
  }
  if (object.arrays.empty() && !take_memory(object.resource, &image)) return;
  out->table.emplace(handle, std::move(image));
}

template <typename T>
CUresult answer(T* out, const T& value) {
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = value;
  return CUDA_SUCCESS;
}

}  // namespace

ImageSnapshot image_snapshot() {
  ImageSnapshot out;
  for (const auto& [handle, object] : textures().all()) add_image(handle, *object, &out);
  for (const auto& [handle, object] : surfaces().all()) add_image(handle, *object, &out);
  return out;
}

void drop_images(CUcontext context) {
  for (const auto& [handle, image] : textures().all())
    if (image->context == context) textures().remove(handle);
  for (const auto& [handle, image] : surfaces().all())
    if (image->context == context) surfaces().remove(handle);
}

SOFT(cuTexObjectCreate)
(CUtexObject* pTexObject, const CUDA_RESOURCE_DESC* pResDesc, const CUDA_TEXTURE_DESC* pTexDesc,
 const CUDA_RESOURCE_VIEW_DESC* pResViewDesc) {
  SOFT_CONTEXT(context);
  if (pTexObject == nullptr || pResDesc == nullptr || pTexDesc == nullptr)
    return CUDA_ERROR_INVALID_VALUE;
  auto made = std::make_shared<ImageObject>();
  if (CUresult bad = take_resource(*pResDesc, made.get())) return bad;
  for (CUaddress_mode mode : pTexDesc->addressMode)
    if (static_cast<unsigned>(mode) > CU_TR_ADDRESS_MODE_BORDER) return CUDA_ERROR_INVALID_VALUE;
  made->texture = *pTexDesc;
  if (pResViewDesc != nullptr) {
    if (made->arrays.empty()) return CUDA_ERROR_INVALID_VALUE;  // views are of arrays
    if (!plain_view(*pResViewDesc)) {
      fprintf(stderr,
              "softgpu: a texture's resource view that reinterprets or cuts its array is not "
              "supported\n");
      return CUDA_ERROR_NOT_SUPPORTED;
    }
    made->view = *pResViewDesc;
  }
  made->context = context->handle;
  *pTexObject = textures().add(made);
  return CUDA_SUCCESS;
}

SOFT(cuTexObjectDestroy)(CUtexObject texObject) {
  SOFT_CONTEXT(context);
  return textures().remove(texObject) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
SOFT(cuTexObjectGetResourceDesc)(CUDA_RESOURCE_DESC* pResDesc, CUtexObject texObject) {
  SOFT_CONTEXT(context);
  auto object = textures().get(texObject);
  return object ? answer(pResDesc, object->resource) : CUDA_ERROR_INVALID_VALUE;
}
SOFT(cuTexObjectGetTextureDesc)(CUDA_TEXTURE_DESC* pTexDesc, CUtexObject texObject) {
  SOFT_CONTEXT(context);
  auto object = textures().get(texObject);
  return object ? answer(pTexDesc, object->texture) : CUDA_ERROR_INVALID_VALUE;
}
SOFT(cuTexObjectGetResourceViewDesc)(CUDA_RESOURCE_VIEW_DESC* pResViewDesc, CUtexObject texObject) {
  SOFT_CONTEXT(context);
  auto object = textures().get(texObject);
  return object && object->view ? answer(pResViewDesc, *object->view) : CUDA_ERROR_INVALID_VALUE;
}

SOFT(cuSurfObjectCreate)(CUsurfObject* pSurfObject, const CUDA_RESOURCE_DESC* pResDesc) {
  SOFT_CONTEXT(context);
  if (pSurfObject == nullptr || pResDesc == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (pResDesc->resType != CU_RESOURCE_TYPE_ARRAY) return CUDA_ERROR_INVALID_VALUE;
  auto made = std::make_shared<ImageObject>();
  if (CUresult bad = take_resource(*pResDesc, made.get())) return bad;
  made->surface = true;
  made->context = context->handle;
  *pSurfObject = surfaces().add(made);
  return CUDA_SUCCESS;
}
SOFT(cuSurfObjectDestroy)(CUsurfObject surfObject) {
  SOFT_CONTEXT(context);
  return surfaces().remove(surfObject) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
SOFT(cuSurfObjectGetResourceDesc)(CUDA_RESOURCE_DESC* pResDesc, CUsurfObject surfObject) {
  SOFT_CONTEXT(context);
  auto object = surfaces().get(surfObject);
  return object ? answer(pResDesc, object->resource) : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace tendril::softgpu
