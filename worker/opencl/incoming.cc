// SPDX-License-Identifier: Apache-2.0
// See incoming.h.
#include "worker/opencl/incoming.h"

#include <cstring>
#include <new>

namespace tendril::worker::opencl {

Incoming::~Incoming() {
  if (transfer_ != 0) executor_.service().discard(transfer_);
  if (memory_ != nullptr) executor_.host().give_back(bytes_);
}

bool Incoming::room() {
  if (!executor_.host().take(bytes_)) return false;
  memory_.reset(new (std::nothrow) uint8_t[bytes_]);
  if (memory_ == nullptr) executor_.host().give_back(bytes_);
  return memory_ != nullptr;
}

bool Incoming::receive(const Came& came) {
  session::Service& service = executor_.service();
  for (uint64_t left = bytes_; left != 0;) {
    session::Piece piece;
    if (!service.take(transfer_, &piece)) return false;
    const bool inside = piece.bytes != 0 && piece.bytes <= left && piece.offset <= bytes_ &&
                        piece.bytes <= bytes_ - piece.offset;
    if (inside) std::memcpy(memory_.get() + piece.offset, piece.data, piece.bytes);
    service.release(piece);
    if (!inside) {
      service.end("a bulk transfer does not fit the call that announced it");
      return false;
    }
    if (came) came(memory_.get(), piece.offset, piece.bytes);
    left -= piece.bytes;
  }
  transfer_ = 0;
  return true;
}

const uint8_t* Incoming::take(const Came& came) {
  if (bytes_ == 0 || transfer_ != 0) return bytes_ != 0 ? take_to_keep(came) : nullptr;
  if (inside_.count != bytes_) return nullptr;
  if (came) came(inside_.data, 0, bytes_);
  return inside_.data;
}

const uint8_t* Incoming::take_to_keep(const Came& came) {
  if (bytes_ == 0 || (transfer_ == 0 && inside_.count != bytes_) || !room()) return nullptr;
  if (transfer_ != 0) return receive(came) ? memory_.get() : nullptr;
  std::memcpy(memory_.get(), inside_.data, bytes_);
  if (came) came(memory_.get(), 0, bytes_);
  return memory_.get();
}

void Incoming::keep(cl_event event) { executor_.keep(event, std::move(memory_), bytes_); }

}  // namespace tendril::worker::opencl
