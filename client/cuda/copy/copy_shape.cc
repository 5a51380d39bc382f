// SPDX-License-Identifier: Apache-2.0
// Two- and three-dimensional copies, and copies of arrays. An end in this process is packed here:
// only the bytes of its rows travel, in pieces of a bounded size. Shapes without gaps become linear
// copies. An asynchronous copy into host memory waits for its data, even if the memory is pinned.
// CUDA allows that, and such copies are rare.
#include <string.h>

#include <vector>

#include "api/cuda/array_format.h"
#include "client/cuda/copy/copy.h"
#include "client/cuda/copy/passages.h"
#include "client/cuda/memory/memory.h"
#include "client/cuda/memory/mirror.h"
#include "client/cuda/stream/capture.h"

namespace tendril::client::cuda {
namespace {

constexpr uint64_t kPieceBytes =
    8u << 20;  // at most this in one message; the worker (copy_shape.cc) takes no more
constexpr uint64_t kExtentMax =
    uint64_t{1} << 46;  // larger than any real copy; keeps products from overflowing

// One end of a copy, after the map of ranges has resolved a unified address.
struct End {
  CUmemorytype type = CU_MEMORYTYPE_HOST;
  uint64_t address = 0;
  Object* array = nullptr;
  uint64_t x = 0, y = 0, z = 0, lod = 0, pitch = 0, height = 0;
  Context* home = nullptr;  // null for host memory

  bool host() const { return type == CU_MEMORYTYPE_HOST; }
  bool linear() const { return type != CU_MEMORYTYPE_ARRAY; }
  uint64_t at(uint64_t row, uint64_t slice) const {
    return address + ((z + slice) * height + y + row) * pitch + x;
  }
};

struct Extent {
  uint64_t width = 0, height = 0, depth = 0;
  uint64_t bytes() const { return width * height * depth; }
};

// A box inside the copied extent.
struct Piece {
  uint64_t x = 0, y = 0, z = 0;
  Extent extent;
};

CUresult resolve(Context* context, const Extent& extent, End* end) {
  if (end->type == CU_MEMORYTYPE_UNIFIED) {
    Range range;
    const bool device = process()->ranges.find(end->address, &range) && !range.host();
    end->type = device ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
  }
  if (end->x > kExtentMax || end->y > kExtentMax || end->z > kExtentMax)
    return CUDA_ERROR_INVALID_VALUE;
  if (end->type == CU_MEMORYTYPE_ARRAY) {
    if (end->array == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    end->home = end->array->session != context->session && end->array->context != nullptr
                    ? end->array->context
                    : context;
    return end->array->session == end->home->session ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
  }
  if (end->type != CU_MEMORYTYPE_DEVICE && end->type != CU_MEMORYTYPE_HOST)
    return CUDA_ERROR_INVALID_VALUE;
  if (end->address == 0) return CUDA_ERROR_INVALID_VALUE;
  if (end->pitch == 0) end->pitch = extent.width + end->x;
  if (end->height == 0) end->height = extent.height + end->y;
  if (end->pitch > kExtentMax || end->height > kExtentMax) return CUDA_ERROR_INVALID_VALUE;
  const unsigned __int128 reach =
      static_cast<unsigned __int128>(end->z + extent.depth) * end->height * end->pitch;
  if (reach > kExtentMax) return CUDA_ERROR_INVALID_VALUE;
  const bool rows = extent.height > 1 || extent.depth > 1;
  if (rows && end->x + extent.width > end->pitch) return CUDA_ERROR_INVALID_VALUE;
  if (extent.depth > 1 && end->y + extent.height > end->height) return CUDA_ERROR_INVALID_VALUE;
  Range range;
  if (process()->ranges.find(end->address, &range) && range.kind == RangeKind::kReserved)
    return CUDA_ERROR_INVALID_VALUE;  // nothing is mapped there
  if (!end->host()) end->home = context_for(context, end->address);
  return CUDA_SUCCESS;
}

// True: no bytes lie between the copied rows or slices.
bool gapless(const End& end, const Extent& extent) {
  if (!end.linear()) return false;
  if (extent.height > 1 && end.pitch != extent.width) return false;
  return extent.depth == 1 || (end.pitch == extent.width && end.height == extent.height);
}

// Calls visit(Piece) for boxes of at most kPieceBytes that make up the extent; stops at the first
// error.
template <typename Visit>
CUresult for_pieces(const Extent& e, Visit&& visit) {
  const uint64_t width = e.width < kPieceBytes ? e.width : kPieceBytes;
  uint64_t rows = width < e.width ? 1 : kPieceBytes / width;
  if (rows > e.height) rows = e.height;
  uint64_t slices = rows < e.height || width < e.width ? 1 : kPieceBytes / (width * rows);
  if (slices > e.depth) slices = e.depth;
  for (uint64_t z = 0; z < e.depth; z += slices) {
    for (uint64_t y = 0; y < e.height; y += rows) {
      for (uint64_t x = 0; x < e.width; x += width) {
        const Extent extent = {e.width - x < width ? e.width - x : width,
                               e.height - y < rows ? e.height - y : rows,
                               e.depth - z < slices ? e.depth - z : slices};
        TENDRIL_TRY(visit(Piece{x, y, z, extent}));
      }
    }
  }
  return CUDA_SUCCESS;
}

void pack(const End& from, const Piece& piece, uint8_t* into) {
  for (uint64_t z = 0; z < piece.extent.depth; ++z) {
    for (uint64_t y = 0; y < piece.extent.height; ++y, into += piece.extent.width) {
      memcpy(into, reinterpret_cast<const void*>(from.at(piece.y + y, piece.z + z) + piece.x),
             piece.extent.width);
    }
  }
}

void unpack(const End& to, const Piece& piece, const uint8_t* from) {
  for (uint64_t z = 0; z < piece.extent.depth; ++z) {
    for (uint64_t y = 0; y < piece.extent.height; ++y, from += piece.extent.width) {
      memcpy(reinterpret_cast<void*>(to.at(piece.y + y, piece.z + z) + piece.x), from,
             piece.extent.width);
    }
  }
}

// The shape as the worker gets it. Host ends stay empty.
CUDA_MEMCPY3D shape_of(const End& to, const End& from, const Piece& piece) {
  CUDA_MEMCPY3D parameters;
  memset(&parameters, 0, sizeof parameters);
  if (!from.host()) {
    parameters.srcMemoryType = from.type;
    parameters.srcDevice = from.address;
    if (from.array != nullptr) parameters.srcArray = reinterpret_cast<CUarray>(from.array->wire_id);
    parameters.srcXInBytes = from.x + piece.x;
    parameters.srcY = from.y + piece.y;
    parameters.srcZ = from.z + piece.z;
    parameters.srcLOD = from.lod;
    parameters.srcPitch = from.pitch;
    parameters.srcHeight = from.height;
  }
  if (!to.host()) {
    parameters.dstMemoryType = to.type;
    parameters.dstDevice = to.address;
    if (to.array != nullptr) parameters.dstArray = reinterpret_cast<CUarray>(to.array->wire_id);
    parameters.dstXInBytes = to.x + piece.x;
    parameters.dstY = to.y + piece.y;
    parameters.dstZ = to.z + piece.z;
    parameters.dstLOD = to.lod;
    parameters.dstPitch = to.pitch;
    parameters.dstHeight = to.height;
  }
  parameters.WidthInBytes = piece.extent.width;
  parameters.Height = piece.extent.height;
  parameters.Depth = piece.extent.depth;
  return parameters;
}

wire::Bytes image_of(const CUDA_MEMCPY3D& shape) {
  return {reinterpret_cast<const uint8_t*>(&shape), sizeof shape};
}

CUresult send_piece(const End& to, const Piece& piece, const uint8_t* packed, CopyStream on) {
  Context* context = to.home;
  const CUDA_MEMCPY3D shape = shape_of(to, End{}, piece);
  wire::cuda::copy_shape_to_device_request request;
  request.shape = image_of(shape);
  request.stream = wire_stream(on);
  if (piece.extent.bytes() <= wire::kInlineBytesMax) {
    request.data = {packed, piece.extent.bytes()};
    return context->session->enqueue(context, request);
  }
  request.transfer = context->session->lane->new_transfer_id();
  TENDRIL_TRY(context->session->enqueue(context, request));
  return context->session->send_bulk(request.transfer, packed, piece.extent.bytes())
             ? CUDA_SUCCESS
             : Session::lost_result();
}

CUresult fetch_piece(const End& from, const Piece& piece, uint8_t* packed, CopyStream on) {
  Context* context = from.home;
  const uint64_t bytes = piece.extent.bytes();
  const CUDA_MEMCPY3D shape = shape_of(End{}, from, piece);
  wire::cuda::copy_shape_from_device_request request;
  wire::cuda::copy_shape_from_device_reply reply;
  request.shape = image_of(shape);
  request.stream = wire_stream(on);
  return fetch(context, request, reply, packed, bytes);
}

uint64_t span(const End& end, const Extent& extent) {
  return ((extent.depth - 1) * end.height + extent.height - 1) * end.pitch + extent.width;
}

CUresult linear(Context* context, const End& to, const End& from, uint64_t bytes, CopyStream on) {
  const uint64_t into = to.at(0, 0), out = from.at(0, 0);
  if (from.host())
    return copy_to_device(context, into, reinterpret_cast<const void*>(out), bytes, on);
  if (to.host()) return copy_from_device(context, reinterpret_cast<void*>(into), out, bytes, on);
  return copy_device(context, into, out, bytes, on);
}

CUresult within_host(Context* context, const End& to, const End& from, const Extent& extent,
                     CopyStream on) {
  TENDRIL_TRY(synchronize_stream(context, on.stream));  // it still waits for its turn in the stream
  mirror_after_wait(context->session, context);
  for (uint64_t z = 0; z < extent.depth; ++z) {
    for (uint64_t y = 0; y < extent.height; ++y) {
      memmove(reinterpret_cast<void*>(to.at(y, z)), reinterpret_cast<const void*>(from.at(y, z)),
              extent.width);
    }
  }
  return CUDA_SUCCESS;
}

CUresult on_device(Context* at, const End& to, const End& from, const Extent& extent,
                   CopyStream on) {
  const CUDA_MEMCPY3D shape = shape_of(to, from, Piece{0, 0, 0, extent});
  wire::cuda::copy_shape_device_request request;
  request.shape = image_of(shape);
  request.stream = wire_stream(on);
  return at->session->enqueue(at, request);
}

// Host memory as a node names it: by the address of its first byte, where every launch finds it.
CUresult host_end_of_node(Context* context, End* end, const Extent& extent, uint32_t use) {
  const uint64_t first = end->at(0, 0);
  TENDRIL_TRY(mirror_for_node(context->session, context, first, span(*end, extent), use));
  end->type = CU_MEMORYTYPE_UNIFIED;
  end->address = first;
  end->x = end->y = end->z = 0;
  return CUDA_SUCCESS;
}

// If the GPU of `at` reaches the host memory itself, this end is treated like device memory.
End reached(Context* at, End end, const Extent& extent) {
  Range range;
  if (!end.host() || !process()->ranges.find(end.at(0, 0), &range) ||
      !range.shared_with(at->session))
    return end;
  if (span(end, extent) > range.bytes - (end.at(0, 0) - range.base)) return end;
  end.type = CU_MEMORYTYPE_UNIFIED;
  end.home = at;
  return end;
}

PassageEnd passage_end(const End& end) {
  PassageEnd at;
  at.context = end.home;
  at.address = end.at(0, 0);
  at.pitch = end.pitch;
  at.slice = end.pitch * end.height;
  return at;
}

// A copy into a graph under construction.
CUresult capture(Context* context, End to, End from, const Extent& extent, CopyStream on) {
  if (from.host()) TENDRIL_TRY(host_end_of_node(context, &from, extent, kMirrorGraphReads));
  if (to.host()) TENDRIL_TRY(host_end_of_node(context, &to, extent, kMirrorGraphWrites));
  return on_device(context, to, from, extent, on);
}

CUresult run(Context* context, const End& to, const End& from, const Extent& extent,
             CopyStream on) {
  if (is_capturing(on.stream)) return capture(context, to, from, extent, on);
  if (to.host() && from.host()) return within_host(context, to, from, extent, on);
  if (gapless(to, extent) && gapless(from, extent))
    return linear(context, to, from, extent.bytes(), on);
  if (to.host() || from.host() || to.home->session == from.home->session)
    TENDRIL_TRY(bring_home(context, to.host() ? from.home : to.home, &on));
  if (!to.host() && !from.host() && to.home->session == from.home->session)
    return on_device(to.home, to, from, extent, on);
  if (to.host() != from.host()) {
    Context* at = to.host() ? from.home : to.home;
    const End there = reached(at, to, extent), here = reached(at, from, extent);
    if (!there.host() && !here.host()) {
      TENDRIL_TRY(on_device(at, there, here, extent, on));
      return on.async ? CUDA_SUCCESS : synchronize_stream(at, on.stream);
    }
  }
  std::vector<uint8_t> packed(extent.bytes() < kPieceBytes ? extent.bytes() : kPieceBytes);
  if (from.host()) {
    TENDRIL_TRY(settle_for_reading(context, reinterpret_cast<const void*>(from.at(0, 0)),
                                   span(from, extent), on));
    TENDRIL_TRY(for_pieces(extent, [&](const Piece& piece) {
      pack(from, piece, packed.data());
      return send_piece(to, piece, packed.data(), on);
    }));
    return on.async ? CUDA_SUCCESS : finish_copy(to.home, on);
  }
  if (to.host()) {
    TENDRIL_TRY(settle_for_writing(context, reinterpret_cast<const void*>(to.at(0, 0)),
                                   span(to, extent), on));
    return for_pieces(extent, [&](const Piece& piece) {
      TENDRIL_TRY(fetch_piece(from, piece, packed.data(), on));
      unpack(to, piece, packed.data());
      return CUDA_SUCCESS;
    });
  }
  // Between servers.
  if (to.linear() && from.linear()) {
    CUresult result = CUDA_SUCCESS;
    if (copy_over_passage(context, passage_end(to), passage_end(from),
                          {extent.width, extent.height, extent.depth}, on, &result))
      return result;
  }
  if (on.stream != nullptr || on.async) TENDRIL_TRY(synchronize_stream(context, on.stream));
  return for_pieces(extent, [&](const Piece& piece) {
    TENDRIL_TRY(fetch_piece(from, piece, packed.data(), {}));
    return send_piece(to, piece, packed.data(), {});
  });
}

template <typename Shape>
void read_2d(const Shape& s, End* to, End* from) {
  from->type = s.srcMemoryType;
  from->address =
      s.srcMemoryType == CU_MEMORYTYPE_HOST ? reinterpret_cast<uint64_t>(s.srcHost) : s.srcDevice;
  from->x = s.srcXInBytes;
  from->y = s.srcY;
  from->pitch = s.srcPitch;
  if (s.srcMemoryType == CU_MEMORYTYPE_ARRAY)
    from->array = find_object(Kind::kArray, handle_value(s.srcArray));
  to->type = s.dstMemoryType;
  to->address =
      s.dstMemoryType == CU_MEMORYTYPE_HOST ? reinterpret_cast<uint64_t>(s.dstHost) : s.dstDevice;
  to->x = s.dstXInBytes;
  to->y = s.dstY;
  to->pitch = s.dstPitch;
  if (s.dstMemoryType == CU_MEMORYTYPE_ARRAY)
    to->array = find_object(Kind::kArray, handle_value(s.dstArray));
}

template <typename Shape>
void read_3d(const Shape& s, End* to, End* from) {
  read_2d(s, to, from);
  from->z = s.srcZ;
  from->lod = s.srcLOD;
  from->height = s.srcHeight;
  to->z = s.dstZ;
  to->lod = s.dstLOD;
  to->height = s.dstHeight;
}

CUresult on_stream(CUstream hStream, bool async, Context** context, CopyStream* on) {
  TENDRIL_TRY(require_context(context));
  TENDRIL_TRY(require_stream(*context, hStream, &on->stream));
  on->async = async;
  if (async && on->stream != nullptr) *context = on->stream->context;
  return check_work(*context, on->stream, !async);
}

CUresult start(Context* context, End to, End from, const Extent& extent, CopyStream on) {
  if (extent.width == 0 || extent.height == 0 || extent.depth == 0) return CUDA_SUCCESS;
  if (extent.width > kExtentMax || extent.height > kExtentMax || extent.depth > kExtentMax)
    return CUDA_ERROR_INVALID_VALUE;
  TENDRIL_TRY(resolve(context, extent, &from));
  TENDRIL_TRY(resolve(context, extent, &to));
  const unsigned __int128 bytes =
      static_cast<unsigned __int128>(extent.width) * extent.height * extent.depth;
  if (bytes > kExtentMax) return CUDA_ERROR_INVALID_VALUE;
  return run(context, to, from, extent, on);
}

CUresult copy_2d(const CUDA_MEMCPY2D* p, bool async, CUstream hStream) {
  Context* context = nullptr;
  CopyStream on;
  TENDRIL_TRY(on_stream(hStream, async, &context, &on));
  if (p == nullptr) return CUDA_ERROR_INVALID_VALUE;
  End to, from;
  read_2d(*p, &to, &from);
  return start(context, to, from, {p->WidthInBytes, p->Height, 1}, on);
}

template <typename Shape>
CUresult copy_3d(const Shape* p, bool async, CUstream hStream) {
  Context* context = nullptr;
  CopyStream on;
  TENDRIL_TRY(on_stream(hStream, async, &context, &on));
  if (p == nullptr) return CUDA_ERROR_INVALID_VALUE;
  End to, from;
  read_3d(*p, &to, &from);
  return start(context, to, from, {p->WidthInBytes, p->Height, p->Depth}, on);
}

End array_end(CUarray array, uint64_t offset) {
  End end;
  end.type = CU_MEMORYTYPE_ARRAY;
  end.array = find_object(Kind::kArray, handle_value(array));
  end.x = offset;
  return end;
}

End linear_end(CUmemorytype type, uint64_t address) {
  End end;
  end.type = type;
  end.address = address;
  return end;
}

template <typename To, typename From>
CUresult copy_row(size_t bytes, bool async, CUstream hStream, To&& to, From&& from) {
  Context* context = nullptr;
  CopyStream on;
  TENDRIL_TRY(on_stream(hStream, async, &context, &on));
  return start(context, to(), from(), {bytes, 1, 1}, on);
}

CUresult contexts_exist(const CUDA_MEMCPY3D_PEER* parameters) {
  if (process() == nullptr || parameters == nullptr)
    return CUDA_SUCCESS;  // the copy itself reports the error
  const bool found = find_object(Kind::kContext, handle_value(parameters->srcContext)) != nullptr &&
                     find_object(Kind::kContext, handle_value(parameters->dstContext)) != nullptr;
  return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

// Batches count in elements of the array that takes part, or in bytes if there is none.
CUresult element_bytes(const CUmemcpy3DOperand& operand, uint64_t* bytes) {
  if (operand.type != CU_MEMCPY_OPERAND_TYPE_ARRAY) return CUDA_SUCCESS;
  CUDA_ARRAY3D_DESCRIPTOR descriptor;
  TENDRIL_TRY(cuArray3DGetDescriptor_v2(&descriptor, operand.op.array.array));
  *bytes = api::channel_bytes(descriptor.Format) * descriptor.NumChannels;
  return *bytes != 0 ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;  // compressed and planar formats
}

CUresult end_of_batch(const CUmemcpy3DOperand& operand, uint64_t element, End* end) {
  if (operand.type == CU_MEMCPY_OPERAND_TYPE_POINTER) {
    *end = linear_end(CU_MEMORYTYPE_UNIFIED, operand.op.ptr.ptr);
    end->pitch = operand.op.ptr.rowLength * element;
    end->height = operand.op.ptr.layerHeight;
    return CUDA_SUCCESS;
  }
  if (operand.type != CU_MEMCPY_OPERAND_TYPE_ARRAY) return CUDA_ERROR_INVALID_VALUE;
  *end = array_end(operand.op.array.array, operand.op.array.offset.x * element);
  end->y = operand.op.array.offset.y;
  end->z = operand.op.array.offset.z;
  return CUDA_SUCCESS;
}

CUresult copy_of_batch(Context* context, const CUDA_MEMCPY3D_BATCH_OP& op, CopyStream on) {
  uint64_t element = 1;
  End to, from;
  TENDRIL_TRY(element_bytes(op.src, &element));
  TENDRIL_TRY(element_bytes(op.dst, &element));
  TENDRIL_TRY(end_of_batch(op.src, element, &from));
  TENDRIL_TRY(end_of_batch(op.dst, element, &to));
  return start(context, to, from, {op.extent.width * element, op.extent.height, op.extent.depth},
               on);
}

}  // namespace

CUresult cuMemcpy2D_v2(const CUDA_MEMCPY2D* pCopy) { return copy_2d(pCopy, false, nullptr); }
CUresult cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D* pCopy) {
  return copy_2d(pCopy, false, nullptr);
}
CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D* pCopy, CUstream hStream) {
  return copy_2d(pCopy, true, hStream);
}
CUresult cuMemcpy3D_v2(const CUDA_MEMCPY3D* pCopy) { return copy_3d(pCopy, false, nullptr); }
CUresult cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D* pCopy, CUstream hStream) {
  return copy_3d(pCopy, true, hStream);
}

CUresult cuMemcpy3DPeer(const CUDA_MEMCPY3D_PEER* pCopy) {
  TENDRIL_TRY(contexts_exist(pCopy));
  return copy_3d(pCopy, false, nullptr);
}

CUresult cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D_PEER* pCopy, CUstream hStream) {
  TENDRIL_TRY(contexts_exist(pCopy));
  return copy_3d(pCopy, true, hStream);
}

CUresult cuMemcpy3DBatchAsync_v2(size_t numOps, CUDA_MEMCPY3D_BATCH_OP* opList,
                                 unsigned long long flags, CUstream hStream) {
  Context* context = nullptr;
  CopyStream on;
  TENDRIL_TRY(on_stream(hStream, true, &context, &on));
  if (on.stream == nullptr || numOps == 0 || opList == nullptr || flags != 0)
    return CUDA_ERROR_INVALID_VALUE;
  // The copies of a batch have no order among themselves, so any order is correct.
  for (size_t i = 0; i < numOps; ++i) TENDRIL_TRY(copy_of_batch(context, opList[i], on));
  return CUDA_SUCCESS;
}
CUresult cuMemcpy3DBatchAsync(size_t numOps, CUDA_MEMCPY3D_BATCH_OP* opList, size_t* failIdx,
                              unsigned long long flags, CUstream hStream) {
  if (failIdx != nullptr) *failIdx = SIZE_MAX;
  return cuMemcpy3DBatchAsync_v2(numOps, opList, flags, hStream);
}

CUresult cuMemcpyHtoA_v2(CUarray dstArray, size_t dstOffset, const void* srcHost,
                         size_t ByteCount) {
  return copy_row(
      ByteCount, false, nullptr, [&] { return array_end(dstArray, dstOffset); },
      [&] { return linear_end(CU_MEMORYTYPE_HOST, reinterpret_cast<uint64_t>(srcHost)); });
}

CUresult cuMemcpyHtoAAsync_v2(CUarray dstArray, size_t dstOffset, const void* srcHost,
                              size_t ByteCount, CUstream hStream) {
  return copy_row(
      ByteCount, true, hStream, [&] { return array_end(dstArray, dstOffset); },
      [&] { return linear_end(CU_MEMORYTYPE_HOST, reinterpret_cast<uint64_t>(srcHost)); });
}

CUresult cuMemcpyAtoH_v2(void* dstHost, CUarray srcArray, size_t srcOffset, size_t ByteCount) {
  return copy_row(
      ByteCount, false, nullptr,
      [&] { return linear_end(CU_MEMORYTYPE_HOST, reinterpret_cast<uint64_t>(dstHost)); },
      [&] { return array_end(srcArray, srcOffset); });
}

CUresult cuMemcpyAtoHAsync_v2(void* dstHost, CUarray srcArray, size_t srcOffset, size_t ByteCount,
                              CUstream hStream) {
  return copy_row(
      ByteCount, true, hStream,
      [&] { return linear_end(CU_MEMORYTYPE_HOST, reinterpret_cast<uint64_t>(dstHost)); },
      [&] { return array_end(srcArray, srcOffset); });
}

CUresult cuMemcpyDtoA_v2(CUarray dstArray, size_t dstOffset, CUdeviceptr srcDevice,
                         size_t ByteCount) {
  return copy_row(
      ByteCount, false, nullptr, [&] { return array_end(dstArray, dstOffset); },
      [&] { return linear_end(CU_MEMORYTYPE_DEVICE, srcDevice); });
}

CUresult cuMemcpyAtoD_v2(CUdeviceptr dstDevice, CUarray srcArray, size_t srcOffset,
                         size_t ByteCount) {
  return copy_row(
      ByteCount, false, nullptr, [&] { return linear_end(CU_MEMORYTYPE_DEVICE, dstDevice); },
      [&] { return array_end(srcArray, srcOffset); });
}

CUresult cuMemcpyAtoA_v2(CUarray dstArray, size_t dstOffset, CUarray srcArray, size_t srcOffset,
                         size_t ByteCount) {
  return copy_row(
      ByteCount, false, nullptr, [&] { return array_end(dstArray, dstOffset); },
      [&] { return array_end(srcArray, srcOffset); });
}

}  // namespace tendril::client::cuda
