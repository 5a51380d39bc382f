// SPDX-License-Identifier: Apache-2.0
// See peers.h.
#include "pool/scheduler/peers.h"

#include <utility>

namespace tendril::pool {
namespace {

// A thousand servers that come at once wait for a thousand answers, which must not take memory.
constexpr size_t kPeersAtOnce = 16;
static_assert(kPeersAtOnce <= wire::kPoolPeersMax);

}  // namespace

void PeerNames::set(uint32_t server, wire::PoolPeer peer) {
  const auto found = known_.find(server);
  if (found != known_.end() && found->second.peer.endpoint == peer.endpoint &&
      found->second.peer.passage_id == peer.passage_id)
    return;
  if (peer.endpoint.empty()) return remove(server);
  Known& known = known_[server];
  by_change_.erase(known.change);
  known.change = ++changes_;
  known.peer = std::move(peer);
  by_change_[known.change] = server;
}

void PeerNames::remove(uint32_t server) {
  const auto found = known_.find(server);
  if (found == known_.end()) return;
  by_change_.erase(found->second.change);
  known_.erase(found);
  ++beginning_;
}

void PeerNames::allow(bool allowed) {
  if (allowed_ != allowed) ++beginning_;
  allowed_ = allowed;
}

void PeerNames::tell(uint32_t server, Told* told, wire::PoolOrders* orders) const {
  if (told->beginning != beginning_) {
    *told = Told();
    told->beginning = beginning_;
    orders->peers_begin = true;
  }
  told->more = false;
  if (!allowed_) return;
  for (auto at = by_change_.upper_bound(told->change); at != by_change_.end(); ++at) {
    if (orders->peers.size() == kPeersAtOnce) {
      told->more = true;
      return;
    }
    told->change = at->first;
    if (at->second != server) orders->peers.push_back(known_.at(at->second).peer);
  }
}

}  // namespace tendril::pool
