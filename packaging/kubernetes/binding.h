// SPDX-License-Identifier: Apache-2.0
// What binding conditions say in a claim: a pod is bound to a node only once the pool has granted
// its slices. Pure.
#pragma once

#include <string>

#include "packaging/kubernetes/inventory.h"

namespace tendril::kubernetes {

// Kubernetes' scheduler waits for the first, and gives the devices up at the second.
inline constexpr char kLeased[] = "gpu.tendril.io/leased";
inline constexpr char kRefused[] = "gpu.tendril.io/refused";

// The claim is allocated, and some device of this driver has the condition.
bool waits_for_lease(const Json& claim);
// Changes when the claim is allocated anew.
std::string allocation_of(const Json& claim);
// All of those devices have been said to be leased.
bool is_leased(const Json& claim);

struct Condition {
  const char* type = kLeased;
  bool holds = false;
  std::string reason;   // one word
  std::string message;  // for people
  bool operator==(const Condition&) const = default;
};
// The claim with that condition at each of those devices. What others have said stays. `now`: as
// "2026-01-02T03:04:05Z".
Json with_condition(Json claim, const Condition& condition, const std::string& now);

}  // namespace tendril::kubernetes
