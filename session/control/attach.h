// SPDX-License-Identifier: Apache-2.0
// How a session begins, the client's half: connect, hello, control requests, attach, and the
// channels of the agreed transport. The calls block, with time-outs. They are never on the hot
// path. The server's half is serve.h.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "session/control/connection.h"
#include "transport/registry.h"
#include "transport/tcp/local_addresses.h"
#include "transport/testing/shaped.h"
#include "wire/control.h"
#include "wire/pool.h"

namespace tendril::session {

// "host", "host:port", "[v6]:port", "unix:/path", each but the last also as "name=...". Default
// port wire::kDefaultPort.
struct Endpoint {
  std::string text;  // as the user wrote it, for messages
  std::string name;  // that the server's certificate must have; empty: the host's, unless that is
                     // an address
  std::string host;
  uint16_t port = wire::kDefaultPort;
  bool has_port = false;  // the user wrote it
  std::string unix_path;
};
base::Result<Endpoint> parse_endpoint(const std::string& text);

// Gets a lease in the user's name, which must live as long as the program uses it.
class Lessor {
 public:
  virtual ~Lessor() = default;
  virtual base::Result<wire::LeaseReply> lease(const Endpoint& endpoint,
                                               const wire::LeaseRequest& request) = 0;
  // From the pool that has these addresses: a lease with parts. May wait in its queue for hours.
  virtual base::Result<wire::LeaseReply> pool_lease(const std::vector<Endpoint>& /*pools*/,
                                                    const wire::LeaseRequest& /*request*/) {
    return base::Status(base::Code::kUnsupported, "nobody asks pools here");
  }
};

struct ConnectOptions {
  std::string token;
  int timeout_ms = 5000;  // to connect
  // From one of these addresses of this machine; empty: the kernel chooses.
  std::vector<transport::LocalAddress> from;
  // For an answer. 0: timeout_ms. While the server says why a request waits, it goes on waiting.
  int answer_ms = 0;
  // Makes the seal of a connection. Null: the plain protocol.
  std::shared_ptr<const Securer> securer;
  // Gets a line for people, without its end, when a request waits for longer than two seconds, and
  // again when the reason has changed; and, on a thread of ours, when the network of a session is
  // cut or back. Empty: nobody is told.
  std::function<void(const std::string&)> patience;
  // For attach without a lease and a token: gets a lease where the server wants to know who asks.
  // Null: attach fails there.
  std::shared_ptr<Lessor> lessor;
  // No session whose data travel in clear over a network.
  bool insists_on_sealing = false;
  // How long a cut of the network may last before a session is lost; 0: any cut ends it.
  uint32_t outage_ms = wire::kOutageMs;
  // Gets what came of trying a fabric in the background of a session, for people. On a thread of
  // ours. Empty: nobody is told.
  std::function<void(const std::string&)> tried;
  // Where it is remembered how good the ways to servers are (ways.h). Empty: it is measured each
  // time.
  std::string ways_folder;
  // Empty: the best transport. Otherwise kinds of transport/registry.h with commas: no other
  // transport with channels of its own is used. A single one is not measured against connections.
  // A session can always fall back on its connections.
  std::string transport;
  uint16_t bulk_channels = 4;
  transport::Shape link;  // simulates a longer line for the channels of an attached session
};

// How a request for a lease waits in a queue.
struct LeaseWait {
  int64_t limit_ms = -1;  // gives up after that; negative: never
  // Gets each news of the server, also those that repeat. False: give up. On the waiting thread.
  std::function<bool(const wire::News&)> news;
  int cancel_fd = -1;  // gives up when it becomes readable
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
  // The same, for a server that may let it wait for hours. It fails when the server says nothing
  // for 20 s (kTimeout), at the limit (kTimeout), when it was given up (kUnavailable), and when the
  // connection is lost (kClosed). After a failure that is no answer the connection is shut down, so
  // the server forgets the request. `gave_up`: the limit, the news or the descriptor ended it.
  virtual base::Result<wire::LeaseReply> lease(const wire::LeaseRequest& request,
                                               const LeaseWait& wait, bool* gave_up) = 0;
  // The next notice that the server sent unasked. kTimeout: none came in that time, 0:
  // is there now; kClosed: the server ended the connection. Poll fd() for it, and call it until it
  // says kTimeout.
  virtual base::Result<wire::Notice> notice(int timeout_ms) = 0;
  virtual base::Status release(uint64_t lease_id) = 0;
  virtual base::Status change(const wire::ChangeRequest& request) = 0;
  // A request that this room does not know. The body of the answer.
  virtual base::Result<std::vector<uint8_t>> other(uint16_t kind, const std::vector<uint8_t>& body,
                                                   int timeout_ms) = 0;
  virtual bool sealed() const = 0;  // TLS protects the connection
  // The server's proven identity ("spiffe://POOL/server/NAME"); empty: it has shown none.
  virtual std::string proven_server() const = 0;
  virtual int fd() const = 0;    // becomes readable when the server ends the connection
  virtual bool has_ended() = 0;  // whether it has; does not wait; drops notices
};

class BackgroundTrial;

// Everything a Lane needs, ready to use.
struct Attached : transport::Channels {
  wire::AttachReply reply;
  std::string transport;  // the kind of its channels: "tcp", "unix", "shm"
  std::string reason;     // why this transport, for doctor
  // Tries what may be better than its connections (background_trial.h). Null: there is nothing.
  std::shared_ptr<BackgroundTrial> trial;
};
// Sends no secret to a server on another host, and none to a server that secures attaching: what
// the client knows (the secret of its lease, or the token) is proven in a handshake
// (secure_attach.h). kElsewhere: the endpoint is a pool's, which serves no sessions.
base::Result<Attached> attach(const Endpoint& endpoint, const ConnectOptions& options,
                              const wire::AttachRequest& request);
// Takes up the other end of a passage to a session on that server (wire::kPassageChannels), for
// another server's worker. kUnsupported: the server wants it sealed. `request` has its proof.
base::Result<Connection> take_passage(const Endpoint& endpoint, const ConnectOptions& options,
                                      const wire::JoinRequest& request);
// Who the server there is, and whether it wants data from here sealed. *round_trip_us: of a
// message. Proves nothing to it.
base::Result<wire::MeetReply> meet(const Endpoint& endpoint, const ConnectOptions& options,
                                   double* round_trip_us);
// What the devices of a lease are, in the words of the request's API, without a session. No facts:
// the server cannot say it. The request names the lease.
base::Result<wire::AttachReply> look(const Endpoint& endpoint, const ConnectOptions& options,
                                     const wire::AttachRequest& request);

}  // namespace tendril::session
