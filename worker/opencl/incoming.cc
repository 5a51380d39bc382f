// SPDX-License-Identifier: Apache-2.0
// See incoming.h.
#include "worker/opencl/incoming.h"

#include <cstring>

namespace tendril::worker::opencl {

Incoming::~Incoming() {
  if (transfer_ != 0) executor_.service().discard(transfer_);
}

bool Incoming::room() {
  memory_ = executor_.rooms().take(bytes_);
  return memory_ != nullptr;
}

bool Incoming::each_piece(const Takes& takes) {
  session::Service& service = executor_.service();
  for (uint64_t left = bytes_; left != 0;) {
    session::Piece piece;
    if (!service.take(transfer_, &piece)) return false;
    const bool inside = piece.bytes != 0 && piece.bytes <= left && piece.offset <= bytes_ &&
                        piece.bytes <= bytes_ - piece.offset;
    if (!inside || !takes(piece)) service.release(piece);
    if (!inside) {
      service.end("a bulk transfer does not fit the call that announced it");
      return false;
    }
    left -= piece.bytes;
  }
  transfer_ = 0;
  return true;
}

bool Incoming::receive() {
  return each_piece([this](const session::Piece& piece) {
    std::memcpy(memory_.get() + piece.offset, piece.data, piece.bytes);
    return false;
  });
}

bool Incoming::receive_into(uint8_t* place) {
  const uint64_t transfer = transfer_;
  transfer_ = 0;
  return executor_.service().take_into(transfer, place, bytes_);
}

const uint8_t* Incoming::take() {
  if (bytes_ == 0 || transfer_ != 0) return bytes_ != 0 ? take_to_keep() : nullptr;
  return inside_.count == bytes_ ? inside_.data : nullptr;
}

const uint8_t* Incoming::take_to_keep() {
  if (bytes_ == 0 || (transfer_ == 0 && inside_.count != bytes_) || !room()) return nullptr;
  if (transfer_ != 0) return receive() ? memory_.get() : nullptr;
  std::memcpy(memory_.get(), inside_.data, bytes_);
  return memory_.get();
}

void Incoming::keep(cl_event event) { executor_.keep(event, std::move(memory_)); }

}  // namespace tendril::worker::opencl
