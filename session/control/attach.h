// SPDX-License-Identifier: Apache-2.0
// How a session comes to be. Client half: connect, hello, control requests, attach, join bulk
// channels, switch to shared memory when both ends are on one host. Server half: what tendrild
// needs to speak the same on an accepted connection, and how connections are handed to a worker
// process. Blocking, with time-outs; never called on the hot path.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "transport/host_window.h"
#include "transport/testing/shaped.h"
#include "transport/transport.h"
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
  bool allow_shared_memory = true;
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
struct Attached {
  wire::AttachReply reply;
  std::unique_ptr<transport::Channel> command;
  std::vector<std::unique_ptr<transport::Channel>> bulk;
  transport::HostWindow window;  // valid over shared memory
  std::string transport;         // "tcp" or "shm"
  std::string reason;            // why this one, for doctor
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
  // Takes the connection over (fd moves to the handler on success, which must send the reply bytes'
  // owner on to a worker).
  virtual base::Result<wire::AttachReply> attach(const wire::AttachRequest& request) = 0;
  // After the AttachReply went out: the descriptor now belongs to the session.
  virtual void attached(uint64_t session_id, int command_fd) = 0;
  virtual base::Status join(const wire::JoinRequest& request) = 0;
  virtual void joined(const wire::JoinRequest& request, int fd) = 0;
  // Shared memory: the descriptor of the session's memory (session/control/adopt.h:
  // create_shared_memory), which stays the handler's. Only asked for over unix sockets.
  virtual base::Result<int> share(const wire::JoinRequest& /*request*/) { return no_sharing(); }
  // The client uses it: give it to the worker in place of bulk channels and start the session.
  virtual base::Status shared(const wire::JoinRequest& /*request*/) { return no_sharing(); }

 private:
  // Inline, like the rest: this room has no RTTI, the handler's has.
  static base::Status no_sharing() {
    return base::Status(base::Code::kUnsupported, "this server does not offer shared memory");
  }
};

// Whether a client of that version may attach for the API that it names. The error says what the
// server serves, both versions and what to do.
base::Status check_api(const wire::AttachRequest& request, const std::string& client_version,
                       const std::vector<wire::ApiRecord>& served,
                       const std::string& server_version);

// Serves one accepted connection until it ends or is handed over; takes the descriptor. `local`:
// the peer is on a loopback address or unix socket. A peer that does not finish a message within 5
// s is dropped.
void serve_connection(int fd, bool local, ControlHandler* handler);

// A connection's own time-outs and keep-alives: a peer that vanished without a word is noticed
// within seconds. TCP only.
void keep_alive(int fd);
// A session's connections may stall for minutes for good reasons (a stopped client, a long kernel):
// takes back the limit on unacknowledged data that control connections have, for that limit also
// ends connections whose peer merely does not read. Keep-alive stays. TCP only; harmless otherwise.
void allow_stalls(int fd);

// Passing descriptors and one small message between daemon and worker over a unix socket pair.
base::Status send_descriptors(int socket, const void* message, size_t bytes, const int* fds,
                              size_t count);
// *bytes 0: the other end was closed. The descriptors are close-on-exec and the caller's.
base::Result<std::vector<int>> receive_descriptors(int socket, void* message, size_t capacity,
                                                   size_t* bytes);

}  // namespace tendril::session
