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

namespace tendril::client::core {

// Client and server must agree on both.
struct ApiIdentity {
  const char* name;  // "cuda"
  uint64_t digest;   // of its messages (generated: kSchemaDigest)
};

class Newcomers {
 public:
  virtual ~Newcomers() = default;
  // Makes an empty session of the API. It is never destroyed.
  virtual Session* create() = 0;
  // Called when the session's lane is open. Asks the worker what the API must know. Returns the
  // number of devices; negative: the session is unusable.
  virtual int greet(Session* session) = 0;
  // The session is in use from now on. Called in the order of `index`.
  virtual void admit(Session* session) = 0;
};

// Attaches to the servers that the configuration names. An error says what went wrong with the last
// server that was asked. The caller must then close the sessions that were admitted before.
base::Status attach_servers(const ApiIdentity& api, const config::Configuration& configuration,
                            Newcomers* newcomers);

}  // namespace tendril::client::core
