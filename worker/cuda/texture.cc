// SPDX-License-Identifier: Apache-2.0
// Handlers of api/cuda/texture.spec. Arrays and mipmapped arrays are under the quota. The driver
// does not tell how much memory an array takes. So the slice is charged for its tiles
// (docs/decisions/0020-what-a-driver-takes.md).
#include "api/cuda/array_format.h"
#include "api/cuda_handlers.gen.h"
#include "worker/cuda/executor/scope.h"
#include "worker/cuda/image_objects.h"

namespace tendril::worker::cuda {
namespace {

// Bytes of one channel. An unknown format counts as the largest.
uint64_t charged_channel_bytes(CUarray_format format) {
  constexpr uint64_t kLargest = 4;
  const uint64_t bytes = api::channel_bytes(format);
  return bytes != 0 ? bytes : kLargest;
}

constexpr uint64_t kTileBytes = 64, kTileRowsLeast = 8, kTileRowsMost = 128;

// Rows come in tiles. How high they are was measured on an H100; smaller arrays may have lower
// ones.
uint64_t tiled_rows(uint64_t rows) {
  uint64_t tile = kTileRowsLeast;
  while (tile < rows && tile < kTileRowsMost) tile *= 2;
  return base::rounded_up(rows, tile);
}

// The bytes of all levels of an array. UINT64_MAX: no driver makes an array of this size.
uint64_t bytes_of(const CUDA_ARRAY3D_DESCRIPTOR& d, uint32_t levels, bool in_tiles) {
  constexpr uint64_t kSideMax = 1u << 20;
  if (d.Width > (uint64_t{1} << 32) || d.Height > kSideMax || d.Depth > kSideMax ||
      d.NumChannels > 16)
    return UINT64_MAX;
  // The memory of these arrays comes with cuMemMapArrayAsync.
  if ((d.Flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING)) != 0) return 0;
  unsigned __int128 sum = 0;
  const bool layered = (d.Flags & CUDA_ARRAY3D_LAYERED) != 0;
  auto halved = [](uint64_t side, uint32_t level) {
    return side >> level != 0 ? side >> level : uint64_t{1};
  };
  const uint64_t texel = charged_channel_bytes(d.Format) * d.NumChannels;
  for (uint32_t level = 0; level < levels && level < 32; ++level) {
    const uint64_t depth = layered ? (d.Depth != 0 ? d.Depth : 1) : halved(d.Depth, level);
    const uint64_t width = halved(d.Width, level) * texel, height = halved(d.Height, level);
    sum += static_cast<unsigned __int128>(in_tiles ? base::rounded_up(width, kTileBytes) : width) *
           (in_tiles ? tiled_rows(height) : height) * depth;
  }
  return sum < UINT64_MAX ? static_cast<uint64_t>(sum) : UINT64_MAX;
}

// The others are planes, levels and references of modules, which belong to something else.
bool is_clients_own(uint64_t id) { return (api::id_index(id) & api::kWorkerBit) == 0; }

}  // namespace

CUresult handle(Executor& executor, const wire::cuda::array_create_request& request,
                wire::cuda::array_create_reply&) {
  if (executor.context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  Scope scope(executor);
  CUDA_ARRAY3D_DESCRIPTOR descriptor;
  if (!scope.image(request.descriptor, &descriptor)) return scope.error();
  gpu::Driver& driver = executor.driver();
  const bool mipmap = request.levels != 0;
  scope.reserve(mipmap ? Kind::kMipmap : Kind::kArray, request.array);
  if (!scope.ok()) return scope.error();
  if (driver.cuArray3DCreate_v2 == nullptr || (mipmap && driver.cuMipmappedArrayCreate == nullptr))
    return CUDA_ERROR_NOT_SUPPORTED;
  const uint32_t slot = executor.slot();
  const uint64_t bytes =
      bytes_of(descriptor, mipmap ? request.levels : 1, executor.charge().context_bytes(slot) != 0);
  // An impossible size is not charged, because the driver answers an error.
  const bool charged = bytes != UINT64_MAX;
  Charge& charge = executor.charge();
  // Beside it while it is made, since a client may name an id that is in use.
  const uint64_t key =
      charged ? charge.hold_block(slot, Charge::Blocks::kArrays, bytes, executor.context()) : 0;
  if (charged && key == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  CUarray array = nullptr;
  CUmipmappedArray levels = nullptr;
  CUresult result = mipmap ? driver.cuMipmappedArrayCreate(&levels, &descriptor, request.levels)
                           : driver.cuArray3DCreate_v2(&array, &descriptor);
  void* made = mipmap ? static_cast<void*>(levels) : static_cast<void*>(array);
  if (result == CUDA_SUCCESS &&
      (!charged || !executor.objects().bind(mipmap ? Kind::kMipmap : Kind::kArray, request.array,
                                            made, executor.context()->context))) {
    mipmap ? driver.cuMipmappedArrayDestroy(levels) : driver.cuArrayDestroy(array);
    result = charged ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_OUT_OF_MEMORY;
  }
  if (result == CUDA_SUCCESS)
    charge.rename(key, request.array);
  else if (charged)
    charge.release(key);
  return result;
}

CUresult handle(Executor& executor, const wire::cuda::array_destroy_request& request,
                wire::cuda::array_destroy_reply&) {
  Scope scope(executor);
  gpu::Driver& driver = executor.driver();
  const bool mipmap = api::cuda::id_kind(request.array) == Kind::kMipmap;
  CUresult result = CUDA_ERROR_INVALID_HANDLE;
  if (!is_clients_own(request.array)) return CUDA_ERROR_INVALID_VALUE;
  if (mipmap) {
    CUmipmappedArray levels = scope.get<CUmipmappedArray>(Kind::kMipmap, request.array);
    if (scope.ok()) result = driver.cuMipmappedArrayDestroy(levels);
  } else {
    CUarray array = scope.get<CUarray>(Kind::kArray, request.array);
    if (scope.ok()) result = driver.cuArrayDestroy(array);
  }
  if (result == CUDA_SUCCESS) {
    scope.unbind(mipmap ? Kind::kMipmap : Kind::kArray, request.array);
    executor.charge().release(request.array);
  }
  return result;
}

CUresult handle(Executor& executor, const wire::cuda::cuTexRefDestroy_request& request,
                wire::cuda::cuTexRefDestroy_reply&) {
  Scope scope(executor);
  CUtexref reference = scope.get<CUtexref>(Kind::kTexref, request.hTexRef);
  if (!scope.ok()) return scope.error();
  if (!is_clients_own(request.hTexRef)) return CUDA_ERROR_INVALID_VALUE;
  if (executor.driver().cuTexRefDestroy == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  const CUresult result = executor.driver().cuTexRefDestroy(reference);
  if (result == CUDA_SUCCESS) scope.unbind(Kind::kTexref, request.hTexRef);
  return result;
}

CUresult handle(Executor& executor, const wire::cuda::cuTexObjectCreate_request& request,
                wire::cuda::cuTexObjectCreate_reply& reply) {
  Scope scope(executor);
  CUDA_RESOURCE_DESC resource = scope.resolve(request.pResDesc.value);
  if (!scope.ok()) return scope.error();
  gpu::Driver& driver = executor.driver();
  if (driver.cuTexObjectCreate == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  return executor.image_objects().make(executor, ImageKind::kTexture, [&](uint64_t* value) {
    CUtexObject object = 0;
    const CUDA_TEXTURE_DESC texture = request.pTexDesc.value;
    const CUDA_RESOURCE_VIEW_DESC view = request.pResViewDesc.value;
    const CUresult result = driver.cuTexObjectCreate(
        &object, &resource, &texture, request.pResViewDesc.present ? &view : nullptr);
    reply.pTexObject.value = *value = object;
    return result;
  });
}

CUresult handle(Executor& executor, const wire::cuda::cuSurfObjectCreate_request& request,
                wire::cuda::cuSurfObjectCreate_reply& reply) {
  Scope scope(executor);
  CUDA_RESOURCE_DESC resource = scope.resolve(request.pResDesc.value);
  if (!scope.ok()) return scope.error();
  gpu::Driver& driver = executor.driver();
  if (driver.cuSurfObjectCreate == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  return executor.image_objects().make(executor, ImageKind::kSurface, [&](uint64_t* value) {
    CUsurfObject object = 0;
    const CUresult result = driver.cuSurfObjectCreate(&object, &resource);
    reply.pSurfObject.value = *value = object;
    return result;
  });
}

CUresult handle(Executor& executor, const wire::cuda::cuTexObjectDestroy_request& request,
                wire::cuda::cuTexObjectDestroy_reply&) {
  ImageObjects& objects = executor.image_objects();
  if (!objects.has(ImageKind::kTexture, request.texObject)) return CUDA_ERROR_INVALID_VALUE;
  const CUresult result = executor.driver().cuTexObjectDestroy(request.texObject);
  if (result == CUDA_SUCCESS) objects.forget(executor, ImageKind::kTexture, request.texObject);
  return result;
}

CUresult handle(Executor& executor, const wire::cuda::cuSurfObjectDestroy_request& request,
                wire::cuda::cuSurfObjectDestroy_reply&) {
  ImageObjects& objects = executor.image_objects();
  if (!objects.has(ImageKind::kSurface, request.surfObject)) return CUDA_ERROR_INVALID_VALUE;
  const CUresult result = executor.driver().cuSurfObjectDestroy(request.surfObject);
  if (result == CUDA_SUCCESS) objects.forget(executor, ImageKind::kSurface, request.surfObject);
  return result;
}

CUresult handle(Executor& executor, const wire::cuda::cuTexObjectGetResourceDesc_request& request,
                wire::cuda::cuTexObjectGetResourceDesc_reply& reply) {
  if (!executor.image_objects().has(ImageKind::kTexture, request.texObject))
    return CUDA_ERROR_INVALID_VALUE;
  Scope scope(executor);
  CUDA_RESOURCE_DESC resource{};
  const CUresult result =
      executor.driver().cuTexObjectGetResourceDesc(&resource, request.texObject);
  if (result == CUDA_SUCCESS) reply.pResDesc.value = scope.present(resource);
  return result;
}

CUresult handle(Executor& executor, const wire::cuda::cuTexObjectGetTextureDesc_request& request,
                wire::cuda::cuTexObjectGetTextureDesc_reply& reply) {
  return executor.image_objects().has(ImageKind::kTexture, request.texObject)
             ? executor.driver().cuTexObjectGetTextureDesc(&reply.pTexDesc.value, request.texObject)
             : CUDA_ERROR_INVALID_VALUE;
}

CUresult handle(Executor& executor,
                const wire::cuda::cuTexObjectGetResourceViewDesc_request& request,
                wire::cuda::cuTexObjectGetResourceViewDesc_reply& reply) {
  return executor.image_objects().has(ImageKind::kTexture, request.texObject)
             ? executor.driver().cuTexObjectGetResourceViewDesc(&reply.pResViewDesc.value,
                                                                request.texObject)
             : CUDA_ERROR_INVALID_VALUE;
}

CUresult handle(Executor& executor, const wire::cuda::cuSurfObjectGetResourceDesc_request& request,
                wire::cuda::cuSurfObjectGetResourceDesc_reply& reply) {
  if (!executor.image_objects().has(ImageKind::kSurface, request.surfObject))
    return CUDA_ERROR_INVALID_VALUE;
  Scope scope(executor);
  CUDA_RESOURCE_DESC resource{};
  const CUresult result =
      executor.driver().cuSurfObjectGetResourceDesc(&resource, request.surfObject);
  if (result == CUDA_SUCCESS) reply.pResDesc.value = scope.present(resource);
  return result;
}

}  // namespace tendril::worker::cuda
