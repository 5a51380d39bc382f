// SPDX-License-Identifier: Apache-2.0
// How an API's library gets its sessions: one for each server, or one for each lease that `tendril
// run` took. The API makes each session's object, and asks each new session about its devices. Slow
// path; one thread at a time.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "client/core/session.h"
#include "config/configuration.h"
#include "session/control/attach.h"

namespace tendril::client::core {

// Client and server must agree on both.
struct ApiIdentity {
  const char* name;          // "cuda"
  uint64_t digest;           // of its messages (generated: kSchemaDigest)
  bool collectives = false;  // the program may work with GPUs of other servers
};

class Newcomers {
 public:
  virtual ~Newcomers() = default;
  // Makes an empty session of the API. It is never destroyed.
  virtual Session* create() = 0;
  // Called when the session's lane is open. Asks the worker what the API must know. Returns the
  // number of devices; negative: the session is unusable.
  virtual int greet(Session* session) = 0;
  // The session is in use from now on.
  virtual void admit(Session* session) = 0;

  // The session has no lane yet. `seen`: what its server says of each device, and the lease.
  // Returns the number of devices; negative: nothing can be made of that, and the session begins at
  // once.
  virtual int expect(Session* /*session*/, const wire::AttachReply& /*seen*/) { return -1; }
};

// Attaches to the servers that the configuration names. An error says what went wrong with the last
// server that was asked. The caller must then close the sessions that were admitted before.
base::Status attach_servers(const ApiIdentity& api, const config::Configuration& configuration,
                            Newcomers* newcomers);

// The same, but a program with leases on several servers only asks each what its devices are
// (Newcomers::expect). A session begins when `attach` asks for it. Other programs attach at once: a
// program on one server will use it, and would only ask twice. It lives as long as the sessions.
class Attaching {
 public:
  // `newcomers` lives as long. With `lists_ahead`, sessions may begin later.
  Attaching(const ApiIdentity& api, const config::Configuration& configuration,
            Newcomers* newcomers, bool lists_ahead);
  base::Status begin();
  // Begins a session that is only listed. One thread at a time for all sessions. After a failure it
  // may be tried again.
  base::Status attach(Session* session);

 private:
  base::Status all();
  base::Status leased(const std::vector<config::Server>& servers);
  base::Status from_pool();
  bool expect(const config::Server& server);
  base::Status one(const config::Server& server, uint32_t count);
  base::Result<session::Attached> connect(const config::Server& server, uint32_t count);
  base::Status open(Session* session, session::Attached* attached);
  wire::LeaseRequest lease_request(uint32_t count) const;
  session::ConnectOptions connect_options() const;
  // Of leases on several servers; else 0.
  static uint64_t gang_of(const std::vector<config::Server>& servers);
  wire::AttachRequest attach_request(const config::Server& server, uint32_t count) const;

  const ApiIdentity api_;
  const config::Configuration configuration_;
  Newcomers* const newcomers_;
  const bool lists_ahead_;
  uint32_t sessions_ = 0;
  uint64_t gang_ = 0;
  std::vector<config::Server> listed_;  // by the session's index
};

}  // namespace tendril::client::core
