// SPDX-License-Identifier: Apache-2.0
// Handlers of the two- and three-dimensional copies of api/cuda/memory.spec. The client's end is a
// packed block in staging memory; the peer names no host memory but what it had mirrored, for
// graphs.
#include <cstring>

#include "api/cuda_handlers.gen.h"
#include "worker/cuda/executor/scope.h"
#include "worker/cuda/executor/waits.h"
#include "worker/cuda/memory/mirror.h"

namespace tendril::worker::cuda {
namespace {

constexpr uint64_t kPieceBytesMax = 8u << 20;  // what the client puts into one message at most

CUarray array_in(Scope& s, CUarray field) {
  return s.get<CUarray>(Kind::kArray, Scope::id_in(field));
}

// An address without a kind must be one of the client's: a GPU's, or a mirror's.
bool is_clients(Executor& w, CUmemorytype type, CUdeviceptr address, uint64_t bytes) {
  return type == CU_MEMORYTYPE_DEVICE ||
         (type == CU_MEMORYTYPE_UNIFIED && !is_workers_own(w, address, bytes));
}

void resolve_source(Executor& w, Scope& s, CUDA_MEMCPY3D* p) {
  if (p->srcMemoryType == CU_MEMORYTYPE_ARRAY)
    p->srcArray = array_in(s, p->srcArray);
  else if (!is_clients(
               w, p->srcMemoryType, p->srcDevice,
               bytes_spanned(p->srcXInBytes, p->srcY, p->srcZ, p->srcPitch, p->srcHeight, *p)))
    s.fail(CUDA_ERROR_INVALID_VALUE);
  p->srcHost = nullptr;
}

void resolve_destination(Executor& w, Scope& s, CUDA_MEMCPY3D* p) {
  if (p->dstMemoryType == CU_MEMORYTYPE_ARRAY)
    p->dstArray = array_in(s, p->dstArray);
  else if (!is_clients(
               w, p->dstMemoryType, p->dstDevice,
               bytes_spanned(p->dstXInBytes, p->dstY, p->dstZ, p->dstPitch, p->dstHeight, *p)))
    s.fail(CUDA_ERROR_INVALID_VALUE);
  p->dstHost = nullptr;
}

// The shape's image, and its bytes when packed; fails for more than one piece may have.
uint64_t read_shape(Scope& s, const wire::Bytes& image, CUDA_MEMCPY3D* p) {
  if (!s.image(image, p)) return 0;
  p->reserved0 = nullptr;
  p->reserved1 = nullptr;
  const bool small = p->WidthInBytes <= kPieceBytesMax && p->Height <= kPieceBytesMax &&
                     p->Depth <= kPieceBytesMax;
  const uint64_t row = p->WidthInBytes;
  if (!small || row == 0 || p->Height == 0 || p->Depth == 0 || row * p->Height > kPieceBytesMax ||
      row * p->Height * p->Depth > kPieceBytesMax) {
    s.fail(CUDA_ERROR_INVALID_VALUE);
    return 0;
  }
  return row * p->Height * p->Depth;
}

void source_is(CUDA_MEMCPY3D* p, const uint8_t* packed) {
  p->srcMemoryType = CU_MEMORYTYPE_HOST;
  p->srcHost = packed;
  p->srcDevice = 0;
  p->srcArray = nullptr;
  p->srcXInBytes = p->srcY = p->srcZ = p->srcLOD = 0;
  p->srcPitch = p->WidthInBytes;
  p->srcHeight = p->Height;
}

void destination_is(CUDA_MEMCPY3D* p, uint8_t* packed) {
  p->dstMemoryType = CU_MEMORYTYPE_HOST;
  p->dstHost = packed;
  p->dstDevice = 0;
  p->dstArray = nullptr;
  p->dstXInBytes = p->dstY = p->dstZ = p->dstLOD = 0;
  p->dstPitch = p->WidthInBytes;
  p->dstHeight = p->Height;
}

// All of a bulk transfer, gathered in one block.
CUresult gather(Executor& w, uint64_t transfer, const Block& block, uint64_t bytes) {
  for (uint64_t left = bytes; left != 0;) {
    session::Piece piece;
    if (!w.service().take(transfer, &piece)) return CUDA_ERROR_UNKNOWN;  // the session is over
    const bool inside = piece.offset <= bytes && piece.bytes <= bytes - piece.offset &&
                        piece.bytes <= left && piece.bytes != 0;
    if (inside) std::memcpy(block.data + piece.offset, piece.data, piece.bytes);
    w.service().release(piece);
    if (!inside) {
      w.service().end("a bulk transfer does not fit the copy that announced it");
      return CUDA_ERROR_INVALID_VALUE;
    }
    left -= piece.bytes;
  }
  return CUDA_SUCCESS;
}

}  // namespace

CUresult handle(Executor& w, const wire::cuda::copy_shape_to_device_request& m) {
  Scope s(w);
  if (w.context() == nullptr) s.fail(CUDA_ERROR_INVALID_CONTEXT);
  CUstream stream = s.stream(m.stream);
  CUDA_MEMCPY3D p;
  const uint64_t bytes = read_shape(s, m.shape, &p);
  if (s.ok()) resolve_destination(w, s, &p);
  if (s.ok() && m.transfer == 0 && m.data.count != bytes) s.fail(CUDA_ERROR_INVALID_VALUE);
  Block block;
  if (s.ok()) block = w.waiters().staging().take(bytes);
  if (s.ok() && block.data == nullptr) s.fail(CUDA_ERROR_OUT_OF_MEMORY);
  if (!s.ok()) {
    if (m.transfer != 0) w.service().discard(m.transfer);
    return s.error();
  }
  CUresult result = CUDA_SUCCESS;
  if (m.transfer != 0)
    result = gather(w, m.transfer, block, bytes);
  else
    std::memcpy(block.data, m.data.data, bytes);
  source_is(&p, block.data);
  if (result == CUDA_SUCCESS) result = w.driver().cuMemcpy3DAsync_v2(&p, stream);
  InFlight item;
  item.context = w.context()->context;
  item.block = block;
  w.waiters().in_flight(stream, item);
  return w.streams().copy_given(m.stream, result);
}

CUresult handle(Executor& w, const wire::cuda::copy_shape_from_device_request& m,
                wire::cuda::copy_shape_from_device_reply&) {
  Scope s(w);
  if (w.context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  CUstream stream = s.stream(m.stream);
  CUDA_MEMCPY3D p;
  const uint64_t bytes = read_shape(s, m.shape, &p);
  if (s.ok()) resolve_source(w, s, &p);
  if (s.ok() && m.transfer == 0 && bytes > wire::kReplyInlineMax) s.fail(CUDA_ERROR_INVALID_VALUE);
  if (!s.ok()) return s.error();
  Staging& staging = w.waiters().staging();
  const Block block = staging.take(bytes);
  if (block.data == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  destination_is(&p, block.data);
  const CUresult result = w.driver().cuMemcpy3DAsync_v2(&p, stream);
  if (result != CUDA_SUCCESS) {
    staging.give_back(block);
    return result;
  }
  if (m.transfer == 0) return w.waiters().answer_after_copy(stream, block, bytes);
  Delivery delivery;
  delivery.context = w.context()->context;
  delivery.block = block;
  delivery.bytes = bytes;
  delivery.transfer = m.transfer;
  const CUresult added = w.waiters().add_delivery(stream, delivery);
  return added == CUDA_SUCCESS ? w.waiters().answer_after_copy(stream, Block{}, 0) : added;
}

CUresult handle(Executor& w, const wire::cuda::copy_shape_device_request& m) {
  Scope s(w);
  CUstream stream = s.stream(m.stream);
  CUDA_MEMCPY3D p;
  if (!s.image(m.shape, &p)) return s.error();
  p.reserved0 = nullptr;
  p.reserved1 = nullptr;
  resolve_source(w, s, &p);
  resolve_destination(w, s, &p);
  if (p.srcMemoryType == CU_MEMORYTYPE_UNIFIED) p.srcDevice = w.mirrors().place_of(p.srcDevice);
  if (p.dstMemoryType == CU_MEMORYTYPE_UNIFIED) p.dstDevice = w.mirrors().place_of(p.dstDevice);
  if (!s.ok()) return s.error();
  const uint64_t bytes = p.WidthInBytes * p.Height * p.Depth;
  if (!w.gate().may_work(w.context(), stream, static_cast<uint64_t>(m.kOp), bytes))
    return CUDA_ERROR_UNKNOWN;
  return w.streams().copy_given(m.stream, w.driver().cuMemcpy3DAsync_v2(&p, stream));
}

}  // namespace tendril::worker::cuda
