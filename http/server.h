// SPDX-License-Identifier: Apache-2.0
// Serves a router's pages over HTTP/1.0, on a thread of its own. Whoever can connect may ask, so
// everything is bounded: connections at once, the bytes of a request, the seconds until it is
// answered. Handlers run on the server's thread.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/fd.h"
#include "base/result.h"
#include "http/router.h"
#include "session/control/seal.h"
#include "transport/tcp/listener.h"

namespace tendril::http {

// TLS for all connections, and who may ask by what it has proven.
struct Protection {
  std::function<std::unique_ptr<session::Seal>()> seal;  // empty: HTTP in clear
  std::function<bool(const std::string& identity)> may_ask;
  bool on_loopback = false;  // also where nobody but this host can listen
};

class Server {
 public:
  // `address`: HOST:PORT; port 0 lets the kernel choose. Beyond loopback who asks must prove
  // something: the router requires it, or the protection.
  static base::Result<std::unique_ptr<Server>> start(const std::string& address, Router router,
                                                     Protection protection = Protection());
  ~Server();
  // "http://127.0.0.1:9433", one for each address that the name has.
  std::vector<std::string> addresses() const;
  uint16_t port() const { return listeners_.front().port; }

 private:
  struct Connection {
    base::Fd fd;
    std::unique_ptr<session::Seal> seal;  // null: in clear
    std::string request;
    std::vector<uint8_t> out;  // what the peer must get
    size_t sent = 0;
    bool answered = false;  // nothing follows what is in `out`
    uint64_t end_ns = 0;
  };
  Server() = default;
  void run();
  void take(const transport::Listener& listener, std::vector<Connection>* connections) const;
  bool serve(Connection* connection) const;
  bool read_request(Connection* connection) const;
  void open_record(const char* data, size_t bytes, Connection* connection) const;
  void answer(Connection* connection) const;
  static bool send_some(Connection* connection);

  Router router_;  // constant while the thread runs, as the next
  Protection protection_;
  std::vector<transport::Listener> listeners_;
  base::Fd stop_;
  std::thread thread_;
};

}  // namespace tendril::http
