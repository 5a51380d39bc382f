// SPDX-License-Identifier: Apache-2.0
// Tensor maps: 128 bytes that a driver computes from the arguments alone. Libraries encode the same
// few again and again, some before every launch. So answers are remembered, by all arguments.
#include <string.h>

#include <string>
#include <unordered_map>

#include "client/cuda/bodies.h"

namespace tendril::client::cuda {

// Keyed by all arguments.
struct TensorMaps {
  base::Lock lock;
  std::unordered_map<std::string, CUtensorMap> all;
};

namespace {

constexpr uint32_t kRankMax = 5;
constexpr size_t kRememberedMax = 8192;
using wire::cuda::TensorMapKind;

bool recall(const std::string& key, CUtensorMap* map) {
  TensorMaps& maps = process()->tensor_maps.get();
  const base::Locked held(maps.lock);
  const auto found = maps.all.find(key);
  if (found == maps.all.end()) return false;
  memcpy(map, &found->second, sizeof *map);
  return true;
}

void remember(const std::string& key, const CUtensorMap& map) {
  TensorMaps& maps = process()->tensor_maps.get();
  const base::Locked held(maps.lock);
  if (maps.all.size() >= kRememberedMax) maps.all.clear();
  maps.all[key] = map;
}

// The server that has the tensor; encoding needs no context.
CUresult session_for(uint64_t address, Session** out) {
  Range range;
  if (process()->ranges.find(address, &range) && range.session != nullptr && !range.host()) {
    *out = range.session;
  } else {
    *out = any_session();
  }
  return *out != nullptr ? CUDA_SUCCESS : Session::lost_result();
}

template <typename Request, typename Answer>
CUresult ask(const Request& request, Answer& reply, uint64_t address, CUtensorMap* map) {
  const uint64_t bytes = wire::message_bytes(request);
  std::string key(sizeof(uint64_t) + bytes, '\0');
  const auto op = static_cast<uint64_t>(Request::kOp);
  memcpy(key.data(), &op, sizeof op);
  wire::write_message(request, reinterpret_cast<uint8_t*>(key.data()) + sizeof op);
  if (recall(key, map)) return CUDA_SUCCESS;
  Session* session = nullptr;
  TENDRIL_TRY(session_for(address, &session));
  TENDRIL_TRY(session->call(static_cast<const Context*>(nullptr), request, reply));
  if (reply.map.count != sizeof *map) return CUDA_ERROR_UNKNOWN;
  memcpy(map, reply.map.data, sizeof *map);
  CUtensorMap copy;
  memcpy(&copy, map, sizeof copy);
  remember(key, copy);
  return CUDA_SUCCESS;
}

struct Tensor {
  uint32_t rank;
  uint64_t address;
  const cuuint64_t *dims, *strides;
  const cuuint32_t* element_strides;
};

// `request` has the scalars and the values that only its kind has.
CUresult encode(wire::cuda::tensor_map_encode_request& request, const Tensor& t, CUtensorMap* map) {
  request.dims = {reinterpret_cast<const uint64_t*>(t.dims), t.rank};
  // A tensor of one dimension has no strides, and the pointer may be null.
  if (t.rank > 1) request.strides = {reinterpret_cast<const uint64_t*>(t.strides), t.rank - 1};
  request.element_strides = {t.element_strides, t.rank};
  wire::cuda::tensor_map_encode_reply reply;
  return ask(request, reply, t.address, map);
}

CUresult check(const Tensor& t, const CUtensorMap* map) {
  if (process() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (map == nullptr || t.rank == 0 || t.rank > kRankMax || t.dims == nullptr ||
      t.element_strides == nullptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return t.rank > 1 && t.strides == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

}  // namespace

CUresult cuTensorMapEncodeTiled(CUtensorMap* tensorMap, CUtensorMapDataType tensorDataType,
                                cuuint32_t tensorRank, void* globalAddress,
                                const cuuint64_t* globalDim, const cuuint64_t* globalStrides,
                                const cuuint32_t* boxDim, const cuuint32_t* elementStrides,
                                CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                CUtensorMapL2promotion l2Promotion,
                                CUtensorMapFloatOOBfill oobFill) {
  const Tensor t = {tensorRank, reinterpret_cast<uint64_t>(globalAddress), globalDim, globalStrides,
                    elementStrides};
  TENDRIL_TRY(check(t, tensorMap));
  if (boxDim == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const uint64_t scalars[] = {uint64_t(tensorDataType), tensorRank,        t.address,
                              uint64_t(interleave),     uint64_t(swizzle), uint64_t(l2Promotion),
                              uint64_t(oobFill)};
  wire::cuda::tensor_map_encode_request request;
  request.kind = TensorMapKind::kTiled;
  request.scalars = {scalars, sizeof scalars / sizeof *scalars};
  request.box = {boxDim, tensorRank};
  return encode(request, t, tensorMap);
}

CUresult cuTensorMapEncodeIm2col(CUtensorMap* tensorMap, CUtensorMapDataType tensorDataType,
                                 cuuint32_t tensorRank, void* globalAddress,
                                 const cuuint64_t* globalDim, const cuuint64_t* globalStrides,
                                 const int* pixelBoxLowerCorner, const int* pixelBoxUpperCorner,
                                 cuuint32_t channelsPerPixel, cuuint32_t pixelsPerColumn,
                                 const cuuint32_t* elementStrides, CUtensorMapInterleave interleave,
                                 CUtensorMapSwizzle swizzle, CUtensorMapL2promotion l2Promotion,
                                 CUtensorMapFloatOOBfill oobFill) {
  const Tensor t = {tensorRank, reinterpret_cast<uint64_t>(globalAddress), globalDim, globalStrides,
                    elementStrides};
  TENDRIL_TRY(check(t, tensorMap));
  if (tensorRank < 3 || pixelBoxLowerCorner == nullptr || pixelBoxUpperCorner == nullptr)
    return CUDA_ERROR_INVALID_VALUE;
  const uint64_t scalars[] = {uint64_t(tensorDataType), tensorRank,        t.address,
                              uint64_t(interleave),     uint64_t(swizzle), uint64_t(l2Promotion),
                              uint64_t(oobFill),        channelsPerPixel,  pixelsPerColumn};
  int32_t corners[2 * kRankMax];  // one for each dimension but the batch and the channels: lower
                                  // ones, then upper ones
  const uint32_t spatial = tensorRank - 2;
  memcpy(corners, pixelBoxLowerCorner, spatial * sizeof(int));
  memcpy(corners + spatial, pixelBoxUpperCorner, spatial * sizeof(int));
  wire::cuda::tensor_map_encode_request request;
  request.kind = TensorMapKind::kIm2col;
  request.scalars = {scalars, sizeof scalars / sizeof *scalars};
  request.corners = {corners, 2 * spatial};
  return encode(request, t, tensorMap);
}

CUresult cuTensorMapEncodeIm2colWide(
    CUtensorMap* tensorMap, CUtensorMapDataType tensorDataType, cuuint32_t tensorRank,
    void* globalAddress, const cuuint64_t* globalDim, const cuuint64_t* globalStrides,
    int pixelBoxLowerCornerWidth, int pixelBoxUpperCornerWidth, cuuint32_t channelsPerPixel,
    cuuint32_t pixelsPerColumn, const cuuint32_t* elementStrides, CUtensorMapInterleave interleave,
    CUtensorMapIm2ColWideMode mode, CUtensorMapSwizzle swizzle, CUtensorMapL2promotion l2Promotion,
    CUtensorMapFloatOOBfill oobFill) {
  const Tensor t = {tensorRank, reinterpret_cast<uint64_t>(globalAddress), globalDim, globalStrides,
                    elementStrides};
  TENDRIL_TRY(check(t, tensorMap));
  const uint64_t scalars[] = {uint64_t(tensorDataType),
                              tensorRank,
                              t.address,
                              uint64_t(interleave),
                              uint64_t(swizzle),
                              uint64_t(l2Promotion),
                              uint64_t(oobFill),
                              channelsPerPixel,
                              pixelsPerColumn,
                              uint64_t(mode)};
  const int32_t corners[] = {pixelBoxLowerCornerWidth, pixelBoxUpperCornerWidth};
  wire::cuda::tensor_map_encode_request request;
  request.kind = TensorMapKind::kIm2colWide;
  request.scalars = {scalars, sizeof scalars / sizeof *scalars};
  request.corners = {corners, 2};
  return encode(request, t, tensorMap);
}

CUresult cuTensorMapReplaceAddress(CUtensorMap* tensorMap, void* globalAddress) {
  if (process() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (tensorMap == nullptr) return CUDA_ERROR_INVALID_VALUE;
  uint8_t before[sizeof(CUtensorMap)];
  memcpy(before, tensorMap, sizeof before);
  wire::cuda::tensor_map_address_request request;
  wire::cuda::tensor_map_address_reply reply;
  request.map = {before, sizeof before};
  request.address = reinterpret_cast<uint64_t>(globalAddress);
  return ask(request, reply, request.address, tensorMap);
}

}  // namespace tendril::client::cuda
