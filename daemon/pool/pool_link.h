// SPDX-License-Identifier: Apache-2.0
// A server's connections to the schedulers of its pool (docs/decisions/0022-the-pool.md). A thread
// for each address connects, reports again and again, and has the orders of the one that schedules
// carried out. While none answers, nothing that runs is touched.
//
// A scheduler is checked like any peer: messages are bounded, orders of a lower term do nothing,
// and what an order asks for is checked where it is carried out. Any thread may call the methods.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/fd.h"
#include "base/result.h"
#include "daemon/pool/book_changes.h"
#include "daemon/pool/pool_standing.h"
#include "session/control/attach.h"
#include "wire/pool.h"

namespace tendril::daemon {

// What a link needs from the server. Called by several threads.
struct PoolHost {
  std::function<wire::ServerFacts()> facts;
  std::function<std::vector<wire::BookEntry>()> book;
  std::function<std::vector<wire::LeaseCounts>(const std::vector<uint64_t>& leases)> counts;
  std::function<base::Status(uint64_t term)> hear;
  std::function<uint64_t()> newest_term;
  std::function<wire::OrderResult(uint64_t term, const wire::Order&)> obey;
  std::function<void(uint64_t ended_number)> stored;
  std::function<void(bool begin, const std::vector<wire::PoolPeer>&)> named;
};

struct PoolLinkOptions {
  std::vector<std::string> addresses;  // of the schedulers; at least one
  uint64_t boot = 0;                   // random, of this run
  // How to prove to a scheduler who this server is. Asked before each connection, because
  // certificates are renewed. Empty: the plain protocol.
  std::function<base::Result<session::ConnectOptions>()> credentials;
  int retry_ms = 500;  // at least; up to twice that
};

class PoolLinks {
 public:
  // kInvalid: an address cannot be read.
  static base::Result<std::unique_ptr<PoolLinks>> start(PoolLinkOptions options, PoolHost host);
  ~PoolLinks();

  // Nothing is carried out any more, and the threads begin to end. One that connects may need
  // seconds.
  void begin_stop();
  void stop();

  // Whether somebody may take a lease here without asking the pool.
  base::Status may_lease();
  // Something changed that the pool must know at once: it is told on new connections.
  void hurry();

 private:
  struct Link;
  PoolLinks(PoolLinkOptions options, PoolHost host);
  void run(Link* link);
  void talk(Link* link, session::Control* control);
  base::Result<wire::PoolOrders> report(Link* link, session::Control* control);
  void take(Link* link, const wire::PoolOrders& orders);
  bool nap(int ms);
  void note_trouble(Link* link, const std::string& trouble);

  const PoolLinkOptions options_;
  const PoolHost host_;
  std::atomic<bool> stopping_{false};
  base::Fd stop_;
  std::mutex mutex_;
  PoolStanding standing_;  // guarded by mutex_
  std::vector<std::unique_ptr<Link>> links_;
};

}  // namespace tendril::daemon
