// SPDX-License-Identifier: Apache-2.0
// Handlers of api/cuda/memory.spec: allocation under the quota, copies through pinned staging, memsets.
#include <cstring>

#include "api/cuda_handlers.gen.h"
#include "worker/cuda/arrival.h"
#include "worker/cuda/ipc.h"
#include "worker/cuda/mirror.h"
#include "worker/cuda/scope.h"
#include "worker/cuda/waits.h"

namespace tendril::worker::cuda {
namespace {

// The stream of a copy: 0 is a synchronous call, which is ordered like the legacy stream.
CUstream copy_stream(Scope& s, uint64_t id) {
  return s.stream(id);
}

// Why there is no staging: a fault has ended the context, or memory is out.
CUresult refusal(Executor& w, CUstream stream) {
  const CUresult state = w.driver().cuStreamQuery(stream);
  return state == CUDA_SUCCESS || state == CUDA_ERROR_NOT_READY ? CUDA_ERROR_OUT_OF_MEMORY : state;
}

CUresult send_staged(Executor& w, uint64_t destination, const uint8_t* data, uint64_t bytes, CUstream stream) {
  Flight flight;
  flight.loan = w.waiters().staging().lend(w.context()->context, bytes);
  if (flight.loan.data() == nullptr) return refusal(w, stream);
  std::memcpy(flight.loan.data(), data, bytes);
  const CUresult result = w.driver().cuMemcpyHtoDAsync_v2(destination, flight.loan.data(), bytes, stream);
  w.waiters().in_flight(stream, std::move(flight));
  return result;
}

// Very large copies to the client go through two blocks in turn, so that staging stays small. Aside.
CUresult read_in_pieces(Executor& w, CUcontext context, uint64_t source, uint64_t bytes, uint64_t transfer,
                        CUstream stream) {
  constexpr uint64_t kPiece = 16u << 20;
  gpu::Driver& d = w.driver();
  Loan blocks[2] = {w.waiters().staging().lend(context, kPiece), w.waiters().staging().lend(context, kPiece)};
  CUresult result = blocks[0].ok() && blocks[1].ok() ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
  auto start = [&](uint64_t piece) {
    const uint64_t at = piece * kPiece, n = bytes - at < kPiece ? bytes - at : kPiece;
    CUresult status = d.cuMemcpyDtoHAsync_v2(blocks[piece % 2].data(), source + at, n, stream);
    return status == CUDA_SUCCESS ? d.cuEventRecord(blocks[piece % 2].event(), stream) : status;
  };
  const uint64_t pieces = (bytes + kPiece - 1) / kPiece;
  if (result == CUDA_SUCCESS) result = start(0);
  for (uint64_t i = 0; i < pieces && result == CUDA_SUCCESS; ++i) {
    if (i + 1 < pieces) result = start(i + 1);
    if (result == CUDA_SUCCESS) result = d.cuEventSynchronize(blocks[i % 2].event());
    const uint64_t at = i * kPiece, n = bytes - at < kPiece ? bytes - at : kPiece;
    if (result == CUDA_SUCCESS && !w.service().send_bulk(transfer, at, blocks[i % 2].data(), n))
      result = CUDA_ERROR_UNKNOWN;
  }
  if (result == CUDA_SUCCESS)
    w.waiters().deliver();
  else
    d.cuStreamSynchronize(stream);
  return result;
}

CUresult allocate(Executor& w, const wire::cuda::memory_allocate_request& m,
                  wire::cuda::memory_allocate_reply& r) {
  const bool pitched = m.pitch_height != 0;
  uint64_t bytes = pitched ? m.pitch_width * m.pitch_height : m.bytes;
  const uint32_t slot = w.slot();
  if (!w.charge().take(slot, bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  gpu::Driver& d = w.driver();
  CUdeviceptr address = 0;
  size_t pitch = 0;
  CUresult result = w.aside([&] {
    return pitched ? d.cuMemAllocPitch_v2(&address, &pitch, m.pitch_width, m.pitch_height, m.element)
                   : d.cuMemAlloc_v2(&address, m.bytes);
  });
  if (result == CUDA_SUCCESS && pitched && pitch * m.pitch_height > bytes) {
    // The driver rounds rows up; the slice pays for what it really takes.
    const uint64_t more = pitch * m.pitch_height - bytes;
    if (w.charge().take(slot, more)) {
      bytes += more;
    } else {
      w.aside([&] { return d.cuMemFree_v2(address); });
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

}  // namespace

CUresult handle(Executor& w, const wire::cuda::memory_allocate_request& m, wire::cuda::memory_allocate_reply& r) {
  if (w.context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (m.pitch_height != 0 && (m.pitch_width == 0 || m.pitch_width > (uint64_t{1} << 40) / m.pitch_height))
    return CUDA_ERROR_OUT_OF_MEMORY;
  return w.with_room([&] { return allocate(w, m, r); });
}

CUresult handle(Executor& w, const wire::cuda::memory_free_request& m) {
  const uint64_t address = m.address;
  w.charge().leave(address);
  w.ipc().gone(address);
  w.later([address](Executor& later) {
    const CUresult result = later.aside([&] { return later.driver().cuMemFree_v2(address); });
    later.charge().left(address, result == CUDA_SUCCESS);
    return result;
  });
  return CUDA_SUCCESS;
}

CUresult handle(Executor& w, const wire::cuda::memory_info_request&, wire::cuda::memory_info_reply& r) {
  size_t free = 0, total = 0;
  const CUresult result = w.aside([&] { return w.driver().cuMemGetInfo_v2(&free, &total); });
  if (result != CUDA_SUCCESS) return result;
  // What the program has freed is free, whether or not the driver has it back already.
  const uint64_t leaving = w.charge().leaving(w.slot());
  const uint64_t quota = w.charge().quota(w.slot()), used = w.charge().used(w.slot()) - leaving;
  r.total = quota;
  r.free = used < quota ? quota - used : 0;
  // Other users of the card can make the slice's memory scarce.
  if (free + leaving < r.free) r.free = free + leaving;
  return CUDA_SUCCESS;
}

CUresult handle(Executor& w, const wire::cuda::memory_pointer_attribute_request& m,
                wire::cuda::memory_pointer_attribute_reply& r) {
  // Only attributes of at most eight bytes are asked for this way; the buffer holds any of them.
  uint64_t room[8] = {};
  const CUresult result =
      w.driver().cuPointerGetAttribute(room, static_cast<CUpointer_attribute>(m.attribute), m.address);
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
  if (m.transfer == 0) return send_staged(w, m.destination, m.data.data, m.bytes, stream);
  return receive_to_device(w, m.destination, m.bytes, m.transfer, stream);
}

CUresult handle(Executor& w, const wire::cuda::copy_from_device_request& m, wire::cuda::copy_from_device_reply&) {
  if (w.context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  Scope s(w);
  CUstream stream = copy_stream(s, m.stream);
  if (!s.ok()) return s.error();
  if (m.transfer == 0 && m.bytes > wire::kInlineBytesMax) return CUDA_ERROR_INVALID_VALUE;
  CUcontext context = w.context()->context;
  if (m.transfer != 0 && m.bytes > (64u << 20)) {
    return w.aside([&] { return read_in_pieces(w, context, m.source, m.bytes, m.transfer, stream); });
  }
  auto readback = std::make_unique<Readback>(&w.service(), w.waiters().staging().lend(context, m.bytes), m.bytes,
                                             m.transfer);
  if (!readback->ok()) return refusal(w, stream);
  CUresult result = w.driver().cuMemcpyDtoHAsync_v2(readback->data(), m.source, m.bytes, stream);
  if (result == CUDA_SUCCESS) result = w.driver().cuEventRecord(readback->event(), stream);
  return result == CUDA_SUCCESS ? w.wait_with_data(std::move(readback)) : result;
}

CUresult handle(Executor& w, const wire::cuda::copy_from_device_async_request& m) {
  if (w.context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  Scope s(w);
  CUstream stream = copy_stream(s, m.stream);
  CUresult result = s.ok() ? CUDA_SUCCESS : s.error();
  if (m.transfer == 0 && m.bytes > wire::kInlineBytesMax) result = CUDA_ERROR_INVALID_VALUE;
  Loan loan;
  if (result == CUDA_SUCCESS) {
    loan = w.waiters().staging().lend(w.context()->context, m.bytes);
    if (!loan.ok()) result = CUDA_ERROR_OUT_OF_MEMORY;
  }
  Readback readback(&w.service(), std::move(loan), m.bytes, m.transfer, m.host);
  if (result == CUDA_SUCCESS) result = w.driver().cuMemcpyDtoHAsync_v2(readback.data(), m.source, m.bytes, stream);
  if (result == CUDA_SUCCESS) result = w.driver().cuEventRecord(readback.event(), stream);
  if (result == CUDA_SUCCESS)
    w.waiters().add_delivery(std::move(readback));
  else
    readback.announce(result);
  return result;
}

CUresult handle(Executor& w, const wire::cuda::copy_device_request& m) {
  Scope s(w);
  CUstream stream = copy_stream(s, m.stream);
  if (!s.ok()) return s.error();
  if (is_workers_own(w, m.destination, m.bytes) || is_workers_own(w, m.source, m.bytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const Mirrors& mirrors = w.mirrors();
  return w.driver().cuMemcpyAsync(mirrors.place_of(m.destination), mirrors.place_of(m.source), m.bytes, stream);
}

CUresult handle(Executor& w, const wire::cuda::memory_set_request& m) {
  Scope s(w);
  CUstream stream = copy_stream(s, m.stream);
  if (!s.ok()) return s.error();
  gpu::Driver& d = w.driver();
  const auto byte = static_cast<unsigned char>(m.value);
  const auto half = static_cast<unsigned short>(m.value);
  const bool flat = m.height <= 1;
  switch (m.element) {
    case 1:
      return flat ? d.cuMemsetD8Async(m.destination, byte, m.width, stream)
                  : d.cuMemsetD2D8Async(m.destination, m.pitch, byte, m.width, m.height, stream);
    case 2:
      return flat ? d.cuMemsetD16Async(m.destination, half, m.width, stream)
                  : d.cuMemsetD2D16Async(m.destination, m.pitch, half, m.width, m.height, stream);
    case 4:
      return flat ? d.cuMemsetD32Async(m.destination, m.value, m.width, stream)
                  : d.cuMemsetD2D32Async(m.destination, m.pitch, m.value, m.width, m.height, stream);
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

}  // namespace tendril::worker::cuda
