// SPDX-License-Identifier: Apache-2.0
// The RDMA ports that this server lends, as they come and go while it serves. daemon.cc looks every
// few seconds, on the supervisor's thread. Reads small files.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "transport/rdma/ports.h"

namespace tendril::daemon {

// How often daemon.cc looks.
inline constexpr int kLookAtCardsMs = 5'000;

struct CardFolders {
  transport::rdma::PortFolders ports;
  std::string nodes = "/dev/infiniband";  // what workers open
};

class Cards {
 public:
  // `lent`: as TENDRIL_RDMA_DEVICE names them; empty and "none": none.
  explicit Cards(std::string lent, CardFolders folders = {});

  struct Change {
    std::vector<std::string> lines;  // for the log; empty: nothing has changed
    // A card has come or gone, or came again. Workers that are warm may open those of their start
    // only.
    bool other_cards = false;
  };
  // What has changed since the last look. The first one tells of all ports.
  Change look();
  bool lends() const { return !lent_.empty() && lent_ != "none"; }
  // Those that are lent, at the last look.
  const std::vector<transport::rdma::PortState>& ports() const { return ports_; }

 private:
  const std::string lent_;
  const CardFolders folders_;
  bool looked_ = false;
  std::vector<transport::rdma::PortState> ports_;
  std::vector<std::string> nodes_;  // with what tells a node from a later one of the same name
};

// NCCL_SOCKET_IFNAME of workers that may use NCCL: these network interfaces and no others ("eth4",
// "eth4,eth5"). kNotFound: this machine has one of them not.
base::Result<std::string> sockets_variable(const std::string& interfaces);

// A line for each port that has come, gone, gone down or come up, or has another rate.
std::vector<std::string> changes_of(const std::vector<transport::rdma::PortState>& before,
                                    const std::vector<transport::rdma::PortState>& after);

}  // namespace tendril::daemon
