// SPDX-License-Identifier: Apache-2.0
// Keeps Kubernetes' ResourceSlices equal to the GPUs of a pool. One process of a cluster does that.
#pragma once

#include <cstdint>
#include <string>

#include "packaging/kubernetes/api_server.h"

namespace tendril::kubernetes {

struct PublishOptions {
  ApiOptions api;
  std::string tendril = "tendril", pool = "tendril";
  uint64_t interval_s = 30;
  bool binds = false;  // pods wait until the pool has granted (binder.h)
  bool once = false;
};

// Runs until it is ended. What fails is written to stderr, left as it is, and tried again. With
// `once` it returns the exit status after one round.
int publish(const PublishOptions& options);

}  // namespace tendril::kubernetes
