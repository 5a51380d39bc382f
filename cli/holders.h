// SPDX-License-Identifier: Apache-2.0
// Keeps leases while the network to their servers is cut: connects again and claims them with their
// secrets. For commands that hold leases while a program runs. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "cli/slices.h"
#include "session/control/attach.h"

namespace tendril::cli {

// A lease over a connection that is new. `lease`: its endpoint, number and secret; gets the
// connection.
base::Status claim_lease(const session::ConnectOptions& connect, TakenLease* lease);

class Holders {
 public:
  // `say`: for people.
  Holders(session::ConnectOptions connect, uint32_t outage_ms,
          std::function<void(const std::string&)> say)
      : connect_(std::move(connect)), outage_ms_(outage_ms), say_(std::move(say)) {}

  // The connection that held the lease has ended. True: the network was cut, and it is tried again;
  // the lease must stay where it is.
  bool waits_for(TakenLease* lease);
  // The longest time until look; -1: for ever.
  int wait_ms(int otherwise_ms) const;
  // Tries the leases that are due. Blocks for at most two seconds for each. What became of them:
  struct Outcome {
    TakenLease* lease = nullptr;
    bool held = false;  // again; otherwise it is lost
  };
  std::vector<Outcome> look();

 private:
  struct Away {
    uint64_t since_ns = 0, next_ns = 0;
  };
  session::ConnectOptions connect_;
  const uint32_t outage_ms_;
  const std::function<void(const std::string&)> say_;
  std::map<TakenLease*, Away> away_;
};

}  // namespace tendril::cli
