// SPDX-License-Identifier: Apache-2.0
// How an API's library gets its sessions: one for each server, or for each lease that `tendril run`
// took. The API says which sessions it wants made, and asks each new one for what it must know of
// its devices. Slow path; one thread at a time.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "client/core/session.h"
#include "config/configuration.h"

namespace tendril::client::core {

// What client and server must agree on.
struct ApiIdentity {
  const char* name;  // "cuda"
  uint64_t digest;   // of its messages (generated: kSchemaDigest)
};

class Newcomers {
 public:
  virtual ~Newcomers() = default;
  // An empty session of the API, never destroyed.
  virtual Session* create() = 0;
  // Its lane is open: asks the worker for what the API must know. Returns how many devices there
  // are; negative: the session is unusable.
  virtual int greet(Session* session) = 0;
  // It counts from now on. Called in the order of `index`.
  virtual void admit(Session* session) = 0;
};

// Attaches to the servers that the configuration names. An error says what went wrong with the last
// server asked; the sessions admitted until then stay the caller's to close.
base::Status attach_servers(const ApiIdentity& api, const config::Configuration& configuration,
                            Newcomers* newcomers);

}  // namespace tendril::client::core
