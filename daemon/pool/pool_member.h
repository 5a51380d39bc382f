// SPDX-License-Identifier: Apache-2.0
// What this server says of itself to its pool, and how it proves who it is there. Used by the
// daemon when it starts and before each connection to a scheduler.
#pragma once

#include <string>
#include <vector>

#include "access/guard.h"
#include "base/result.h"
#include "gpu/inventory.h"
#include "session/control/attach.h"
#include "wire/pool.h"

namespace tendril::daemon {

// As the command line gives it.
struct PoolMember {
  std::vector<std::string> pools;  // addresses of schedulers; empty: it belongs to no pool
  std::string name, advertise;     // empty: chosen
  std::vector<std::string> labels;
  bool has_peers = true;  // workers of the pool's servers and of this one may have connections
};

// kInvalid: an address or a label is not one.
base::Status check_member(const PoolMember& member);

// The kinds of transport that sessions here may get. `lends_cards`: of RDMA, which this machine
// must have, too.
std::vector<std::string> offered_transports(bool lends_cards);

// What does not change while the server serves; transports may. `host`, `port`: where it listens;
// `others_may_come`: not for this host alone.
wire::ServerFacts facts_of_member(const PoolMember& member, const std::string& host, uint16_t port,
                                  bool others_may_come, const gpu::Inventory& inventory);

// By this mode's way: nothing, the secret, or the server's certificate in that folder.
base::Result<session::ConnectOptions> credentials_of_member(const access::Settings& settings,
                                                            const std::string& identity_folder);

// What this server lacks to prove itself to its pool, and how to get it; empty: nothing that can be
// seen from here. A folder with a user's certificate is easily taken for a server's.
std::string lacking_certificate(const access::Settings& settings,
                                const std::string& identity_folder);

}  // namespace tendril::daemon
