// SPDX-License-Identifier: Apache-2.0
// The RDMA ports of this machine as the kernel shows them below /sys, without libibverbs: which
// there are, whether their links are up, and whether a link was down meanwhile. For ibverbs.cc, and
// for a server that tells of its cards. Reads small files; waits for nothing.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tendril::transport::rdma {

// Where the kernel shows them. Tests have folders of their own.
struct PortFolders {
  std::string cards = "/sys/class/infiniband";
  std::string interfaces = "/sys/class/net";
  std::string boot_id = "/proc/sys/kernel/random/boot_id";
};

struct PortState {
  std::string card;  // "mlx5_0"
  unsigned port = 1;
  bool ethernet = false;  // RoCE; false: InfiniBand
  bool active = false;
  uint64_t megabits_per_second = 0;
  // Of RoCE: "eth4". Empty: none, or another network namespace has it.
  std::string interface;

  std::string name() const { return card + ":" + std::to_string(port); }
};

// Sorted by name. Empty: there is none, or the kernel shows none.
std::vector<PortState> read_ports(const PortFolders& folders = {});

// Another number when the port's link has been up or down since, or the machine has started anew.
// 0: the kernel does not count that. `gid_index`: of the address in use, which names the interface.
uint32_t link_epoch(const std::string& card, unsigned port, unsigned gid_index,
                    const PortFolders& folders = {});

// Whether a list ("mlx5_0,mlx5_1:2") names the port; port 0: it names the card or one of its ports.
// An empty list, and "any", name all; "none" names none.
bool names_port(const std::string& list, const std::string& card, unsigned port);

}  // namespace tendril::transport::rdma
