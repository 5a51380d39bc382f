// SPDX-License-Identifier: Apache-2.0
// Listens on TCP addresses and unix sockets. Tells which addresses are loopback, and who a peer is.
// For servers and tests; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/result.h"

namespace tendril::transport {

struct Listener {
  base::Fd fd;
  std::string text;         // "127.0.0.1:7433", "@tendril-7433", "/run/tendril.sock"
  uint16_t port = 0;        // TCP only
  bool loopback = false;    // loopback address or unix socket
  std::string unlink_path;  // remove it at the end
};

// "ADDR", "ADDR:PORT", "[V6]:PORT", a name, or "*"; port 0 lets the kernel choose.
base::Result<std::vector<Listener>> listen_tcp(const std::string& text, uint16_t default_port);
// A leading '@': the abstract name space. Replaces the stale socket file of a dead daemon, but not
// a live one. `mode`: who may connect to a socket file.
base::Result<Listener> listen_unix(const std::string& path, uint32_t mode = 0660);

// The next connection, close-on-exec. *local: the peer's address is on this host. kTimeout, or
// kExhausted if this process has no descriptor or memory for it.
base::Result<base::Fd> accept_on(const Listener& listener, int timeout_ms, bool* local);

// True if data was sent again and again for ten seconds and nothing came back, not even an
// acknowledgement. The limit on unacknowledged data, which Connection::allow_stalls removes,
// detected this.
bool is_half_open(int fd);

// Who is at the other end of a socket.
struct PeerFacts {
  std::string text;  // "192.0.2.7:4711" or "unix pid 17 uid 1000", for the log
  // What counts as one address where peers are bounded: without the port, of IPv6 the network of
  // one host (64 bits), of a unix socket the user.
  std::string address;
  bool loopback = false;  // on this host, by its address
  bool unix_socket = false;
  uint32_t user = 0;        // of a unix peer
  std::string socket_path;  // of a unix peer: the name of the socket here ('@' first: abstract)
};
PeerFacts describe_peer(int fd);

}  // namespace tendril::transport
