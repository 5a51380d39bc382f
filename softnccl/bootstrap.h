// SPDX-License-Identifier: Apache-2.0
// How the ranks of a communicator find each other. Whoever makes a unique id listens, on a thread
// that gathers all ranks and tells each of them where the others are. The thread ends with that, or
// when a rank that came has gone. Any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "softnccl/nccl.h"
#include "softnccl/socket.h"

namespace tendril::softnccl {

inline constexpr int kRanksMax = 4096;

struct Member {
  Address address;
  uint16_t unused = 0;
  uint32_t version = 0;
  uint64_t token = 0;  // rank 0's names the communicator: a connection must show it
};

ncclResult_t make_unique_id(ncclUniqueId* id);

// Waits for all ranks. `members` has one entry for each.
ncclResult_t join(const ncclUniqueId& id, int rank, int ranks, const Member& self, const Stop& stop,
                  std::vector<Member>* members);

// Ends the thread behind an id that nobody will use.
void dismiss(const ncclUniqueId& id, const Stop& stop);

// Not secret and not repeated within a machine.
uint64_t new_token();

}  // namespace tendril::softnccl
