// SPDX-License-Identifier: Apache-2.0
// What a server serves: a site gets whole requests, each with the exchange that it answers through,
// at once or later from any thread, with one answer or a stream. http/router.h is a site of
// handlers that answer at once; dashboard/ has another.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "http/router.h"

namespace tendril::http {

// Who is at the other end.
struct Visitor {
  std::string identity;  // that TLS has proven: "spiffe://POOL/ROLE/NAME"; empty: none
  std::string address;   // "10.0.0.7"
  bool sealed = false;   // inside TLS
  bool loopback = false;
};

// One request and what comes of it. Any thread. What is sent after the connection's end is dropped.
class Exchange {
 public:
  virtual ~Exchange() = default;
  virtual const Visitor& visitor() const = 0;
  // Once, unless a stream is begun.
  virtual void answer(Response response) = 0;
  // The answer has no end: pieces follow until end(), or until the peer goes.
  virtual void begin_stream(Response head) = 0;
  virtual void send(std::string piece) = 0;
  virtual void end() = 0;
  virtual bool is_open() const = 0;
  // Bytes of the stream that the peer has not taken yet.
  virtual size_t unsent_bytes() const = 0;
};

class Site {
 public:
  virtual ~Site() = default;
  using Post = std::function<void(std::function<void()>)>;
  // Before anything else: `post` runs a function on the server's thread. It may be called by any
  // thread, also after the server's end; then nothing happens.
  virtual void begin(Post /*post*/) {}
  // The longest body that is read for this request, whose headers have come.
  virtual size_t body_bytes_max(const Request& /*request*/) { return 0; }
  // On the server's thread, and must not block.
  virtual void serve(Request request, std::shared_ptr<Exchange> exchange) = 0;
  // About twice a second, on the server's thread.
  virtual void tick(uint64_t /*now_ns*/) {}
};

}  // namespace tendril::http
