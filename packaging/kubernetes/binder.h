// SPDX-License-Identifier: Apache-2.0
// Takes a lease for each claim before its pod is bound to a node, and says in the claim that it is
// there. The pod's program takes the lease over. One process of a cluster does that.
#pragma once

#include <cstdint>
#include <string>

#include "packaging/kubernetes/api_server.h"

namespace tendril::kubernetes {

struct BindOptions {
  ApiOptions api;
  std::string tendril = "tendril";
  std::string space;  // the namespace for the leases' secrets
  uint64_t interval_ms = 1000;
};

// Runs until it is ended. What fails is written to stderr and tried again. Leases that no program
// has taken over end with this process.
int bind_claims(const BindOptions& options);

}  // namespace tendril::kubernetes
