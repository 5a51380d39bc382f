// SPDX-License-Identifier: Apache-2.0
// The addresses of this machine's network interfaces, for connections that shall leave by certain
// ones. Any thread.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <string>
#include <vector>

namespace tendril::transport {

struct LocalAddress {
  std::string interface;
  sockaddr_storage address = {};  // port 0
  socklen_t bytes = 0;
  unsigned network_bits = 0;  // so many of its bits are those of all hosts of its network
  std::string text;           // "10.1.0.5", "fd00::5"
};

// Of these interfaces, in their order, IPv4 first. Those of a link alone (fe80::, 169.254) are left
// out, because others cannot name them. Asks the kernel.
std::vector<LocalAddress> local_addresses(const std::vector<std::string>& interfaces);

// The one from which a connection to `to` shall come: of its kind (IPv4 or IPv6), and if there is
// one, in its network. Null: none is of its kind.
const LocalAddress* address_towards(const std::vector<LocalAddress>& all, const sockaddr* to);

}  // namespace tendril::transport
