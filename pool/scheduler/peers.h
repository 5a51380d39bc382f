// SPDX-License-Identifier: Apache-2.0
// What servers of the pool are told of each other, so that their workers may have connections: to
// each all others, then what is new. The scheduler calls it. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <unordered_map>

#include "wire/pool.h"

namespace tendril::pool {

class PeerNames {
 public:
  // What one server was told on its present connection.
  struct Told {
    uint64_t beginning = 0;  // 0: nothing yet
    uint64_t change = 0;     // up to this one
    bool more = false;       // there was no room for all
  };

  // A server that is new, or has moved. Without an endpoint it is no peer.
  void set(uint32_t server, wire::PoolPeer peer);
  // All others begin anew.
  void remove(uint32_t server);
  // By the policy. Where nobody is anybody's peer, servers are told that, and no name.
  void allow(bool allowed);

  // Adds to the answer what the server has not been told, as much as fits.
  void tell(uint32_t server, Told* told, wire::PoolOrders* orders) const;

 private:
  struct Known {
    uint64_t change = 0;
    wire::PoolPeer peer;
  };
  bool allowed_ = true;
  uint64_t beginning_ = 1, changes_ = 0;
  std::map<uint64_t, uint32_t> by_change_;
  std::unordered_map<uint32_t, Known> known_;
};

}  // namespace tendril::pool
