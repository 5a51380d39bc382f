// SPDX-License-Identifier: Apache-2.0
// Serves a site, or a router's pages, over HTTP on a thread of its own. Whoever can connect may
// ask, so everything is bounded: connections at once, the bytes of a request, the seconds until it
// is read, answered and taken. Handlers run on the server's thread.
#pragma once

#include <atomic>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/fd.h"
#include "base/result.h"
#include "http/packer.h"
#include "http/router.h"
#include "http/site.h"
#include "session/control/seal.h"
#include "transport/tcp/listener.h"

namespace tendril::http {

// TLS for all connections, and who may ask by what it has proven.
struct Protection {
  std::function<std::unique_ptr<session::Seal>()> seal;  // empty: HTTP in clear
  std::function<bool(const std::string& identity)> may_ask;
  bool on_loopback = false;  // also where nobody but this host can listen
};

struct Bounds {
  size_t connections_max = 16;  // at once; the oldest that is no stream makes room
  size_t streams_max = 0;       // of them
  bool keeps = false;           // a connection may go on after an answer
};

class Server {
 public:
  // `address`: HOST:PORT; port 0 lets the kernel choose. Beyond loopback who asks must prove
  // something: the router requires it, or the protection.
  static base::Result<std::unique_ptr<Server>> start(const std::string& address, Router router,
                                                     Protection protection = Protection());
  // The site decides who may ask what. `site` must outlive the server.
  static base::Result<std::unique_ptr<Server>> start(const std::string& address, Site* site,
                                                     Protection protection, Bounds bounds);
  ~Server();
  // "http://127.0.0.1:9433", one for each address that the name has.
  std::vector<std::string> addresses() const;
  uint16_t port() const { return listeners_.front().port; }

 private:
  // What other threads want of the server's. Exchanges have it, and it may outlive the server.
  struct Mailbox;
  class ExchangeImpl;
  struct Connection {
    enum class State : uint8_t { kReading, kAsking, kSending, kStreaming, kLeaving };
    base::Fd fd;
    std::unique_ptr<session::Seal> seal;  // null: in clear
    Visitor visitor;
    State state = State::kReading;
    Request request;           // whose headers were read
    bool has_headers = false;  // and its body has not come yet
    size_t body_bytes = 0;
    std::string in;
    std::vector<uint8_t> out;        // what the peer must get
    std::unique_ptr<Packer> packer;  // null: its stream is plain
    size_t sent = 0;
    bool keeps = false;  // after the answer
    bool over = false;   // nothing follows what is in `out`
    uint64_t end_ns = 0;
    std::shared_ptr<ExchangeImpl> exchange;
  };
  using Connections = std::list<Connection>;

  Server() = default;
  static base::Result<std::unique_ptr<Server>> open(const std::string& address,
                                                    Protection protection, Bounds bounds);
  void begin();
  void run();
  void take(const transport::Listener& listener);
  void make_room();
  void deliver();
  bool serve(Connection* connection);
  bool read_some(Connection* connection);
  void read_requests(Connection* connection);
  bool read_headers(Connection* connection);
  void open_record(const char* data, size_t bytes, Connection* connection) const;
  void refuse(const Response& problem, Connection* connection);
  void put(const std::string& text, Connection* connection) const;
  void finish(Connection* connection) const;
  bool send_some(Connection* connection);
  static bool leave(Connection* connection);
  size_t streams() const;

  Site* site_ = nullptr;  // constant while the thread runs, as those below
  std::unique_ptr<Site> own_site_;
  Protection protection_;
  Bounds bounds_;
  std::vector<transport::Listener> listeners_;
  std::shared_ptr<Mailbox> mailbox_;
  Connections connections_;  // the thread's; the oldest is first
  std::thread thread_;
};

}  // namespace tendril::http
