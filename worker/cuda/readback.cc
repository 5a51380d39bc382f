// SPDX-License-Identifier: Apache-2.0
// See readback.h.
#include "worker/cuda/readback.h"

#include "api/cuda_messages.gen.h"

namespace tendril::worker::cuda {

void Readback::answer(uint32_t reply_id, CUresult result) {
  if (result != CUDA_SUCCESS) {
    service_->reply(reply_id, result, nullptr, 0);
  } else if (transfer_ != 0) {
    // Not announced: the client waits for these bytes, and frames behind the reply need not.
    service_->send_bulk(transfer_, 0, loan_.data(), bytes_);
    wire::cuda::copy_from_device_reply empty;
    uint8_t body[16];
    wire::write_message(empty, body);
    service_->reply(reply_id, result, body, static_cast<uint32_t>(wire::message_bytes(empty)));
  } else {
    // The reply is {count, bytes}: written in two parts so that the data is not copied again.
    const uint64_t count = bytes_;
    service_->reply2(reply_id, result, &count, sizeof count, loan_.data(),
                     static_cast<uint32_t>(wire::padded(bytes_)));
  }
  loan_.end();
}

void Readback::announce(CUresult result) {
  if (result != CUDA_SUCCESS) {
    if (transfer_ != 0) service_->transfer_failed(transfer_, result);
  } else if (transfer_ != 0) {
    service_->send_bulk(transfer_, 0, loan_.data(), bytes_);
    service_->transfer_sent(transfer_);
  } else {
    service_->deliver(host_, loan_.data(), static_cast<uint32_t>(bytes_));
  }
  loan_.end();
}

}  // namespace tendril::worker::cuda
