// SPDX-License-Identifier: Apache-2.0
// See arrival.h, and the handler of transfer_end.
#include "worker/cuda/arrival.h"

#include <sched.h>
#include <time.h>

#include <cstring>

#include "api/cuda_handlers.gen.h"
#include "worker/cuda/waits.h"

namespace tendril::worker::cuda {
namespace {

constexpr uint64_t kCopiedMax = 256u << 20;  // of one transfer, when the GPU does not get to it
constexpr uint64_t kPatienceNs = 2'000'000;  // several times what a piece takes on its way to a GPU

uint64_t now_ns() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(now.tv_nsec);
}

// Calls `use(piece)`, which releases it, for each piece of the transfer. False: the session is over.
template <typename Use>
bool take_all(session::Service& service, uint64_t transfer, uint64_t bytes, Use use) {
  for (uint64_t left = bytes; left != 0;) {
    session::Piece piece;
    if (!service.take(transfer, &piece)) return false;
    const bool inside =
        piece.offset <= bytes && piece.bytes <= bytes - piece.offset && piece.bytes <= left && piece.bytes != 0;
    if (!inside) {
      service.release(piece);
      service.end("a bulk transfer does not fit the call that announced it");
      return false;
    }
    left -= piece.bytes;
    use(piece);
  }
  return true;
}

// The pieces of one copy to the device. Touches nothing that needs the turn.
class Feed {
 public:
  Feed(Executor& w, CUcontext context, CUstream stream) : w_(w), context_(context), stream_(stream) {}

  CUresult send(uint64_t destination, const session::Piece& piece) {
    Flight flight;
    const bool from_slot = may_keep_slot();
    flight.loan = w_.waiters().staging().lend(context_, from_slot ? 0 : piece.bytes);
    const uint8_t* data = piece.data;
    if (from_slot) {
      flight.piece = piece;
    } else {
      if (!flight.loan.ok()) return release(piece, CUDA_ERROR_OUT_OF_MEMORY);
      std::memcpy(flight.loan.data(), piece.data, piece.bytes);
      copied_ += piece.bytes;
      data = flight.loan.data();
      release(piece, CUDA_SUCCESS);
    }
    const CUresult result = w_.driver().cuMemcpyHtoDAsync_v2(destination + piece.offset, data, piece.bytes, stream_);
    w_.waiters().in_flight(stream_, std::move(flight));
    return result;
  }
  CUresult release(const session::Piece& piece, CUresult result) {
    w_.service().release(piece);
    return result;
  }

 private:
  // Waits a moment for the GPU to be done with earlier pieces. False: it is busy with something else, for as long as it
  // likes, and the slot is needed for others.
  bool may_keep_slot() {
    const uint64_t patience_ns = copied_ >= kCopiedMax ? UINT64_MAX / 2 : copied_ != 0 ? 0 : kPatienceNs;
    const uint64_t until = now_ns() + patience_ns;
    while (!w_.waiters().reserve_slot()) {
      if (now_ns() >= until) return false;
      w_.waiters().reclaim();
      sched_yield();
    }
    return true;
  }

  Executor& w_;
  CUcontext const context_;
  CUstream const stream_;
  uint64_t copied_ = 0;
};

}  // namespace

CUresult receive_to_device(Executor& w, uint64_t destination, uint64_t bytes, uint64_t transfer, CUstream stream) {
  const Executor::Arrival arrival(w, transfer);
  CUresult result = CUDA_SUCCESS;
  Feed feed(w, w.context()->context, stream);
  const bool alive = w.aside_if(w.service().has_bulk_channels(), [&] {
    return take_all(w.service(), transfer, bytes, [&](const session::Piece& piece) {
      result = result == CUDA_SUCCESS ? feed.send(destination, piece) : feed.release(piece, result);
    });
  });
  return alive ? result : CUDA_ERROR_UNKNOWN;
}

bool receive_into(Executor& w, uint8_t* memory, uint64_t bytes, uint64_t transfer) {
  const Executor::Arrival arrival(w, transfer);
  return w.aside_if(w.service().has_bulk_channels(), [&] {
    return take_all(w.service(), transfer, bytes, [&](const session::Piece& piece) {
      std::memcpy(memory + piece.offset, piece.data, piece.bytes);
      w.service().release(piece);
    });
  });
}

CUresult handle(Executor& w, const wire::cuda::transfer_end_request& m) {
  w.await_arrival(m.transfer);
  return CUDA_SUCCESS;
}

}  // namespace tendril::worker::cuda
