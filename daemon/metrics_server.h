// SPDX-License-Identifier: Apache-2.0
// Serves the metrics over HTTP/1.0: `GET /metrics` and nothing else, on a thread of its own.
// Whoever can connect may ask, so everything is bounded: connections at once, the bytes of a
// request, the seconds until it is answered. Made by the daemon when `tendril serve --metrics` says
// so.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/fd.h"
#include "base/result.h"
#include "transport/tcp/listener.h"

namespace tendril::daemon {

class MetricsServer {
 public:
  using Text = std::function<std::string()>;  // called on the server's thread

  // `address`: HOST:PORT; port 0 lets the kernel choose.
  static base::Result<std::unique_ptr<MetricsServer>> start(const std::string& address, Text text);
  ~MetricsServer();
  std::vector<std::string> addresses() const;
  uint16_t port() const { return listeners_.front().port; }

 private:
  struct Connection {
    base::Fd fd;
    std::string request, answer;
    size_t sent = 0;
    uint64_t end_ns = 0;
  };
  explicit MetricsServer(Text text) : text_(std::move(text)) {}
  void run();
  void take(const transport::Listener& listener, std::vector<Connection>* connections) const;
  bool serve(Connection* connection) const;
  bool read_request(Connection* connection) const;
  static bool send_answer(Connection* connection);

  const Text text_;
  std::vector<transport::Listener> listeners_;
  base::Fd stop_;
  std::thread thread_;
};

// The whole answer to a complete request (up to its empty line).
std::string http_answer(std::string_view request, const MetricsServer::Text& text);

}  // namespace tendril::daemon
