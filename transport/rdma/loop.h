// SPDX-License-Identifier: Apache-2.0
// A card that moves memory by itself, over two queue pairs of its own port: how fast it reaches a
// GPU's memory, measured without the peer. Private to rdma/.
#pragma once

#include <cstdint>

#include "transport/rdma/verbs.h"

namespace tendril::transport::rdma {

// Both places are this process'. `from`: with the key for peers, `to`: with the card's own. Blocks
// at most kCardTrialMs. Returns ns.
base::Result<uint64_t> move_by_card(Device* device, const Remote& from, const Remote& to,
                                    uint64_t bytes);

}  // namespace tendril::transport::rdma
