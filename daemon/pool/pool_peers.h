// SPDX-License-Identifier: Apache-2.0
// The other servers of this server's pool, as its scheduler names them. Workers of this server may
// have connections with workers of those, as with servers that the operator names (`--peers`). What
// was named last holds while no scheduler speaks. Any thread.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "daemon/containment/network_bounds.h"
#include "session/control/attach.h"
#include "wire/pool.h"

namespace tendril::daemon {

class PoolPeers {
 public:
  // `begin`: these replace all that were named before. What is no address of a network is left out.
  void named(bool begin, const std::vector<wire::PoolPeer>& peers);

  // The server whose passages have this id. Without one, those that may be it, because they are
  // older and told none.
  std::vector<session::Endpoint> with_passage_id(const std::string& passage_id) const;
  size_t count() const;

  // Asks the resolver, and remembers for a minute what it said. An address of this machine alone
  // is nobody else's, so it is left out unless `loopback`: this server serves only this machine.
  std::vector<ReachableAddress> addresses(bool loopback, uint64_t now_ns);

 private:
  struct Known {
    session::Endpoint endpoint;
    std::string passage_id;
  };
  struct Resolved {
    uint64_t until_ns = 0;
    std::vector<ReachableAddress> addresses;
  };
  mutable std::mutex mutex_;
  std::map<std::string, Known> known_;        // by name
  std::map<std::string, Resolved> resolved_;  // by host
};

}  // namespace tendril::daemon
