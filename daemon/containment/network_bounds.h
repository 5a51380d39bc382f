// SPDX-License-Identifier: Apache-2.0
// Keeps workers with a network to the servers that the operator named: the kernel drops every
// packet of their sockets that goes anywhere else or comes from there. NCCL opens its own sockets
// from many threads and listens for its peers, so the packets are looked at, and not the calls.
// Needs root. Any thread.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/result.h"

namespace tendril::daemon {

// In the order of the network. Of IPv4 the first 4 bytes.
struct ReachableAddress {
  bool is_v6 = false;
  std::array<uint8_t, 16> bytes = {};
  bool operator==(const ReachableAddress& other) const {
    return is_v6 == other.is_v6 && bytes == other.bytes;
  }
};

// What the kernel asks of each packet: TCP, with one of these addresses at the other end, and ports
// from `first_port` on at both ends. Lower ones are services' (8 bytes an instruction).
std::vector<uint64_t> packet_program(const std::vector<ReachableAddress>& reachable,
                                     uint16_t first_port, bool leaving);

// This server's own addresses and those of `peers`, each "HOST[:PORT]". `loopback`: this server
// serves only this machine. Asks the resolver; names that it does not know are logged.
std::vector<ReachableAddress> reachable_addresses(const std::vector<std::string>& peers,
                                                  bool loopback);
// Of a host's name or address. Asks the resolver; empty, and a line in the log: it does not know.
std::vector<ReachableAddress> addresses_of_host(const std::string& host);
bool is_loopback(const ReachableAddress& address);
// Adds those that are not there yet, as many as a program can ask for; the log says if some are
// left out.
void add_reachable(const std::vector<ReachableAddress>& more, std::vector<ReachableAddress>* all);

class NetworkBounds {
 public:
  // `group`: the folder of a control group that all workers are in; empty: one is made.
  // kUnsupported: this kernel or this daemon's rights do not allow it.
  static base::Result<std::unique_ptr<NetworkBounds>> open(const std::string& group);
  ~NetworkBounds();
  NetworkBounds(const NetworkBounds&) = delete;
  NetworkBounds& operator=(const NetworkBounds&) = delete;

  // Sockets that the process makes from now on reach only these, and so do those of processes that
  // entered before.
  base::Status enter(pid_t process, const std::vector<ReachableAddress>& reachable);

 private:
  NetworkBounds(base::Fd top, base::Fd group, std::string name);
  base::Status attach(const std::vector<ReachableAddress>& reachable);

  const base::Fd top_, group_;  // folders of control groups
  const std::string name_;      // of the one that was made; empty: none was
  std::mutex mutex_;
  std::vector<ReachableAddress> attached_;  // guarded by mutex_, as what follows
  base::Fd leaving_, coming_;               // programs
};

}  // namespace tendril::daemon
