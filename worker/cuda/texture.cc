// SPDX-License-Identifier: Apache-2.0
// Arrays and mipmapped arrays (api/cuda/texture.spec), under the quota. The driver does not tell
// how much an array takes; it is charged what its elements take, which rounding of rows and tiles
// can exceed by a little.
#include "api/cuda_handlers.gen.h"
#include "worker/cuda/executor/scope.h"

namespace tendril::worker::cuda {
namespace {

// Bytes of one channel; formats that we do not know are charged as the largest.
uint64_t channel_bytes(CUarray_format format) {
  switch (format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8:
      return 1;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF:
      return 2;
    default:
      return 4;
  }
}

// What the levels of an array take; UINT64_MAX for a size that no driver makes.
uint64_t bytes_of(const CUDA_ARRAY3D_DESCRIPTOR& d, uint32_t levels) {
  constexpr uint64_t kSideMax = 1u << 20;
  if (d.Width > (uint64_t{1} << 32) || d.Height > kSideMax || d.Depth > kSideMax ||
      d.NumChannels > 16)
    return UINT64_MAX;
  // Their memory comes with cuMemMapArrayAsync.
  if ((d.Flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING)) != 0) return 0;
  unsigned __int128 sum = 0;
  const bool layered = (d.Flags & CUDA_ARRAY3D_LAYERED) != 0;
  auto halved = [](uint64_t side, uint32_t level) {
    return side >> level != 0 ? side >> level : uint64_t{1};
  };
  for (uint32_t level = 0; level < levels && level < 32; ++level) {
    const uint64_t depth = layered ? (d.Depth != 0 ? d.Depth : 1) : halved(d.Depth, level);
    sum += static_cast<unsigned __int128>(halved(d.Width, level)) * halved(d.Height, level) * depth;
  }
  sum *= channel_bytes(d.Format) * d.NumChannels;
  return sum < UINT64_MAX ? static_cast<uint64_t>(sum) : UINT64_MAX;
}

}  // namespace

CUresult handle(Executor& w, const wire::cuda::array_create_request& m,
                wire::cuda::array_create_reply&) {
  if (w.context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  Scope s(w);
  CUDA_ARRAY3D_DESCRIPTOR descriptor;
  if (!s.image(m.descriptor, &descriptor)) return s.error();
  gpu::Driver& d = w.driver();
  const bool mipmap = m.levels != 0;
  if (d.cuArray3DCreate_v2 == nullptr || (mipmap && d.cuMipmappedArrayCreate == nullptr))
    return CUDA_ERROR_NOT_SUPPORTED;
  const uint32_t slot = w.slot();
  const uint64_t bytes = bytes_of(descriptor, mipmap ? m.levels : 1);
  // Nonsense is not charged: the driver has an error for it.
  const bool charged = bytes != UINT64_MAX;
  if (charged && !w.charge().take(slot, bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  CUarray array = nullptr;
  CUmipmappedArray levels = nullptr;
  CUresult result = mipmap ? d.cuMipmappedArrayCreate(&levels, &descriptor, m.levels)
                           : d.cuArray3DCreate_v2(&array, &descriptor);
  void* made = mipmap ? static_cast<void*>(levels) : static_cast<void*>(array);
  if (result == CUDA_SUCCESS &&
      (!charged || !w.objects().bind(mipmap ? Kind::kMipmap : Kind::kArray, m.array, made))) {
    mipmap ? d.cuMipmappedArrayDestroy(levels) : d.cuArrayDestroy(array);
    result = charged ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_OUT_OF_MEMORY;
  }
  if (result == CUDA_SUCCESS)
    w.charge().remember(m.array, slot, bytes, w.context());
  else if (charged)
    w.charge().give_back(slot, bytes);
  return result;
}

CUresult handle(Executor& w, const wire::cuda::array_destroy_request& m,
                wire::cuda::array_destroy_reply&) {
  Scope s(w);
  gpu::Driver& d = w.driver();
  const bool mipmap = api::cuda::id_kind(m.array) == Kind::kMipmap;
  CUresult result = CUDA_ERROR_INVALID_HANDLE;
  if (mipmap) {
    CUmipmappedArray levels = s.get<CUmipmappedArray>(Kind::kMipmap, m.array);
    if (s.ok()) result = d.cuMipmappedArrayDestroy(levels);
  } else {
    CUarray array = s.get<CUarray>(Kind::kArray, m.array);
    if (s.ok()) result = d.cuArrayDestroy(array);
  }
  if (result == CUDA_SUCCESS) {
    s.unbind(mipmap ? Kind::kMipmap : Kind::kArray, m.array);
    w.charge().release(m.array);
  }
  return result;
}

}  // namespace tendril::worker::cuda
