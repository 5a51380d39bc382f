// SPDX-License-Identifier: Apache-2.0
// The environment of the operator's NCCL: what the program may choose, and what the server says.
// Executor thread, before the library is opened.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "transport/rdma/ports.h"

namespace tendril::worker::nccl {

using Variables = std::vector<std::pair<std::string, std::string>>;

// Those that the program sent and may choose (api/nccl/variables.h), with printable values. Others
// are left out.
Variables allowed_variables(const uint8_t* bytes, uint64_t count);

// Workers of other users share no memory with this one, so they count as other machines.
Variables own_variables(const uint8_t* server_id, uid_t user);

// What NCCL may have of RDMA: the server's lent cards, and no others. `lent`: as
// TENDRIL_RDMA_DEVICE names them; null: none. `forbidden`: the policy forbids RDMA to the session's
// owner. `sockets`: NCCL_SOCKET_IFNAME, as `serve --data-interface` sets it; null: NCCL chooses.
// RoCE cards are those of its interfaces then.
Variables network_variables(const char* lent, bool forbidden, const char* sockets,
                            const std::vector<transport::rdma::PortState>& ports);

// What the server's operator has set stays, unless `over_operators`.
void set_variables(const Variables& variables, bool over_operators = false);

}  // namespace tendril::worker::nccl
