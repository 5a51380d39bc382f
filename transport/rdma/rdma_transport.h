// SPDX-License-Identifier: Apache-2.0
// RDMA as a registered transport, and the two halves for tests, which bring other verbs.
#pragma once

#include "transport/rdma/verbs.h"
#include "transport/registry.h"

namespace tendril::transport::rdma {

base::Result<std::unique_ptr<Half>> offer(Verbs* verbs, const Setting& setting);
base::Result<std::unique_ptr<Half>> answer(Verbs* verbs, const Setting& setting,
                                           const std::string& offered);

}  // namespace tendril::transport::rdma
