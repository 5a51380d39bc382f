// SPDX-License-Identifier: Apache-2.0
// The cuMemcpy* calls. Each says where its operands are and whether the caller waits.

#include "softgpu/driver/entry.h"
#include "softgpu/driver/memory/array.h"
#include "softgpu/driver/memory/copy.h"

namespace tendril::softgpu {
namespace {

constexpr CUmemorytype kHost = CU_MEMORYTYPE_HOST, kDevice = CU_MEMORYTYPE_DEVICE,
                       kArray = CU_MEMORYTYPE_ARRAY, kAny = CU_MEMORYTYPE_UNIFIED;

CUresult copy(CUstream stream, bool wait, CUmemorytype to, const void* target, CUmemorytype from,
              const void* source, size_t bytes) {
  return submit_copy(stream,
                     flat_copy(to, reinterpret_cast<uint64_t>(target), from,
                               reinterpret_cast<uint64_t>(source), bytes),
                     wait);
}
const void* at(CUdeviceptr address) { return reinterpret_cast<const void*>(address); }

CUresult array_copy(CUstream stream, bool wait, CUarray to_array, size_t to_offset,
                    CUarray from_array, size_t from_offset, CUmemorytype other, const void* address,
                    size_t bytes) {
  CUDA_MEMCPY3D p = flat_copy(other, reinterpret_cast<uint64_t>(address), other,
                              reinterpret_cast<uint64_t>(address), bytes);
  if (to_array != nullptr) {
    p.dstMemoryType = kArray;
    p.dstArray = to_array;
    p.dstXInBytes = to_offset;
  }
  if (from_array != nullptr) {
    p.srcMemoryType = kArray;
    p.srcArray = from_array;
    p.srcXInBytes = from_offset;
  }
  return submit_copy(stream, p, wait);
}

// Fields that the shapes share, whatever their integer types.
template <typename T>
CUDA_MEMCPY3D widen2d(const T& s) {
  CUDA_MEMCPY3D p = {};
  p.srcXInBytes = s.srcXInBytes;
  p.srcY = s.srcY;
  p.srcMemoryType = s.srcMemoryType;
  p.srcHost = s.srcHost;
  p.srcDevice = s.srcDevice;
  p.srcArray = s.srcArray;
  p.srcPitch = s.srcPitch;
  p.dstXInBytes = s.dstXInBytes;
  p.dstY = s.dstY;
  p.dstMemoryType = s.dstMemoryType;
  p.dstHost = s.dstHost;
  p.dstDevice = s.dstDevice;
  p.dstArray = s.dstArray;
  p.dstPitch = s.dstPitch;
  p.WidthInBytes = s.WidthInBytes;
  p.Height = s.Height;
  p.Depth = 1;
  return p;
}

template <typename T>
CUDA_MEMCPY3D widen3d(const T& s) {
  CUDA_MEMCPY3D p = widen2d(s);
  p.srcZ = s.srcZ;
  p.srcLOD = s.srcLOD;
  p.srcHeight = s.srcHeight;
  p.dstZ = s.dstZ;
  p.dstLOD = s.dstLOD;
  p.dstHeight = s.dstHeight;
  p.Depth = s.Depth;
  return p;
}

template <typename T>
CUresult copy2d(CUstream stream, const T* shape, bool wait) {
  return shape == nullptr ? CUDA_ERROR_INVALID_VALUE : submit_copy(stream, widen2d(*shape), wait);
}

template <typename T>
CUresult copy3d(CUstream stream, const T* shape, bool wait) {
  if (shape == nullptr || shape->srcLOD != 0 || shape->dstLOD != 0) return CUDA_ERROR_INVALID_VALUE;
  return submit_copy(stream, widen3d(*shape), wait);
}

CUresult peer(CUstream stream, bool wait, CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
              CUcontext from_context, size_t bytes) {
  std::vector<ContextPtr> named = {contexts().get(to_context), contexts().get(from_context)};
  if (!named[0] || !named[1]) return CUDA_ERROR_INVALID_CONTEXT;
  return submit_copy(stream, flat_copy(kAny, to, kAny, from, bytes), wait, std::move(named));
}

CUresult peer3d(CUstream stream, bool wait, const CUDA_MEMCPY3D_PEER* shape) {
  if (shape == nullptr || shape->srcLOD != 0 || shape->dstLOD != 0) return CUDA_ERROR_INVALID_VALUE;
  return submit_copy(stream, widen3d(*shape), wait,
                     {contexts().get(shape->srcContext), contexts().get(shape->dstContext)});
}

// Sizes in batches count elements: those of the array that takes part, else bytes.
CUresult element_of(const CUmemcpy3DOperand& operand, size_t* bytes) {
  if (operand.type != CU_MEMCPY_OPERAND_TYPE_ARRAY) return CUDA_SUCCESS;
  ArrayPtr array = arrays().get(operand.op.array.array);
  if (!array) return CUDA_ERROR_INVALID_HANDLE;
  *bytes = array->pitch / array->descriptor.Width;
  return CUDA_SUCCESS;
}

CUresult shape_of(const CUDA_MEMCPY3D_BATCH_OP& op, CUDA_MEMCPY3D* shape) {
  size_t element = 1;
  if (CUresult bad = element_of(op.src, &element)) return bad;
  if (CUresult bad = element_of(op.dst, &element)) return bad;
  if (op.src.type == CU_MEMCPY_OPERAND_TYPE_ARRAY) {
    shape->srcMemoryType = kArray;
    shape->srcArray = op.src.op.array.array;
    shape->srcXInBytes = op.src.op.array.offset.x * element;
    shape->srcY = op.src.op.array.offset.y;
    shape->srcZ = op.src.op.array.offset.z;
  } else {
    shape->srcMemoryType = kAny;
    shape->srcDevice = op.src.op.ptr.ptr;
    shape->srcPitch = op.src.op.ptr.rowLength * element;
    shape->srcHeight = op.src.op.ptr.layerHeight;
  }
  if (op.dst.type == CU_MEMCPY_OPERAND_TYPE_ARRAY) {
    shape->dstMemoryType = kArray;
    shape->dstArray = op.dst.op.array.array;
    shape->dstXInBytes = op.dst.op.array.offset.x * element;
    shape->dstY = op.dst.op.array.offset.y;
    shape->dstZ = op.dst.op.array.offset.z;
  } else {
    shape->dstMemoryType = kAny;
    shape->dstDevice = op.dst.op.ptr.ptr;
    shape->dstPitch = op.dst.op.ptr.rowLength * element;
    shape->dstHeight = op.dst.op.ptr.layerHeight;
  }
  shape->WidthInBytes = op.extent.width * element;
  shape->Height = op.extent.height;
  shape->Depth = op.extent.depth;
  return CUDA_SUCCESS;
}

}  // namespace

SOFT(cuMemcpy)(CUdeviceptr dst, CUdeviceptr src, size_t n) {
  return copy(nullptr, true, kAny, at(dst), kAny, at(src), n);
}
SOFT(cuMemcpyAsync)(CUdeviceptr dst, CUdeviceptr src, size_t n, CUstream s) {
  return copy(s, false, kAny, at(dst), kAny, at(src), n);
}
SOFT(cuMemcpyHtoD_v2)(CUdeviceptr dst, const void* src, size_t n) {
  return copy(nullptr, true, kDevice, at(dst), kHost, src, n);
}
SOFT(cuMemcpyHtoDAsync_v2)(CUdeviceptr dst, const void* src, size_t n, CUstream s) {
  return copy(s, false, kDevice, at(dst), kHost, src, n);
}
SOFT(cuMemcpyDtoH_v2)(void* dst, CUdeviceptr src, size_t n) {
  return copy(nullptr, true, kHost, dst, kDevice, at(src), n);
}
SOFT(cuMemcpyDtoHAsync_v2)(void* dst, CUdeviceptr src, size_t n, CUstream s) {
  return copy(s, false, kHost, dst, kDevice, at(src), n);
}
SOFT(cuMemcpyDtoD_v2)(CUdeviceptr dst, CUdeviceptr src, size_t n) {
  return copy(nullptr, true, kDevice, at(dst), kDevice, at(src), n);
}
SOFT(cuMemcpyDtoDAsync_v2)(CUdeviceptr dst, CUdeviceptr src, size_t n, CUstream s) {
  return copy(s, false, kDevice, at(dst), kDevice, at(src), n);
}
SOFT(cuMemcpyAtoA_v2)(CUarray dst, size_t to, CUarray src, size_t from, size_t n) {
  return array_copy(nullptr, true, dst, to, src, from, kHost, nullptr, n);
}
SOFT(cuMemcpyAtoD_v2)(CUdeviceptr dst, CUarray src, size_t from, size_t n) {
  return array_copy(nullptr, true, nullptr, 0, src, from, kDevice, at(dst), n);
}
SOFT(cuMemcpyDtoA_v2)(CUarray dst, size_t to, CUdeviceptr src, size_t n) {
  return array_copy(nullptr, true, dst, to, nullptr, 0, kDevice, at(src), n);
}
SOFT(cuMemcpyAtoH_v2)(void* dst, CUarray src, size_t from, size_t n) {
  return array_copy(nullptr, true, nullptr, 0, src, from, kHost, dst, n);
}
SOFT(cuMemcpyHtoA_v2)(CUarray dst, size_t to, const void* src, size_t n) {
  return array_copy(nullptr, true, dst, to, nullptr, 0, kHost, src, n);
}
SOFT(cuMemcpyAtoHAsync_v2)(void* dst, CUarray src, size_t from, size_t n, CUstream s) {
  return array_copy(s, false, nullptr, 0, src, from, kHost, dst, n);
}
SOFT(cuMemcpyHtoAAsync_v2)(CUarray dst, size_t to, const void* src, size_t n, CUstream s) {
  return array_copy(s, false, dst, to, nullptr, 0, kHost, src, n);
}
SOFT(cuMemcpy2D_v2)(const CUDA_MEMCPY2D* shape) { return copy2d(nullptr, shape, true); }
SOFT(cuMemcpy2DUnaligned_v2)(const CUDA_MEMCPY2D* shape) { return copy2d(nullptr, shape, true); }
SOFT(cuMemcpy2DAsync_v2)(const CUDA_MEMCPY2D* shape, CUstream s) { return copy2d(s, shape, false); }
SOFT(cuMemcpy3D_v2)(const CUDA_MEMCPY3D* shape) { return copy3d(nullptr, shape, true); }
SOFT(cuMemcpy3DAsync_v2)(const CUDA_MEMCPY3D* shape, CUstream s) { return copy3d(s, shape, false); }
SOFT(cuMemcpyHtoD)(CUdeviceptr_v1 dst, const void* src, unsigned int n) {
  return copy(nullptr, true, kDevice, at(dst), kHost, src, n);
}
SOFT(cuMemcpyHtoDAsync)(CUdeviceptr_v1 dst, const void* src, unsigned int n, CUstream s) {
  return copy(s, false, kDevice, at(dst), kHost, src, n);
}
SOFT(cuMemcpyDtoH)(void* dst, CUdeviceptr_v1 src, unsigned int n) {
  return copy(nullptr, true, kHost, dst, kDevice, at(src), n);
}
SOFT(cuMemcpyDtoHAsync)(void* dst, CUdeviceptr_v1 src, unsigned int n, CUstream s) {
  return copy(s, false, kHost, dst, kDevice, at(src), n);
}
SOFT(cuMemcpyDtoD)(CUdeviceptr_v1 dst, CUdeviceptr_v1 src, unsigned int n) {
  return copy(nullptr, true, kDevice, at(dst), kDevice, at(src), n);
}
SOFT(cuMemcpyDtoDAsync)(CUdeviceptr_v1 dst, CUdeviceptr_v1 src, unsigned int n, CUstream s) {
  return copy(s, false, kDevice, at(dst), kDevice, at(src), n);
}
SOFT(cuMemcpyAtoA)(CUarray dst, unsigned int to, CUarray src, unsigned int from, unsigned int n) {
  return array_copy(nullptr, true, dst, to, src, from, kHost, nullptr, n);
}
SOFT(cuMemcpyAtoD)(CUdeviceptr_v1 dst, CUarray src, unsigned int from, unsigned int n) {
  return array_copy(nullptr, true, nullptr, 0, src, from, kDevice, at(dst), n);
}
SOFT(cuMemcpyDtoA)(CUarray dst, unsigned int to, CUdeviceptr_v1 src, unsigned int n) {
  return array_copy(nullptr, true, dst, to, nullptr, 0, kDevice, at(src), n);
}
SOFT(cuMemcpyAtoH)(void* dst, CUarray src, unsigned int from, unsigned int n) {
  return array_copy(nullptr, true, nullptr, 0, src, from, kHost, dst, n);
}
SOFT(cuMemcpyHtoA)(CUarray dst, unsigned int to, const void* src, unsigned int n) {
  return array_copy(nullptr, true, dst, to, nullptr, 0, kHost, src, n);
}
SOFT(cuMemcpyAtoHAsync)(void* dst, CUarray src, unsigned int from, unsigned int n, CUstream s) {
  return array_copy(s, false, nullptr, 0, src, from, kHost, dst, n);
}
SOFT(cuMemcpyHtoAAsync)(CUarray dst, unsigned int to, const void* src, unsigned int n, CUstream s) {
  return array_copy(s, false, dst, to, nullptr, 0, kHost, src, n);
}
SOFT(cuMemcpy2D)(const CUDA_MEMCPY2D_v1* shape) { return copy2d(nullptr, shape, true); }
SOFT(cuMemcpy2DUnaligned)(const CUDA_MEMCPY2D_v1* shape) { return copy2d(nullptr, shape, true); }
SOFT(cuMemcpy2DAsync)(const CUDA_MEMCPY2D_v1* shape, CUstream s) { return copy2d(s, shape, false); }
SOFT(cuMemcpy3D)(const CUDA_MEMCPY3D_v1* shape) { return copy3d(nullptr, shape, true); }
SOFT(cuMemcpy3DAsync)(const CUDA_MEMCPY3D_v1* shape, CUstream s) { return copy3d(s, shape, false); }
SOFT(cuMemcpy3DPeer)(const CUDA_MEMCPY3D_PEER* shape) { return peer3d(nullptr, true, shape); }
SOFT(cuMemcpy3DPeerAsync)(const CUDA_MEMCPY3D_PEER* shape, CUstream s) {
  return peer3d(s, false, shape);
}
SOFT(cuMemcpyPeer)
(CUdeviceptr to, CUcontext toContext, CUdeviceptr from, CUcontext fromContext, size_t n) {
  return peer(nullptr, true, to, toContext, from, fromContext, n);
}
SOFT(cuMemcpyPeerAsync)
(CUdeviceptr to, CUcontext toContext, CUdeviceptr from, CUcontext fromContext, size_t n,
 CUstream s) {
  return peer(s, false, to, toContext, from, fromContext, n);
}

SOFT(cuMemcpyBatchAsync_v2)
(CUdeviceptr* dsts, CUdeviceptr* srcs, size_t* sizes, size_t count, CUmemcpyAttributes* attrs,
 size_t* attrsIdxs, size_t numAttrs, CUstream hStream) {
  if (count == 0 || dsts == nullptr || srcs == nullptr || sizes == nullptr || attrs == nullptr ||
      attrsIdxs == nullptr || numAttrs == 0 || numAttrs > count || attrsIdxs[0] != 0)
    return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count; ++i)
    if (CUresult bad = copy(hStream, false, kAny, at(dsts[i]), kAny, at(srcs[i]), sizes[i]))
      return bad;
  return CUDA_SUCCESS;
}

SOFT(cuMemcpy3DBatchAsync_v2)
(size_t numOps, CUDA_MEMCPY3D_BATCH_OP* opList, unsigned long long flags, CUstream hStream) {
  if (numOps == 0 || opList == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < numOps; ++i) {
    CUDA_MEMCPY3D shape = {};
    if (CUresult bad = shape_of(opList[i], &shape)) return bad;
    if (CUresult bad = submit_copy(hStream, shape, false)) return bad;
  }
  return CUDA_SUCCESS;
}
SOFT(cuMemcpy3DBatchAsync)
(size_t numOps, CUDA_MEMCPY3D_BATCH_OP* opList, size_t* failIdx, unsigned long long flags,
 CUstream hStream) {
  if (failIdx != nullptr) *failIdx = SIZE_MAX;
  return soft_cuMemcpy3DBatchAsync_v2(numOps, opList, flags, hStream);
}

SOFT(cuMemcpyBatchAsync)
(CUdeviceptr* dsts, CUdeviceptr* srcs, size_t* sizes, size_t count, CUmemcpyAttributes* attrs,
 size_t* attrsIdxs, size_t numAttrs, size_t* failIdx, CUstream hStream) {
  if (failIdx != nullptr) *failIdx = SIZE_MAX;
  return soft_cuMemcpyBatchAsync_v2(dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs, hStream);
}

}  // namespace tendril::softgpu
