// SPDX-License-Identifier: Apache-2.0
// See faulty.h.
#include "transport/testing/faulty.h"

#include <algorithm>

#include "transport/testing/wrapper.h"

namespace tendril::transport {
namespace {

using base::Code;
using base::Result;
using base::Status;

class FaultyChannel final : public Wrapper {
 public:
  FaultyChannel(std::unique_ptr<Channel> inner, const Faults& faults)
      : Wrapper(std::move(inner), "faulty"),
        faults_(faults),
        send_random_(faults.seed * 2 + 1),
        receive_random_(faults.seed * 2 + 2) {}

  Result<size_t> receive(void* into, size_t min, size_t max, Wait wait) override {
    if (received_ >= faults_.end_after_received) return broken();
    uint64_t left = faults_.end_after_received - received_;
    bool ends = max > left;
    if (ends) max = size_t(left);
    if (faults_.short_pieces)
      max = std::min(max, std::max(min, size_t(1 + next(&receive_random_) % 64)));
    Result<size_t> got = inner_->receive(into, std::min(min, max), max, wait);
    if (!got.ok()) return got;
    flip(static_cast<uint8_t*>(into), received_, *got, faults_.corrupt_received_at);
    received_ += *got;
    return *got < min ? Result<size_t>(broken()) : got;
  }

 private:
  Status broken() {
    inner_->shutdown();
    return Status(Code::kClosed, "the connection broke (on purpose)");
  }
  static uint64_t next(uint64_t* state) {
    *state ^= *state << 13, *state ^= *state >> 7, *state ^= *state << 17;
    return *state;
  }
  static void flip(uint8_t* data, uint64_t first, size_t count, uint64_t at) {
    if (at >= first && at - first < count) data[at - first] ^= 0x10;
  }

  // Sends one piece through a private buffer, so that it may be changed.
  Result<size_t> some(Parts* rest, int timeout_ms) override {
    if (sent_ >= faults_.end_after_sent) return broken();
    uint64_t most = faults_.short_pieces ? 1 + next(&send_random_) % 64 : sizeof buffer_;
    most = std::min({most, uint64_t(sizeof buffer_), faults_.end_after_sent - sent_});
    Parts copy = *rest;
    size_t bytes = copy.copy_out(buffer_, size_t(most));
    flip(buffer_, sent_, bytes, faults_.corrupt_sent_at);
    iovec part{buffer_, bytes};
    Result<size_t> sent = inner_->send_some(&part, 1, timeout_ms);
    if (!sent.ok()) return sent;
    rest->advance(*sent);
    sent_ += *sent;
    return sent;
  }

  const Faults faults_;
  uint64_t send_random_, receive_random_;
  uint64_t sent_ = 0, received_ = 0;
  uint8_t buffer_[64u << 10];
};

}  // namespace

std::unique_ptr<Channel> faulty(std::unique_ptr<Channel> inner, const Faults& faults) {
  return std::unique_ptr<Channel>(new FaultyChannel(std::move(inner), faults));
}

}  // namespace tendril::transport
