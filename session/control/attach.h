// SPDX-License-Identifier: Apache-2.0
// How a session begins. Client's half: connect, hello, control requests, attach, and the channels
// of the agreed transport. Server's half: what tendrild needs to answer on an accepted connection.
// The calls block, with time-outs. They are never on the hot path.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "session/control/connection.h"
#include "transport/registry.h"
#include "transport/testing/shaped.h"
#include "wire/control.h"

namespace tendril::session {

// "host", "host:port", "[v6]:port", "unix:/path". Default port wire::kDefaultPort.
struct Endpoint {
  std::string text;  // as the user wrote it, for messages
  std::string host;
  uint16_t port = wire::kDefaultPort;
  std::string unix_path;
};
base::Result<Endpoint> parse_endpoint(const std::string& text);

struct ConnectOptions {
  std::string token;
  int timeout_ms = 5000;
  // Empty: the nearest transport. Otherwise a kind of transport/registry.h: no other transport with
  // channels of its own is used. A session can always fall back on its connections.
  std::string transport;
  uint16_t bulk_channels = 4;
  transport::Shape link;  // simulates a longer line for the channels of an attached session
};

// A control connection after a successful hello. It owns its descriptor and can only be moved.
class Control {
 public:
  // Errors distinguish: name not resolved, no route / refused, not a Tendril server, versions that
  // do not match, token missing or wrong.
  static base::Result<std::unique_ptr<Control>> connect(const Endpoint& endpoint,
                                                        const ConnectOptions& options);
  virtual ~Control() = default;
  virtual const wire::Hello& server_hello() const = 0;
  virtual base::Result<double> ping_us() = 0;
  virtual base::Result<wire::ListReply> list() = 0;
  virtual base::Result<wire::LeaseReply> lease(const wire::LeaseRequest& request) = 0;
  virtual base::Status release(uint64_t lease_id) = 0;
  virtual base::Status change(const wire::ChangeRequest& request) = 0;
  virtual int fd() const = 0;  // becomes readable when the server ends the connection
};

// Everything a Lane needs, ready to use.
struct Attached : transport::Channels {
  wire::AttachReply reply;
  std::string transport;  // the kind of its channels: "tcp", "unix", "shm"
  std::string reason;     // why this transport, for doctor
};
base::Result<Attached> attach(const Endpoint& endpoint, const ConnectOptions& options,
                              const wire::AttachRequest& request);

// ---- server half ----

// What answers the requests in the daemon. Called on the connection's thread; may block.
class ControlHandler {
 public:
  virtual ~ControlHandler() = default;
  virtual wire::Hello hello() = 0;
  // The APIs that sessions may use. A request for another API, or with another description of its
  // calls, is refused before `attach` is called.
  virtual std::vector<wire::ApiRecord> apis() = 0;
  // Compared in constant time; `required` false: any client may come (loopback).
  virtual bool token_matches(const std::string& token, bool* required) = 0;
  virtual base::Result<wire::ListReply> list() = 0;
  virtual base::Result<wire::LeaseReply> lease(const wire::LeaseRequest& request) = 0;
  virtual base::Status release(uint64_t lease_id) = 0;
  virtual base::Status change(const wire::ChangeRequest& request) = 0;
  virtual void lease_connection_closed(uint64_t lease_id) = 0;
  // Makes a session and lets its worker answer the offers. The caller keeps the connection.
  virtual base::Result<wire::AttachReply> attach(const wire::AttachRequest& request,
                                                 const Connection& connection) = 0;
  // Called after the AttachReply was sent: the connection now belongs to the session.
  virtual void attached(uint64_t session_id, Connection connection) = 0;
  virtual base::Status join(const wire::JoinRequest& request) = 0;
  virtual void joined(const wire::JoinRequest& request, Connection connection) = 0;
  // Returns the descriptor that belongs to the worker's answer. Requested over unix sockets only.
  virtual base::Result<base::Fd> fetch(const wire::JoinRequest& /*request*/) { return no_such(); }
  // The client uses the worker's first answer. The session begins without joined connections.
  virtual base::Status use(const wire::JoinRequest& /*request*/) { return no_such(); }

 private:
  // Inline, like the rest: this room is compiled without RTTI, the handler's with it.
  static base::Status no_such() {
    return base::Status(base::Code::kUnsupported,
                        "this server offers no transport but the session's connections");
  }
};

// Whether a client of that version may attach for the API that it names. The error says what the
// server serves, names both versions and says what to do.
base::Status check_api(const wire::AttachRequest& request, const std::string& client_version,
                       const std::vector<wire::ApiRecord>& served,
                       const std::string& server_version);

// Serves one accepted connection until it ends or is handed over. Drops a peer that does not finish
// a message within 5 s.
void serve_connection(Connection connection, ControlHandler* handler);

}  // namespace tendril::session
