// SPDX-License-Identifier: Apache-2.0
// What a file says of an account or a class of use: only what it says. So the same records set
// defaults, change them while a schedule holds, and are shown. Pure data and arithmetic.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "pool/policy/policy.h"

namespace tendril::pool {

using AmountRules = std::map<uint32_t, uint64_t>;  // by the position of the GPU class

struct PerUserRules {
  std::optional<uint64_t> gpus, leases, pending;
};

struct AccountRules {
  AmountRules quota, limit, lending_limit;
  std::optional<double> over_quota_weight;
  PerUserRules max_per_user;
};

struct UserClassRules {
  std::optional<int32_t> priority, max_priority;
  std::optional<std::vector<uint32_t>> gpu_classes, preempts;
  PerUserRules max_per_user;
  std::optional<uint64_t> max_wall_s, default_wall_s, warn_time_s;
  std::optional<uint64_t> idle_timeout_s, idle_unused_timeout_s, idle_grace_s;
  std::optional<uint64_t> grace_time_s, preempt_exempt_time_s;
  std::optional<std::vector<Action>> wall_action, idle_action, preempt_mode;
  std::optional<OverQuota> over_quota;
  std::optional<bool> reclaimable, into_maintenance;
  std::optional<double> usage_factor;
};

struct ScheduleRules {
  std::vector<std::pair<uint32_t, AccountRules>> accounts;
  std::vector<std::pair<uint32_t, UserClassRules>> user_classes;
};

void apply(const AccountRules& rules, Account* account);
void apply(const UserClassRules& rules, UserClass* user_class);

// Makes what one move says of the quotas. kRefused, kInvalid: it cannot be made, nothing changed.
base::Status make_move(const Move& move, PoolPolicy* policy);
// Quotas that are sums of those below them become these sums.
void sum_quotas(PoolPolicy* policy);

// What is set, as a file would say it: pairs of key and value, in a fixed order.
using Lines = std::vector<std::pair<std::string, std::string>>;
Lines lines_of(const AccountRules& rules, const PoolPolicy& names);
Lines lines_of(const UserClassRules& rules, const PoolPolicy& names);
// Everything that a record has.
AccountRules rules_of(const Account& account);
UserClassRules rules_of(const UserClass& user_class);

std::string gpus_text(uint64_t millionths);  // "4.0", "0.25", "none"
std::string seconds_text(uint64_t seconds);  // "8h", "90s", "none"
std::string factor_text(double factor);      // "2", "0.2"

}  // namespace tendril::pool
