// SPDX-License-Identifier: Apache-2.0
// The RDMA hardware of this machine, through libibverbs.so.1. The library is opened when somebody
// first asks for a device, and stays. Any thread.
#pragma once

#include "transport/rdma/verbs.h"

namespace tendril::transport::rdma {

// Lives as long as the process.
Verbs& system_verbs();

}  // namespace tendril::transport::rdma
