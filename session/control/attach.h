// SPDX-License-Identifier: Apache-2.0
// How a session comes to be. Client's half: connect, hello, control requests, attach, and the
// channels of the transport that was agreed on. Server's half: what tendrild needs to speak the
// same on an accepted connection. Blocking, with time-outs; never called on the hot path.
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
  // Empty: the nearest transport. A kind of transport/registry.h: no other that brings channels of
  // its own; a session can always fall back on its connections.
  std::string transport;
  uint16_t bulk_channels = 4;
  transport::Shape
      link;  // as if the line were longer: what an attached session's channels behave like
};

// A control connection after a successful hello. Move-only owner of its descriptor.
class Control {
 public:
  // Errors tell apart: name not resolved, no route / refused, not a Tendril server, versions that
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
  std::string reason;     // why this one, for doctor
};
base::Result<Attached> attach(const Endpoint& endpoint, const ConnectOptions& options,
                              const wire::AttachRequest& request);

// ---- server half ----

// What the daemon answers requests with. Called on the connection's thread; may block.
class ControlHandler {
 public:
  virtual ~ControlHandler() = default;
  virtual wire::Hello hello() = 0;
  // The APIs that sessions may be for. A request for another one, or one that describes its calls
  // differently, is refused before `attach` is called.
  virtual std::vector<wire::ApiRecord> apis() = 0;
  // Compared in constant time; `required` false: any client may come (loopback).
  virtual bool token_matches(const std::string& token, bool* required) = 0;
  virtual base::Result<wire::ListReply> list() = 0;
  virtual base::Result<wire::LeaseReply> lease(const wire::LeaseRequest& request) = 0;
  virtual base::Status release(uint64_t lease_id) = 0;
  virtual base::Status change(const wire::ChangeRequest& request) = 0;
  virtual void lease_connection_closed(uint64_t lease_id) = 0;
  // Makes a session and has its worker answer the offers. The connection is the caller's still.
  virtual base::Result<wire::AttachReply> attach(const wire::AttachRequest& request,
                                                 const Connection& connection) = 0;
  // After the AttachReply went out: the connection now belongs to the session.
  virtual void attached(uint64_t session_id, Connection connection) = 0;
  virtual base::Status join(const wire::JoinRequest& request) = 0;
  virtual void joined(const wire::JoinRequest& request, Connection connection) = 0;
  // The descriptor that belongs to the worker's answer. Asked for over unix sockets only.
  virtual base::Result<base::Fd> fetch(const wire::JoinRequest& /*request*/) { return no_such(); }
  // The client uses the worker's first answer: the session begins, without joined connections.
  virtual base::Status use(const wire::JoinRequest& /*request*/) { return no_such(); }

 private:
  // Inline, like the rest: this room has no RTTI, the handler's has.
  static base::Status no_such() {
    return base::Status(base::Code::kUnsupported,
                        "this server offers no transport but the session's connections");
  }
};

// Whether a client of that version may attach for the API that it names. The error says what the
// server serves, both versions and what to do.
base::Status check_api(const wire::AttachRequest& request, const std::string& client_version,
                       const std::vector<wire::ApiRecord>& served,
                       const std::string& server_version);

// Serves one accepted connection until it ends or is handed over. A peer that does not finish a
// message within 5 s is dropped.
void serve_connection(Connection connection, ControlHandler* handler);

}  // namespace tendril::session
