// SPDX-License-Identifier: Apache-2.0
// The common part of channels that wrap another one and change what is sent piece by piece: sending
// in a loop, the end, the name. Private to transport/testing.
#pragma once

#include <cstdio>
#include <memory>

#include "transport/parts.h"
#include "transport/transport.h"

namespace tendril::transport {

class Wrapper : public Channel {
 public:
  Wrapper(std::unique_ptr<Channel> inner, const char* name) : inner_(std::move(inner)) {
    snprintf(kind_, sizeof kind_, "%s(%.30s)", name, inner_->kind());
  }

  base::Status send(const iovec* parts, int count) override {
    Parts rest(parts, count);
    while (!rest.empty()) {
      base::Result<size_t> sent = some(&rest, -1);
      if (!sent.ok()) return sent.status();
    }
    return base::Status();
  }
  base::Result<size_t> send_some(const iovec* parts, int count, int timeout_ms) override {
    Parts rest(parts, count);
    if (rest.empty()) return size_t(0);
    return some(&rest, timeout_ms);
  }
  void shutdown() override { inner_->shutdown(); }
  const char* kind() const override { return kind_; }

 protected:
  // Sends a piece from the front of `rest` and consumes it. Returns the number of bytes.
  virtual base::Result<size_t> some(Parts* rest, int timeout_ms) = 0;

  const std::unique_ptr<Channel> inner_;

 private:
  char kind_[48];
};

}  // namespace tendril::transport
