// SPDX-License-Identifier: Apache-2.0
// Handlers of the tensor maps of api/cuda/texture.spec. The length of every array is checked
// against the rank, because the driver reads as many elements as the rank says.
#include <cstring>

#include "api/cuda_handlers.gen.h"
#include "worker/cuda/executor/scope.h"

namespace tendril::worker::cuda {

using wire::cuda::TensorMapKind;
namespace {

constexpr uint32_t kRankMax = 5;

wire::Bytes bytes_of(Scope& scope, const CUtensorMap& map) {
  uint8_t* out = scope.scratch<uint8_t>(sizeof map);
  if (out != nullptr) std::memcpy(out, &map, sizeof map);
  return {out, out != nullptr ? sizeof map : 0};
}

CUresult encode(gpu::Driver& driver, const wire::cuda::tensor_map_encode_request& request,
                CUtensorMap* map) {
  const auto type = static_cast<CUtensorMapDataType>(request.scalars[0]);
  const auto rank = static_cast<cuuint32_t>(request.scalars[1]);
  void* address = reinterpret_cast<void*>(request.scalars[2]);
  const auto interleave = static_cast<CUtensorMapInterleave>(request.scalars[3]);
  const auto swizzle = static_cast<CUtensorMapSwizzle>(request.scalars[4]);
  const auto l2 = static_cast<CUtensorMapL2promotion>(request.scalars[5]);
  const auto fill = static_cast<CUtensorMapFloatOOBfill>(request.scalars[6]);
  uint64_t strides[kRankMax] = {};
  if (request.strides.count != 0)
    std::memcpy(strides, request.strides.data, request.strides.count * sizeof(uint64_t));
  const auto* dims = reinterpret_cast<const cuuint64_t*>(request.dims.data);
  const auto* steps = reinterpret_cast<const cuuint64_t*>(strides);
  const cuuint32_t* element_strides = request.element_strides.data;
  if (request.kind == TensorMapKind::kTiled) {
    if (driver.cuTensorMapEncodeTiled == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
    return driver.cuTensorMapEncodeTiled(map, type, rank, address, dims, steps, request.box.data,
                                         element_strides, interleave, swizzle, l2, fill);
  }
  const auto channels = static_cast<cuuint32_t>(request.scalars[7]),
             pixels = static_cast<cuuint32_t>(request.scalars[8]);
  const int32_t* corners = request.corners.data;
  if (request.kind == TensorMapKind::kIm2col) {
    if (driver.cuTensorMapEncodeIm2col == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
    return driver.cuTensorMapEncodeIm2col(map, type, rank, address, dims, steps, corners,
                                          corners + (rank - 2), channels, pixels, element_strides,
                                          interleave, swizzle, l2, fill);
  }
  if (driver.cuTensorMapEncodeIm2colWide == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  const auto mode = static_cast<CUtensorMapIm2ColWideMode>(request.scalars[9]);
  return driver.cuTensorMapEncodeIm2colWide(map, type, rank, address, dims, steps, corners[0],
                                            corners[1], channels, pixels, element_strides,
                                            interleave, mode, swizzle, l2, fill);
}

bool is_well_formed(const wire::cuda::tensor_map_encode_request& request) {
  constexpr uint64_t kScalars[] = {7, 9, 10};
  if (request.scalars.count != kScalars[static_cast<uint32_t>(request.kind)]) return false;
  const uint64_t rank = request.scalars[1];
  if (rank == 0 || rank > kRankMax || request.dims.count != rank ||
      request.strides.count != rank - 1 || request.element_strides.count != rank)
    return false;
  if (request.kind == TensorMapKind::kTiled) return request.box.count == rank;
  if (request.kind == TensorMapKind::kIm2col)
    return rank >= 3 && request.corners.count == 2 * (rank - 2);
  return request.corners.count == 2;
}

}  // namespace

CUresult handle(Executor& executor, const wire::cuda::tensor_map_encode_request& request,
                wire::cuda::tensor_map_encode_reply& reply) {
  if (!is_well_formed(request)) return CUDA_ERROR_INVALID_VALUE;
  Scope scope(executor);
  CUtensorMap map;
  std::memset(&map, 0, sizeof map);
  const CUresult result = encode(executor.driver(), request, &map);
  if (result != CUDA_SUCCESS) return result;
  reply.map = bytes_of(scope, map);
  return scope.error();
}

CUresult handle(Executor& executor, const wire::cuda::tensor_map_address_request& request,
                wire::cuda::tensor_map_address_reply& reply) {
  Scope scope(executor);
  CUtensorMap map;
  if (!scope.image(request.map, &map)) return scope.error();
  if (executor.driver().cuTensorMapReplaceAddress == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  const CUresult result =
      executor.driver().cuTensorMapReplaceAddress(&map, reinterpret_cast<void*>(request.address));
  if (result != CUDA_SUCCESS) return result;
  reply.map = bytes_of(scope, map);
  return scope.error();
}

}  // namespace tendril::worker::cuda
