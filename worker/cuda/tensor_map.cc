// SPDX-License-Identifier: Apache-2.0
// Handlers of the tensor maps of api/cuda/texture.spec. Every array is checked against the rank:
// the driver reads as many as that says.
#include <cstring>

#include "api/cuda_handlers.gen.h"
#include "worker/cuda/executor/scope.h"

namespace tendril::worker::cuda {

using wire::cuda::TensorMapKind;
namespace {

constexpr uint32_t kRankMax = 5;

wire::Bytes bytes_of(Scope& s, const CUtensorMap& map) {
  uint8_t* out = s.scratch<uint8_t>(sizeof map);
  if (out != nullptr) std::memcpy(out, &map, sizeof map);
  return {out, out != nullptr ? sizeof map : 0};
}

CUresult encode(gpu::Driver& d, const wire::cuda::tensor_map_encode_request& m, CUtensorMap* map) {
  const auto type = static_cast<CUtensorMapDataType>(m.scalars[0]);
  const auto rank = static_cast<cuuint32_t>(m.scalars[1]);
  void* address = reinterpret_cast<void*>(m.scalars[2]);
  const auto interleave = static_cast<CUtensorMapInterleave>(m.scalars[3]);
  const auto swizzle = static_cast<CUtensorMapSwizzle>(m.scalars[4]);
  const auto l2 = static_cast<CUtensorMapL2promotion>(m.scalars[5]);
  const auto fill = static_cast<CUtensorMapFloatOOBfill>(m.scalars[6]);
  uint64_t strides[kRankMax] = {};
  if (m.strides.count != 0)
    std::memcpy(strides, m.strides.data, m.strides.count * sizeof(uint64_t));
  const auto* dims = reinterpret_cast<const cuuint64_t*>(m.dims.data);
  const auto* steps = reinterpret_cast<const cuuint64_t*>(strides);
  const cuuint32_t* element_strides = m.element_strides.data;
  if (m.kind == TensorMapKind::kTiled) {
    if (d.cuTensorMapEncodeTiled == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
    return d.cuTensorMapEncodeTiled(map, type, rank, address, dims, steps, m.box.data,
                                    element_strides, interleave, swizzle, l2, fill);
  }
  const auto channels = static_cast<cuuint32_t>(m.scalars[7]),
             pixels = static_cast<cuuint32_t>(m.scalars[8]);
  const int32_t* corners = m.corners.data;
  if (m.kind == TensorMapKind::kIm2col) {
    if (d.cuTensorMapEncodeIm2col == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
    return d.cuTensorMapEncodeIm2col(map, type, rank, address, dims, steps, corners,
                                     corners + (rank - 2), channels, pixels, element_strides,
                                     interleave, swizzle, l2, fill);
  }
  if (d.cuTensorMapEncodeIm2colWide == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  const auto mode = static_cast<CUtensorMapIm2ColWideMode>(m.scalars[9]);
  return d.cuTensorMapEncodeIm2colWide(map, type, rank, address, dims, steps, corners[0],
                                       corners[1], channels, pixels, element_strides, interleave,
                                       mode, swizzle, l2, fill);
}

bool is_well_formed(const wire::cuda::tensor_map_encode_request& m) {
  constexpr uint64_t kScalars[] = {7, 9, 10};
  if (m.scalars.count != kScalars[static_cast<uint32_t>(m.kind)]) return false;
  const uint64_t rank = m.scalars[1];
  if (rank == 0 || rank > kRankMax || m.dims.count != rank || m.strides.count != rank - 1 ||
      m.element_strides.count != rank)
    return false;
  if (m.kind == TensorMapKind::kTiled) return m.box.count == rank;
  if (m.kind == TensorMapKind::kIm2col) return rank >= 3 && m.corners.count == 2 * (rank - 2);
  return m.corners.count == 2;
}

}  // namespace

CUresult handle(Executor& w, const wire::cuda::tensor_map_encode_request& m,
                wire::cuda::tensor_map_encode_reply& r) {
  if (!is_well_formed(m)) return CUDA_ERROR_INVALID_VALUE;
  Scope s(w);
  CUtensorMap map;
  std::memset(&map, 0, sizeof map);
  const CUresult result = encode(w.driver(), m, &map);
  if (result != CUDA_SUCCESS) return result;
  r.map = bytes_of(s, map);
  return s.error();
}

CUresult handle(Executor& w, const wire::cuda::tensor_map_address_request& m,
                wire::cuda::tensor_map_address_reply& r) {
  Scope s(w);
  CUtensorMap map;
  if (!s.image(m.map, &map)) return s.error();
  if (w.driver().cuTensorMapReplaceAddress == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  const CUresult result =
      w.driver().cuTensorMapReplaceAddress(&map, reinterpret_cast<void*>(m.address));
  if (result != CUDA_SUCCESS) return result;
  r.map = bytes_of(s, map);
  return s.error();
}

}  // namespace tendril::worker::cuda
