// SPDX-License-Identifier: Apache-2.0
// Who is in which account and class, in which class a GPU is, and in what two policies differ.
// Pure; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "pool/policy/policy.h"

namespace tendril::pool {

struct Assigned {
  uint32_t assignment = 0;
  uint32_t account = 0;
  uint32_t user_class = 0;
};

// The user with the groups that the policy adds.
UserFacts in_groups(const PoolPolicy& policy, UserFacts who);

// By the first assignment that matches the user and has the account and the class that the request
// names. Empty names: any account, the assignment's first class. Groups of the policy count, too.
// kRefused says who may use what.
base::Result<Assigned> assign(const PoolPolicy& policy, const UserFacts& who,
                              const std::string& account = "", const std::string& user_class = "");

// The class of a GPU; nothing: no class matches it, so nobody gets it.
std::optional<uint32_t> class_of(const PoolPolicy& policy, const GpuFacts& gpu);

// One setting that differs. An empty `before`: it is new; an empty `after`: it is gone.
struct PolicyChange {
  std::string table;  // "account", "user_class", ...; "pool"
  std::string name;   // of the record; empty for [pool]
  std::string key;    // "quota.top"
  std::string before, after;
};
// In the order of the file. Both as they are, without schedules applied.
std::vector<PolicyChange> difference(const PoolPolicy& before, const PoolPolicy& after);
// "account vision: quota.top 4.0 -> 2.0"
std::string text_of(const PolicyChange& change);

}  // namespace tendril::pool
