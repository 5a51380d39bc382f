// SPDX-License-Identifier: Apache-2.0
// Asks a pool for a lease, waits in its queue, and claims what was granted on each server. Finds
// the scheduler among several addresses, and asks the next one if it is lost: the request keeps its
// key, and so its place. Used by `tendril run` and `tendril lease hold`.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/slices.h"
#include "session/control/attach.h"

namespace tendril::cli {

struct PoolAsk {
  std::vector<session::Endpoint> pools;
  session::ConnectOptions connect;
  wire::LeaseRequest request;
  uint64_t wait_s = 0;  // in the queue
  int cancel_fd = -1;   // gives up when it becomes readable
  bool verbose = false;
  std::function<void(const std::string&)> say;  // a line for people, without its end
};

struct PoolLease {
  wire::LeaseReply reply;          // with its parts
  std::vector<TakenLease> leases;  // one for each part, claimed; they live while these do
};

// Blocks. All parts or none. kRefused: the pool will not grant this. kTimeout: it waited for as
// long as it was to wait. kUnavailable: nobody schedules.
base::Result<PoolLease> lease_from_pool(PoolAsk ask);

// 16 random bytes for wire::PoolWish.
base::Result<std::string> new_request_key();

}  // namespace tendril::cli
