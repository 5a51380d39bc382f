// SPDX-License-Identifier: Apache-2.0
// Serves a router's pages over HTTP/1.0, on a thread of its own. Whoever can connect may ask, so
// everything is bounded: connections at once, the bytes of a request, the seconds until it is
// answered. Handlers run on the server's thread.
#pragma once

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/fd.h"
#include "base/result.h"
#include "http/router.h"
#include "transport/tcp/listener.h"

namespace tendril::http {

class Server {
 public:
  // `address`: HOST:PORT; port 0 lets the kernel choose. Beyond loopback the router must require a
  // token.
  static base::Result<std::unique_ptr<Server>> start(const std::string& address, Router router);
  ~Server();
  // "http://127.0.0.1:9433", one for each address that the name has.
  std::vector<std::string> addresses() const;
  uint16_t port() const { return listeners_.front().port; }

 private:
  struct Connection {
    base::Fd fd;
    std::string request, answer;
    size_t sent = 0;
    uint64_t end_ns = 0;
  };
  explicit Server(Router router) : router_(std::move(router)) {}
  void run();
  void take(const transport::Listener& listener, std::vector<Connection>* connections) const;
  bool serve(Connection* connection) const;
  bool read_request(Connection* connection) const;
  static bool send_answer(Connection* connection);

  const Router router_;
  std::vector<transport::Listener> listeners_;
  base::Fd stop_;
  std::thread thread_;
};

}  // namespace tendril::http
