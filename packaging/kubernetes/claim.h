// SPDX-License-Identifier: Apache-2.0
// From a claim that Kubernetes' scheduler has allocated to what Tendril is asked for. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "packaging/kubernetes/inventory.h"

namespace tendril::kubernetes {

// A quantity as Kubernetes writes it ("500m", "10Gi", "1.5", "2e3") in thousandths, rounded up.
// Throws std::runtime_error: it is none, negative, or beyond 10^15.
int64_t thousandths(const std::string& quantity);

struct Allocated {
  std::string request, pool, device;  // as Kubernetes names them
};

// One slice on each of the devices, all of one size.
struct Wanted {
  std::vector<Allocated> devices;
  std::string filter;               // names their GPUs to the pool
  int64_t percent = 100;            // of a GPU's time
  int64_t memory_mib = 0;           // 0: the whole memory
  std::string share_text() const;   // "0.50"
  std::string memory_text() const;  // "256M"
};

// `claim`: the ResourceClaim. `slices`: the driver's ResourceSlices, which say which GPU a device
// is. Throws std::runtime_error with a message for the pod's events.
Wanted wanted_of(const Json& claim, const std::string& uid, const std::vector<Json>& slices);

}  // namespace tendril::kubernetes
