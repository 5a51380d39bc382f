// SPDX-License-Identifier: Apache-2.0
// See pool_peers.h.
#include "daemon/pool/pool_peers.h"

#include <set>

namespace tendril::daemon {
namespace {

constexpr size_t kKnownMax = 20'000;  // as many as a pool has
constexpr uint64_t kResolvedNs = 60'000'000'000;

}  // namespace

void PoolPeers::named(bool begin, const std::vector<wire::PoolPeer>& peers) {
  std::lock_guard<std::mutex> hold(mutex_);
  if (begin) known_.clear();
  for (const wire::PoolPeer& peer : peers) {
    auto endpoint = session::parse_endpoint(peer.endpoint);
    if (!endpoint.ok() || !endpoint->unix_path.empty() || endpoint->host.empty()) {
      known_.erase(peer.name);
    } else if (known_.count(peer.name) != 0 || known_.size() < kKnownMax) {
      known_[peer.name] = {endpoint.take(), peer.passage_id};
    }
  }
}

std::vector<session::Endpoint> PoolPeers::with_passage_id(const std::string& passage_id) const {
  std::lock_guard<std::mutex> hold(mutex_);
  std::vector<session::Endpoint> older;
  for (const auto& [name, known] : known_) {
    if (known.passage_id == passage_id) return {known.endpoint};
    if (known.passage_id.empty()) older.push_back(known.endpoint);
  }
  return older;
}

size_t PoolPeers::count() const {
  std::lock_guard<std::mutex> hold(mutex_);
  return known_.size();
}

std::vector<ReachableAddress> PoolPeers::addresses(bool loopback, uint64_t now_ns) {
  std::set<std::string> hosts, unknown;
  {
    std::lock_guard<std::mutex> hold(mutex_);
    for (const auto& [name, known] : known_) hosts.insert(known.endpoint.host);
    std::erase_if(resolved_, [&](const auto& each) { return each.second.until_ns <= now_ns; });
    for (const std::string& host : hosts) {
      if (resolved_.count(host) == 0) unknown.insert(host);
    }
  }
  // Names may take long, so nobody waits for the lock meanwhile.
  std::map<std::string, Resolved> fresh;
  for (const std::string& host : unknown)
    fresh[host] = {now_ns + kResolvedNs, addresses_of_host(host)};
  std::lock_guard<std::mutex> hold(mutex_);
  resolved_.merge(fresh);
  std::vector<ReachableAddress> all;
  for (const std::string& host : hosts) {
    const auto found = resolved_.find(host);
    if (found == resolved_.end()) continue;
    for (const ReachableAddress& address : found->second.addresses) {
      if (loopback || !is_loopback(address)) all.push_back(address);
    }
  }
  return all;
}

}  // namespace tendril::daemon
