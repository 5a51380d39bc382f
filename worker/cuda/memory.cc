// SPDX-License-Identifier: Apache-2.0
// Handlers of api/cuda/memory.spec: allocation under the quota, copies through pinned staging,
// memsets.
#include <algorithm>
#include <cstring>
#include <vector>

#include "api/cuda_handlers.gen.h"
#include "base/clock.h"
#include "worker/cuda/executor/scope.h"
#include "worker/cuda/executor/waits.h"
#include "worker/cuda/ipc.h"
#include "worker/cuda/memory/device_blocks.h"
#include "worker/cuda/memory/direct.h"
#include "worker/cuda/memory/kept_memory.h"
#include "worker/cuda/memory/mirror.h"

namespace tendril::worker::cuda {
namespace {

constexpr size_t kPiecesInFlightMax = 8;
constexpr uint64_t kReadPieceLeast = 1u << 20, kReadPieceMost = 4u << 20;
// Limits for copies to the client that are under way: how much staging they use, and how long a
// copy that the GPU has not begun may hold up the calls behind it.
constexpr uint64_t kReadAhead = 32u << 20, kReadAheadUnwaited = 128u << 20;
constexpr uint64_t kPatienceNs = 20'000'000;

// The stream of a copy. 0: a synchronous call, which is ordered like the legacy stream.
CUstream copy_stream(Scope& scope, uint64_t id) { return scope.stream(id); }

// The gate's class of a size. Copies of one class take about the same time.
uint64_t size_class(uint64_t bytes) {
  return bytes == 0 ? 0 : 64 - static_cast<uint64_t>(__builtin_clzll(bytes));
}

// Copies from and to the host use a separate engine, so they pass no gate.
bool is_of_host(Executor& executor, uint64_t address) {
  return executor.mirrors().find(address) != nullptr;
}

// The error if there is no staging: a fault has ended the context, or memory has run out.
CUresult refusal(Executor& executor, CUstream stream) {
  const CUresult state = executor.driver().cuStreamQuery(stream);
  return state == CUDA_SUCCESS || state == CUDA_ERROR_NOT_READY ? CUDA_ERROR_OUT_OF_MEMORY : state;
}

CUresult send_staged(Executor& executor, uint64_t destination, const uint8_t* data, uint64_t bytes,
                     CUstream stream) {
  Block block = executor.waiters().staging().take(bytes);
  if (block.data == nullptr) return refusal(executor, stream);
  std::memcpy(block.data, data, bytes);
  const CUresult result =
      executor.driver().cuMemcpyHtoDAsync_v2(destination, block.data, bytes, stream);
  InFlight item;
  item.context = executor.context()->context;
  item.block = block;
  executor.waiters().in_flight(stream, item);
  return result;
}

// Copies data that comes beside the lane, in pieces. Each piece is on its way to the GPU while the
// next one arrives. Some may be there already (session::Service::aim).
CUresult take_bulk(Executor& executor, uint64_t destination, uint64_t bytes, uint64_t transfer,
                   CUstream stream) {
  CUresult result = CUDA_SUCCESS;
  for (uint64_t left = bytes; left != 0;) {
    session::Piece piece;
    if (!executor.service().take(transfer, &piece))
      return CUDA_ERROR_UNKNOWN;  // the session is over
    const bool inside = piece.offset <= bytes && piece.bytes <= bytes - piece.offset &&
                        piece.bytes <= left && piece.bytes != 0;
    if (!inside) {
      executor.service().release(piece);
      executor.service().end("a bulk transfer does not fit the copy that announced it");
      return CUDA_ERROR_INVALID_VALUE;
    }
    left -= piece.bytes;
    const uint32_t rest = piece.bytes - piece.placed;
    if (result == CUDA_SUCCESS && rest != 0) {
      result = executor.driver().cuMemcpyHtoDAsync_v2(destination + piece.offset + piece.placed,
                                                      piece.data + piece.placed, rest, stream);
    }
    if (result != CUDA_SUCCESS || rest == 0) {
      executor.service().release(piece);
      continue;
    }
    InFlight item;
    item.context = executor.context()->context;
    item.piece = piece;
    item.is_piece = true;
    executor.waiters().in_flight(stream, item);
    executor.waiters().reclaim(kPiecesInFlightMax);
  }
  return result;
}

CUresult send_bulk(Executor& executor, uint64_t destination, uint64_t bytes, uint64_t transfer,
                   CUstream stream) {
  if (!executor.direct().may_write(destination, bytes, stream))
    return take_bulk(executor, destination, bytes, transfer, stream);
  executor.service().aim(transfer, destination, bytes);
  const CUresult taken = take_bulk(executor, destination, bytes, transfer, stream);
  executor.service().unaim(transfer);
  const CUresult seen = executor.direct().written();
  return taken == CUDA_SUCCESS ? seen : taken;
}

// Sends data beside the lane, in pieces. So one piece is sent while the GPU copies the next, and
// staging stays small and is reused. Exception: a copy for which nobody waits may take more
// staging. Otherwise it would hold up later calls while the GPU is busy with earlier work.
CUresult read_bulk(Executor& executor, uint64_t source, uint64_t bytes, uint64_t transfer,
                   CUstream stream, bool waited_for) {
  Waiters& waiters = executor.waiters();
  const uint64_t quarter = (bytes / 4 + kReadPieceLeast - 1) / kReadPieceLeast * kReadPieceLeast;
  const uint64_t piece = std::clamp(quarter, kReadPieceLeast, kReadPieceMost);
  uint64_t patience_ns = waited_for ? UINT64_MAX : kPatienceNs;
  for (uint64_t at = 0; at < bytes; at += piece) {
    Delivery delivery;
    delivery.context = executor.context()->context;
    delivery.transfer = transfer;
    delivery.offset = at;
    delivery.bytes = std::min(piece, bytes - at);
    delivery.last = at + delivery.bytes == bytes;
    delivery.soon = !waited_for || bytes > piece;
    waiters.make_room(delivery.bytes, waited_for ? kReadAhead : kReadAheadUnwaited, &patience_ns);
    delivery.block = waiters.staging().take(delivery.bytes);
    if (delivery.block.data == nullptr) return refusal(executor, stream);
    CUresult result = executor.driver().cuMemcpyDtoHAsync_v2(delivery.block.data, source + at,
                                                             delivery.bytes, stream);
    if (result != CUDA_SUCCESS)
      waiters.staging().give_back(delivery.block);
    else
      result = waiters.add_delivery(stream, delivery);
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

}  // namespace

CUresult handle(Executor& executor, const wire::cuda::memory_allocate_request& request,
                wire::cuda::memory_allocate_reply& reply) {
  if (executor.context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  const uint32_t slot = executor.slot();
  PageCharge& pages = executor.pages();
  const bool mapped = executor.blocks().serves(slot);
  if (request.bytes > executor.charge().quota(slot)) return CUDA_ERROR_OUT_OF_MEMORY;
  const uint64_t bytes = mapped ? base::whole_pages(request.bytes) : request.bytes;
  uint64_t ahead = 0;
  CUdeviceptr address = 0;
  if (!pages.before(slot, bytes, &ahead)) return CUDA_ERROR_OUT_OF_MEMORY;
  const CUresult result = mapped ? executor.blocks().make(bytes, &address)
                                 : executor.driver().cuMemAlloc_v2(&address, bytes);
  if (result != CUDA_SUCCESS) {
    pages.refused(slot, ahead);
    return executor.kept_memory().refused(result, slot, bytes);
  }
  if (!pages.after(slot, address, bytes, executor.context(), ahead)) {
    executor.driver().cuMemFree_v2(address);  // of blocks it takes what they were said to
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  const uint64_t quota = executor.charge().quota(slot), used = executor.charge().used(slot);
  reply.address = address;
  reply.left = used < quota ? quota - used : 0;
  return CUDA_SUCCESS;
}

CUresult handle(Executor& executor, const wire::cuda::arena_open_request& request,
                wire::cuda::arena_open_reply& reply) {
  if (executor.context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (executor.blocks().open_arena(request.wished, request.bytes, request.own))
    reply.address = request.wished;
  return CUDA_SUCCESS;
}

CUresult handle(Executor& executor, const wire::cuda::arena_pay_request& request,
                wire::cuda::arena_pay_reply& reply) {
  if (request.ahead != 0) executor.charge().note_keeps(true);  // whatever comes of the call
  if (executor.context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  constexpr uint64_t kPart = 8;  // of what is left
  const uint32_t slot = executor.slot();
  PageCharge& pages = executor.pages();
  const uint64_t quota = executor.charge().quota(slot);
  if (request.bytes > quota) return CUDA_ERROR_OUT_OF_MEMORY;
  const uint64_t needed = base::whole_pages(request.bytes);
  if (!pages.pay_ahead(slot, needed)) return CUDA_ERROR_OUT_OF_MEMORY;
  const auto left = [&] {
    const uint64_t used = executor.charge().used(slot);
    return used < quota ? quota - used : 0;
  };
  reply.paid = needed;
  const uint64_t wished = executor.charge().is_short(base::now_ns()) ? 0 : request.ahead;
  const uint64_t more = std::min(wished, left() / kPart) & ~(base::kGpuPageBytes - 1);
  if (more != 0 && pages.pay_ahead(slot, more)) reply.paid += more;
  reply.left = left();
  // What is paid must be there when it is made, since nobody waits for that.
  size_t free = 0, total = 0;
  CUresult result = executor.driver().cuMemGetInfo_v2(&free, &total);
  if (result == CUDA_SUCCESS && free < pages.paid_ahead(slot)) result = CUDA_ERROR_OUT_OF_MEMORY;
  if (result == CUDA_SUCCESS) return CUDA_SUCCESS;
  pages.give_up(slot, reply.paid);
  return executor.kept_memory().refused(result, slot, needed);
}

CUresult handle(Executor& executor, const wire::cuda::arena_give_up_request& request) {
  executor.pages().give_up(request.slot, request.bytes);
  return CUDA_SUCCESS;
}

CUresult handle(Executor& executor, const wire::cuda::arena_make_request& request) {
  if (executor.context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  PageCharge& pages = executor.pages();
  const uint32_t slot = executor.slot();
  if (!pages.spend(slot, request.address, request.bytes, executor.context()))
    return CUDA_ERROR_OUT_OF_MEMORY;
  const CUresult result = executor.blocks().make_at(request.address, request.bytes);
  if (result == CUDA_SUCCESS) return result;
  pages.keep(request.address);
  return executor.kept_memory().refused(result, slot, request.bytes);
}

CUresult handle(Executor& executor, const wire::cuda::memory_keeps_request&,
                wire::cuda::memory_keeps_reply&) {
  executor.charge().note_keeps(true);
  return CUDA_SUCCESS;
}

CUresult handle(Executor& executor, const wire::cuda::memory_given_request&) {
  executor.memory_given();
  return CUDA_SUCCESS;
}

CUresult handle(Executor& executor, const wire::cuda::memory_wanted_request& request,
                wire::cuda::memory_wanted_reply& reply) {
  const bool fits = request.bytes <= executor.charge().quota(executor.slot());
  reply.others = fits && executor.charge().ask_others(base::now_ns()) ? 1 : 0;
  return CUDA_SUCCESS;
}

CUresult handle(Executor& executor, const wire::cuda::memory_reuse_request&) {
  if (executor.context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  return wait_for_all(executor);
}

// A driver takes its addresses from this process' address space, so it does not give out what is
// mapped here. Pieces that are in use already are skipped. This costs no memory. A client that asks
// for much only makes its own addresses scarce.
CUresult handle(Executor& executor, const wire::cuda::memory_avoid_request& request) {
  constexpr uint64_t kBlock = 2u << 20,
                     kTop = 0x7ff8'0000'0000;  // above it lies this process' stack
  static uint32_t left = 4096;                 // of mappings, which a process has some 65,000 of
  static uint64_t bytes_left = uint64_t{1} << 40;  // of 128 TiB
  if (request.address >= kTop) return CUDA_SUCCESS;
  const uint64_t bytes = std::min({request.bytes, kTop - request.address, bytes_left}),
                 end = request.address + bytes;
  bytes_left -= bytes;
  executor.blocks().avoid(request.address, bytes);
  struct Piece {
    uint64_t first, end;
  };
  std::vector<Piece> pieces = {{request.address & ~(kBlock - 1), end & ~(kBlock - 1)}};
  while (!pieces.empty() && left != 0) {
    const Piece piece = pieces.back();
    pieces.pop_back();
    if (piece.first >= piece.end) continue;
    --left;
    if (executor.mirrors().occupy(piece.first, piece.end - piece.first)) continue;
    const uint64_t middle = (piece.first + (piece.end - piece.first) / 2) & ~(kBlock - 1);
    if (middle == piece.first) continue;
    pieces.push_back({piece.first, middle});
    pieces.push_back({middle, piece.end});
  }
  return CUDA_SUCCESS;
}

CUresult handle(Executor& executor, const wire::cuda::memory_free_request& request) {
  DeviceBlocks::Block* const block = executor.blocks().find(request.address);
  const bool own = block != nullptr && block->address == request.address && block->token.empty();
  if (block != nullptr && !own) return CUDA_ERROR_INVALID_VALUE;
  const bool stays_paid = own && block->of_arena && !block->exported;
  const CUresult result =
      own ? executor.blocks().give_back(block) : executor.driver().cuMemFree_v2(request.address);
  if (result == CUDA_SUCCESS) {
    // If others have it open, tendrild charges it before this worker stops paying.
    executor.ipc().gone(request.address);
    executor.ipc().closed(request.address);
    if (stays_paid)
      executor.pages().keep(request.address);
    else
      executor.pages().freed(request.address);
    executor.kept_memory().freed(request.address);
  }
  return result;
}

CUresult handle(Executor& executor, const wire::cuda::memory_info_request&,
                wire::cuda::memory_info_reply& reply) {
  size_t free = 0, total = 0;
  executor.kept_memory().settle_pools();
  // Before the account is read: whoever keeps nothing any more has given it back.
  reply.others = executor.charge().ask_others(base::now_ns()) ? 1 : 0;
  const CUresult result = executor.driver().cuMemGetInfo_v2(&free, &total);
  if (result != CUDA_SUCCESS) return result;
  const uint64_t quota = executor.charge().quota(executor.slot()),
                 used = executor.charge().used(executor.slot());
  reply.total = quota;
  reply.free = used < quota ? quota - used : 0;
  if (free < reply.free)
    reply.free = free;  // other users of the card may leave less than the slice's share
  return CUDA_SUCCESS;
}

CUresult handle(Executor& executor, const wire::cuda::memory_pointer_attribute_request& request,
                wire::cuda::memory_pointer_attribute_reply& reply) {
  // This call serves only attributes of at most eight bytes. The buffer is larger than any
  // attribute.
  uint64_t room[8] = {};
  const CUresult result = executor.driver().cuPointerGetAttribute(
      room, static_cast<CUpointer_attribute>(request.attribute), request.address);
  reply.value = room[0];
  return result;
}

CUresult handle(Executor& executor, const wire::cuda::copy_to_device_request& request) {
  if (executor.context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  Scope scope(executor);
  CUstream stream = copy_stream(scope, request.stream);
  if (!scope.ok() || (request.transfer == 0 && request.data.count != request.bytes)) {
    if (request.transfer != 0) executor.service().discard(request.transfer);
    return scope.ok() ? CUDA_ERROR_INVALID_VALUE : scope.error();
  }
  const bool bulk = request.transfer != 0;
  const CUresult result =
      bulk ? send_bulk(executor, request.destination, request.bytes, request.transfer, stream)
           : send_staged(executor, request.destination, request.data.data, request.bytes, stream);
  return executor.streams().copy_given(request.stream, result);
}

CUresult handle(Executor& executor, const wire::cuda::copy_from_device_request& request,
                wire::cuda::copy_from_device_reply&) {
  if (executor.context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  Scope scope(executor);
  CUstream stream = copy_stream(scope, request.stream);
  if (!scope.ok()) return scope.error();
  if (request.transfer == 0 && request.bytes > wire::kReplyInlineMax)
    return CUDA_ERROR_INVALID_VALUE;
  if (request.transfer != 0) {
    // Nobody's GPU waits while a card sends this: the client does, and the stream has nothing else.
    const bool by_card = executor.direct().may_read(request.source, request.bytes, stream);
    const CUresult result =
        by_card
            ? executor.direct().send(request.transfer, request.source, request.bytes)
            : read_bulk(executor, request.source, request.bytes, request.transfer, stream, true);
    return result == CUDA_SUCCESS ? executor.waiters().answer_after_copy(stream, Block{}, 0)
                                  : result;
  }
  const Block block = executor.waiters().staging().take(request.bytes);
  if (block.data == nullptr) return refusal(executor, stream);
  const CUresult result =
      executor.driver().cuMemcpyDtoHAsync_v2(block.data, request.source, request.bytes, stream);
  if (result == CUDA_SUCCESS)
    return executor.waiters().answer_after_copy(stream, block, request.bytes);
  executor.waiters().staging().give_back(block);
  return result;
}

CUresult handle(Executor& executor, const wire::cuda::copy_from_device_async_request& request) {
  if (executor.context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  Scope scope(executor);
  CUstream stream = copy_stream(scope, request.stream);
  CUresult result = scope.ok() ? CUDA_SUCCESS : scope.error();
  if (request.transfer != 0) {
    if (result == CUDA_SUCCESS)
      result = read_bulk(executor, request.source, request.bytes, request.transfer, stream, false);
    if (result != CUDA_SUCCESS) executor.service().transfer_failed(request.transfer, result);
    return result;
  }
  if (request.bytes > wire::kReplyInlineMax) result = CUDA_ERROR_INVALID_VALUE;
  if (result != CUDA_SUCCESS) return result;
  Delivery delivery;
  delivery.context = executor.context()->context;
  delivery.host = request.host;
  delivery.bytes = request.bytes;
  delivery.block = executor.waiters().staging().take(request.bytes);
  if (delivery.block.data == nullptr) return refusal(executor, stream);
  result = executor.driver().cuMemcpyDtoHAsync_v2(delivery.block.data, request.source,
                                                  request.bytes, stream);
  if (result == CUDA_SUCCESS) return executor.waiters().add_delivery(stream, delivery);
  executor.waiters().staging().give_back(delivery.block);
  return result;
}

CUresult handle(Executor& executor, const wire::cuda::copy_device_request& request) {
  Scope scope(executor);
  CUstream stream = copy_stream(scope, request.stream);
  if (!scope.ok()) return scope.error();
  if (is_workers_own(executor, request.destination, request.bytes) ||
      is_workers_own(executor, request.source, request.bytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (!executor.gate().open(executor.slot()) && !is_of_host(executor, request.destination) &&
      !is_of_host(executor, request.source) &&
      !executor.gate().may_work(executor.context(), stream,
                                static_cast<uint64_t>(wire::cuda::copy_device_request::kOp),
                                size_class(request.bytes))) {
    return CUDA_ERROR_UNKNOWN;
  }
  const Mirrors& mirrors = executor.mirrors();
  return executor.streams().copy_given(
      request.stream,
      executor.driver().cuMemcpyAsync(mirrors.place_of(request.destination),
                                      mirrors.place_of(request.source), request.bytes, stream));
}

// A temporary stream waits for the copies and nothing else. Their own event would not do, because
// it may be recorded again meanwhile.
CUresult handle(Executor& executor, const wire::cuda::copies_wait_request&,
                wire::cuda::copies_wait_reply&) {
  if (executor.context() == nullptr || executor.context()->copied == nullptr) return CUDA_SUCCESS;
  CUstream stream = nullptr;
  CUresult result = executor.driver().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
  if (result != CUDA_SUCCESS) return result;
  result = executor.driver().cuStreamWaitEvent(stream, executor.context()->copied, 0);
  if (result == CUDA_SUCCESS) result = executor.waiters().answer_after_copy(stream, Block{}, 0);
  executor.driver().cuStreamDestroy_v2(stream);  // ends when its work is over
  return result;
}

CUresult handle(Executor& executor, const wire::cuda::memory_set_request& request) {
  Scope scope(executor);
  CUstream stream = copy_stream(scope, request.stream);
  if (!scope.ok()) return scope.error();
  gpu::Driver& driver = executor.driver();
  const auto byte = static_cast<unsigned char>(request.value);
  const auto half = static_cast<unsigned short>(request.value);
  const bool flat = request.height <= 1;
  const uint64_t bytes = request.element * request.width * (flat ? 1 : request.height);
  if (!executor.gate().may_work(executor.context(), stream,
                                static_cast<uint64_t>(wire::cuda::memory_set_request::kOp),
                                size_class(bytes)))
    return CUDA_ERROR_UNKNOWN;
  switch (request.element) {
    case 1:
      return flat ? driver.cuMemsetD8Async(request.destination, byte, request.width, stream)
                  : driver.cuMemsetD2D8Async(request.destination, request.pitch, byte,
                                             request.width, request.height, stream);
    case 2:
      return flat ? driver.cuMemsetD16Async(request.destination, half, request.width, stream)
                  : driver.cuMemsetD2D16Async(request.destination, request.pitch, half,
                                              request.width, request.height, stream);
    case 4:
      return flat ? driver.cuMemsetD32Async(request.destination, request.value, request.width,
                                            stream)
                  : driver.cuMemsetD2D32Async(request.destination, request.pitch, request.value,
                                              request.width, request.height, stream);
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

}  // namespace tendril::worker::cuda
