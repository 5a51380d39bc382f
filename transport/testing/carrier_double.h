// SPDX-License-Identifier: Apache-2.0
// For tests: a carrier over a socket whose other end the test has. It keeps all that it sends.
#pragma once

#include <sys/socket.h>

#include <atomic>
#include <memory>
#include <vector>

#include "transport/lasting/lasting.h"
#include "transport/parts.h"
#include "transport/tcp/socket.h"

namespace tendril::transport {

class CarrierDouble final : public Carrier {
 public:
  // *peer: the other end.
  static std::unique_ptr<Carrier> make(base::Fd* peer) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return nullptr;
    *peer = base::Fd(ends[1]);
    return std::unique_ptr<Carrier>(new CarrierDouble(base::Fd(ends[0])));
  }

  base::Status send(const iovec* parts, int count) override {
    return send_all(parts, count, [this](Parts* rest) { return some(rest, -1); });
  }
  base::Result<size_t> send_some(const iovec* parts, int count, int timeout_ms) override {
    Parts rest(parts, count);
    return some(&rest, timeout_ms);
  }
  base::Result<size_t> receive(void* into, size_t min, size_t max, Wait wait) override {
    base::Result<size_t> got = socket_->receive(into, min, max, wait);
    if (got.ok()) received_ += *got;
    return got;
  }
  void shutdown() override { socket_->shutdown(); }
  const char* kind() const override { return "double"; }

  uint64_t sent() const override { return kept_.size(); }
  uint64_t received() const override { return received_; }
  bool peer_closed() const override { return false; }
  base::Status look() override { return base::Status(); }
  void interrupt() override { socket_->shutdown(); }
  base::Result<Remains> leave(uint8_t* ring, size_t ring_bytes, uint64_t from,
                              uint64_t shift) override {
    for (uint64_t at = from; at < kept_.size(); ++at) ring[(at + shift) % ring_bytes] = kept_[at];
    Remains remains;
    remains.acknowledged = from;
    return remains;
  }

 private:
  explicit CarrierDouble(base::Fd socket) : socket_(socket_channel(std::move(socket))) {}
  base::Result<size_t> some(Parts* rest, int timeout_ms) {
    base::Result<size_t> moved = socket_->send_some(rest->array(), rest->count(), timeout_ms);
    if (!moved.ok()) return moved;
    const size_t before = kept_.size();
    kept_.resize(before + *moved);
    rest->copy_out(kept_.data() + before, *moved);
    return moved;
  }

  const std::unique_ptr<Channel> socket_;
  std::vector<uint8_t> kept_;
  std::atomic<uint64_t> received_{0};
};

}  // namespace tendril::transport
