// SPDX-License-Identifier: Apache-2.0
// Whether the data of a session travel sealed: the server's rule, the peer, and what the client
// wishes. Pure functions. Any thread.
#pragma once

#include <string>
#include <vector>

#include "access/network.h"
#include "access/policy.h"
#include "base/result.h"
#include "session/control/connection.h"

namespace tendril::daemon {

struct Sealing {
  access::Encrypt encrypt = access::Encrypt::kUntrusted;
  bool given = false;  // the command line says so
  std::vector<access::Network> trusted_networks;
};

// As the command line writes them. An empty `encrypt`: only where the network is not trusted.
base::Result<Sealing> read_sealing(const std::string& encrypt,
                                   const std::vector<std::string>& trusted_networks);

// The command line comes first; the networks of both are trusted.
Sealing with_policy(const Sealing& sealing, const access::Policy& policy);

// `has_key`: the client attached in a handshake, so there is a key. Unix sockets are never sealed,
// nor is a connection inside this host unless the rule is "always". kRefused: the rule wants it and
// it cannot be, or the client insists on it and the rule forbids it.
base::Result<bool> must_seal(const Sealing& sealing, const session::Peer& peer, bool has_key,
                             bool client_insists);

// Which RDMA cards workers get, as TENDRIL_RDMA_DEVICE names them; empty: none. A card sends in
// clear, and reaches its whole fabric whatever a worker is kept from. So by itself ("auto") a
// server lends cards only if it trusts a network. `option`: --rdma. `variable`: what the
// environment says.
std::string lent_cards(const std::string& option, const std::string& variable,
                       const Sealing& sealing);

}  // namespace tendril::daemon
