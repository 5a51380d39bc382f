// SPDX-License-Identifier: Apache-2.0
// Listening on addresses, for servers and tests. Loopback unless an address says otherwise.
#pragma once

#include <cstdint>
#include <string>

#include "base/fd.h"
#include "base/result.h"

namespace tendril::session {

struct Listening {
  base::Fd fd;
  std::string text;  // "127.0.0.1:7433" or "unix:/path": what a client may connect to
  uint16_t port = 0;
  bool loopback = false;  // reachable from this host only
};

// "host:port", "[v6]:port", "unix:/path" or "unix:@name"; empty: loopback on the default port. Port
// 0 lets the system choose.
base::Result<Listening> listen_on(const std::string& address, int backlog = 128);
// The next connection, close-on-exec; *local: the peer is on this host by its address. kTimeout, or
// the error of accept.
base::Result<base::Fd> accept_on(const Listening& listening, int timeout_ms, bool* local);

}  // namespace tendril::session
