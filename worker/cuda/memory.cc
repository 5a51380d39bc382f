// SPDX-License-Identifier: Apache-2.0
// Handlers of api/cuda/memory.spec: allocation under the quota, copies through pinned staging,
// memsets.
#include <algorithm>
#include <cstring>
#include <vector>

#include "api/cuda_handlers.gen.h"
#include "worker/cuda/executor/scope.h"
#include "worker/cuda/executor/waits.h"
#include "worker/cuda/ipc.h"
#include "worker/cuda/memory/kept_memory.h"
#include "worker/cuda/memory/mirror.h"

namespace tendril::worker::cuda {
namespace {

constexpr size_t kPiecesInFlightMax = 8;
constexpr uint64_t kReadPieceLeast = 1u << 20, kReadPieceMost = 4u << 20;
// Staging of copies to the client that are under way; and how long one that the GPU does not begin
// may hold up the calls behind it.
constexpr uint64_t kReadAhead = 32u << 20, kReadAheadUnwaited = 128u << 20;
constexpr uint64_t kPatienceNs = 20'000'000;

// The stream of a copy: 0 is a synchronous call, which is ordered like the legacy stream.
CUstream copy_stream(Scope& s, uint64_t id) { return s.stream(id); }

// Sizes of one class take about the same time, for the gate.
uint64_t size_class(uint64_t bytes) {
  return bytes == 0 ? 0 : 64 - static_cast<uint64_t>(__builtin_clzll(bytes));
}

// Copies from and to the host use an engine of their own, and pass no gate.
bool is_of_host(Executor& w, uint64_t address) { return w.mirrors().find(address) != nullptr; }

// Why there is no staging: a fault has ended the context, or memory is out.
CUresult refusal(Executor& w, CUstream stream) {
  const CUresult state = w.driver().cuStreamQuery(stream);
  return state == CUDA_SUCCESS || state == CUDA_ERROR_NOT_READY ? CUDA_ERROR_OUT_OF_MEMORY : state;
}

CUresult send_staged(Executor& w, uint64_t destination, const uint8_t* data, uint64_t bytes,
                     CUstream stream) {
  Block block = w.waiters().staging().take(bytes);
  if (block.data == nullptr) return refusal(w, stream);
  std::memcpy(block.data, data, bytes);
  const CUresult result = w.driver().cuMemcpyHtoDAsync_v2(destination, block.data, bytes, stream);
  InFlight item;
  item.context = w.context()->context;
  item.block = block;
  w.waiters().in_flight(stream, item);
  return result;
}

// Data that comes beside the lane, piece by piece: each is on its way to the GPU while the next one
// arrives.
CUresult send_bulk(Executor& w, uint64_t destination, uint64_t bytes, uint64_t transfer,
                   CUstream stream) {
  CUresult result = CUDA_SUCCESS;
  for (uint64_t left = bytes; left != 0;) {
    session::Piece piece;
    if (!w.service().take(transfer, &piece)) return CUDA_ERROR_UNKNOWN;  // the session is over
    const bool inside = piece.offset <= bytes && piece.bytes <= bytes - piece.offset &&
                        piece.bytes <= left && piece.bytes != 0;
    if (!inside) {
      w.service().release(piece);
      w.service().end("a bulk transfer does not fit the copy that announced it");
      return CUDA_ERROR_INVALID_VALUE;
    }
    left -= piece.bytes;
    if (result == CUDA_SUCCESS) {
      result = w.driver().cuMemcpyHtoDAsync_v2(destination + piece.offset, piece.data, piece.bytes,
                                               stream);
    }
    if (result != CUDA_SUCCESS) {
      w.service().release(piece);
      continue;
    }
    InFlight item;
    item.context = w.context()->context;
    item.piece = piece;
    item.is_piece = true;
    w.waiters().in_flight(stream, item);
    w.waiters().reclaim(kPiecesInFlightMax);
  }
  return result;
}

// Data that goes beside the lane: in pieces, so that one is sent while the GPU copies the next, and
// staging stays small and is used again. A copy for which nobody waits takes more staging rather
// than keep later calls from a GPU that is busy before it.
CUresult read_bulk(Executor& w, uint64_t source, uint64_t bytes, uint64_t transfer, CUstream stream,
                   bool waited_for) {
  Waiters& waiters = w.waiters();
  const uint64_t quarter = (bytes / 4 + kReadPieceLeast - 1) / kReadPieceLeast * kReadPieceLeast;
  const uint64_t piece = std::clamp(quarter, kReadPieceLeast, kReadPieceMost);
  uint64_t patience_ns = waited_for ? UINT64_MAX : kPatienceNs;
  for (uint64_t at = 0; at < bytes; at += piece) {
    Delivery delivery;
    delivery.context = w.context()->context;
    delivery.transfer = transfer;
    delivery.offset = at;
    delivery.bytes = std::min(piece, bytes - at);
    delivery.last = at + delivery.bytes == bytes;
    delivery.soon = !waited_for || bytes > piece;
    waiters.make_room(delivery.bytes, waited_for ? kReadAhead : kReadAheadUnwaited, &patience_ns);
    delivery.block = waiters.staging().take(delivery.bytes);
    if (delivery.block.data == nullptr) return refusal(w, stream);
    CUresult result =
        w.driver().cuMemcpyDtoHAsync_v2(delivery.block.data, source + at, delivery.bytes, stream);
    if (result != CUDA_SUCCESS)
      waiters.staging().give_back(delivery.block);
    else
      result = waiters.add_delivery(stream, delivery);
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

}  // namespace

CUresult handle(Executor& w, const wire::cuda::memory_allocate_request& m,
                wire::cuda::memory_allocate_reply& r) {
  if (w.context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  const bool pitched = m.pitch_height != 0;
  if (pitched && (m.pitch_width == 0 || m.pitch_width > (uint64_t{1} << 40) / m.pitch_height))
    return CUDA_ERROR_OUT_OF_MEMORY;
  uint64_t bytes = pitched ? m.pitch_width * m.pitch_height : m.bytes;
  const uint32_t slot = w.slot();
  if (!w.charge().take(slot, bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  CUdeviceptr address = 0;
  size_t pitch = 0;
  CUresult result = pitched ? w.driver().cuMemAllocPitch_v2(&address, &pitch, m.pitch_width,
                                                            m.pitch_height, m.element)
                            : w.driver().cuMemAlloc_v2(&address, m.bytes);
  if (result == CUDA_SUCCESS && pitched && pitch * m.pitch_height > bytes) {
    // The driver rounds rows up; the slice pays for what it really takes.
    const uint64_t more = pitch * m.pitch_height - bytes;
    if (w.charge().take(slot, more)) {
      bytes += more;
    } else {
      w.driver().cuMemFree_v2(address);
      result = CUDA_ERROR_OUT_OF_MEMORY;
    }
  }
  if (result != CUDA_SUCCESS) {
    w.charge().give_back(slot, bytes);
    return result;
  }
  w.charge().remember(address, slot, bytes, w.context());
  r.address = address;
  r.pitch = pitch;
  return CUDA_SUCCESS;
}

// A driver looks for addresses in this process' own space, so what is mapped here it does not give
// out. Pieces that have something in them are left alone. It costs no memory; a client that asks
// for much makes addresses scarce for itself.
CUresult handle(Executor& w, const wire::cuda::memory_avoid_request& m) {
  constexpr uint64_t kBlock = 2u << 20,
                     kTop = 0x7ff8'0000'0000;  // above it lies this process' stack
  static uint32_t left = 4096;                 // of mappings, which a process has some 65,000 of
  static uint64_t bytes_left = uint64_t{1} << 40;  // of 128 TiB
  if (m.address >= kTop) return CUDA_SUCCESS;
  const uint64_t bytes = std::min({m.bytes, kTop - m.address, bytes_left}), end = m.address + bytes;
  bytes_left -= bytes;
  struct Piece {
    uint64_t first, end;
  };
  std::vector<Piece> pieces = {{m.address & ~(kBlock - 1), end & ~(kBlock - 1)}};
  while (!pieces.empty() && left != 0) {
    const Piece piece = pieces.back();
    pieces.pop_back();
    if (piece.first >= piece.end) continue;
    --left;
    if (w.mirrors().occupy(piece.first, piece.end - piece.first)) continue;
    const uint64_t middle = (piece.first + (piece.end - piece.first) / 2) & ~(kBlock - 1);
    if (middle == piece.first) continue;
    pieces.push_back({piece.first, middle});
    pieces.push_back({middle, piece.end});
  }
  return CUDA_SUCCESS;
}

CUresult handle(Executor& w, const wire::cuda::memory_free_request& m) {
  const CUresult result = w.driver().cuMemFree_v2(m.address);
  if (result == CUDA_SUCCESS) {
    w.charge().release(m.address);
    w.kept_memory().freed(m.address);
    w.ipc().gone(m.address);
  }
  return result;
}

CUresult handle(Executor& w, const wire::cuda::memory_info_request&,
                wire::cuda::memory_info_reply& r) {
  size_t free = 0, total = 0;
  w.kept_memory().settle_pools();
  const CUresult result = w.driver().cuMemGetInfo_v2(&free, &total);
  if (result != CUDA_SUCCESS) return result;
  const uint64_t quota = w.charge().quota(w.slot()), used = w.charge().used(w.slot());
  r.total = quota;
  r.free = used < quota ? quota - used : 0;
  if (free < r.free) r.free = free;  // other users of the card can make the slice's memory scarce
  return CUDA_SUCCESS;
}

CUresult handle(Executor& w, const wire::cuda::memory_pointer_attribute_request& m,
                wire::cuda::memory_pointer_attribute_reply& r) {
  // Only attributes of at most eight bytes are asked for this way; the buffer holds any of them.
  uint64_t room[8] = {};
  const CUresult result = w.driver().cuPointerGetAttribute(
      room, static_cast<CUpointer_attribute>(m.attribute), m.address);
  r.value = room[0];
  return result;
}

CUresult handle(Executor& w, const wire::cuda::copy_to_device_request& m) {
  if (w.context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  Scope s(w);
  CUstream stream = copy_stream(s, m.stream);
  if (!s.ok() || (m.transfer == 0 && m.data.count != m.bytes)) {
    if (m.transfer != 0) w.service().discard(m.transfer);
    return s.ok() ? CUDA_ERROR_INVALID_VALUE : s.error();
  }
  const bool bulk = m.transfer != 0;
  const CUresult result = bulk ? send_bulk(w, m.destination, m.bytes, m.transfer, stream)
                               : send_staged(w, m.destination, m.data.data, m.bytes, stream);
  return w.streams().copy_given(m.stream, result);
}

CUresult handle(Executor& w, const wire::cuda::copy_from_device_request& m,
                wire::cuda::copy_from_device_reply&) {
  if (w.context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  Scope s(w);
  CUstream stream = copy_stream(s, m.stream);
  if (!s.ok()) return s.error();
  if (m.transfer == 0 && m.bytes > wire::kReplyInlineMax) return CUDA_ERROR_INVALID_VALUE;
  if (m.transfer != 0) {
    const CUresult result = read_bulk(w, m.source, m.bytes, m.transfer, stream, true);
    return result == CUDA_SUCCESS ? w.waiters().answer_after_copy(stream, Block{}, 0) : result;
  }
  const Block block = w.waiters().staging().take(m.bytes);
  if (block.data == nullptr) return refusal(w, stream);
  const CUresult result = w.driver().cuMemcpyDtoHAsync_v2(block.data, m.source, m.bytes, stream);
  if (result == CUDA_SUCCESS) return w.waiters().answer_after_copy(stream, block, m.bytes);
  w.waiters().staging().give_back(block);
  return result;
}

CUresult handle(Executor& w, const wire::cuda::copy_from_device_async_request& m) {
  if (w.context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  Scope s(w);
  CUstream stream = copy_stream(s, m.stream);
  CUresult result = s.ok() ? CUDA_SUCCESS : s.error();
  if (m.transfer != 0) {
    if (result == CUDA_SUCCESS) result = read_bulk(w, m.source, m.bytes, m.transfer, stream, false);
    if (result != CUDA_SUCCESS) w.service().transfer_failed(m.transfer, result);
    return result;
  }
  if (m.bytes > wire::kReplyInlineMax) result = CUDA_ERROR_INVALID_VALUE;
  if (result != CUDA_SUCCESS) return result;
  Delivery delivery;
  delivery.context = w.context()->context;
  delivery.host = m.host;
  delivery.bytes = m.bytes;
  delivery.block = w.waiters().staging().take(m.bytes);
  if (delivery.block.data == nullptr) return refusal(w, stream);
  result = w.driver().cuMemcpyDtoHAsync_v2(delivery.block.data, m.source, m.bytes, stream);
  if (result == CUDA_SUCCESS) return w.waiters().add_delivery(stream, delivery);
  w.waiters().staging().give_back(delivery.block);
  return result;
}

CUresult handle(Executor& w, const wire::cuda::copy_device_request& m) {
  Scope s(w);
  CUstream stream = copy_stream(s, m.stream);
  if (!s.ok()) return s.error();
  if (is_workers_own(w, m.destination, m.bytes) || is_workers_own(w, m.source, m.bytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (!w.gate().open(w.slot()) && !is_of_host(w, m.destination) && !is_of_host(w, m.source) &&
      !w.gate().may_work(w.context(), stream, static_cast<uint64_t>(m.kOp), size_class(m.bytes))) {
    return CUDA_ERROR_UNKNOWN;
  }
  const Mirrors& mirrors = w.mirrors();
  return w.streams().copy_given(
      m.stream, w.driver().cuMemcpyAsync(mirrors.place_of(m.destination),
                                         mirrors.place_of(m.source), m.bytes, stream));
}

// A stream of the moment waits for the copies, and nothing else: an event of theirs may be recorded
// again meanwhile.
CUresult handle(Executor& w, const wire::cuda::copies_wait_request&,
                wire::cuda::copies_wait_reply&) {
  if (w.context() == nullptr || w.context()->copied == nullptr) return CUDA_SUCCESS;
  CUstream stream = nullptr;
  CUresult result = w.driver().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
  if (result != CUDA_SUCCESS) return result;
  result = w.driver().cuStreamWaitEvent(stream, w.context()->copied, 0);
  if (result == CUDA_SUCCESS) result = w.waiters().answer_after_copy(stream, Block{}, 0);
  w.driver().cuStreamDestroy_v2(stream);  // when what it has is over
  return result;
}

CUresult handle(Executor& w, const wire::cuda::memory_set_request& m) {
  Scope s(w);
  CUstream stream = copy_stream(s, m.stream);
  if (!s.ok()) return s.error();
  gpu::Driver& d = w.driver();
  const auto byte = static_cast<unsigned char>(m.value);
  const auto half = static_cast<unsigned short>(m.value);
  const bool flat = m.height <= 1;
  const uint64_t bytes = m.element * m.width * (flat ? 1 : m.height);
  if (!w.gate().may_work(w.context(), stream, static_cast<uint64_t>(m.kOp), size_class(bytes)))
    return CUDA_ERROR_UNKNOWN;
  switch (m.element) {
    case 1:
      return flat ? d.cuMemsetD8Async(m.destination, byte, m.width, stream)
                  : d.cuMemsetD2D8Async(m.destination, m.pitch, byte, m.width, m.height, stream);
    case 2:
      return flat ? d.cuMemsetD16Async(m.destination, half, m.width, stream)
                  : d.cuMemsetD2D16Async(m.destination, m.pitch, half, m.width, m.height, stream);
    case 4:
      return flat
                 ? d.cuMemsetD32Async(m.destination, m.value, m.width, stream)
                 : d.cuMemsetD2D32Async(m.destination, m.pitch, m.value, m.width, m.height, stream);
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

}  // namespace tendril::worker::cuda
