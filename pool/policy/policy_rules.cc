// SPDX-License-Identifier: Apache-2.0
// See policy_rules.h.
#include "pool/policy/policy_rules.h"

#include <algorithm>

#include "base/text.h"
#include "config/quantity.h"

namespace tendril::pool {
namespace {

using base::Code;
using base::Status;

template <typename Value>
void set(const std::optional<Value>& rule, Value* value) {
  if (rule) *value = *rule;
}

void set(const AmountRules& rules, Amounts* amounts) {
  for (const auto& [gpu_class, amount] : rules) {
    if (gpu_class < amounts->size()) (*amounts)[gpu_class] = amount;
  }
}

void set(const PerUserRules& rules, PerUser* limits) {
  set(rules.gpus, &limits->gpus);
  set(rules.leases, &limits->leases);
  set(rules.pending, &limits->pending);
}

AmountRules rules_of(const Amounts& amounts) {
  AmountRules rules;
  for (size_t i = 0; i < amounts.size(); ++i) rules[static_cast<uint32_t>(i)] = amounts[i];
  return rules;
}

PerUserRules rules_of(const PerUser& limits) {
  return {limits.gpus, limits.leases, limits.pending};
}

std::string count_text(uint64_t count) {
  return count == kUnlimited ? "none" : std::to_string(count);
}

// Makes lines, and leaves out what is not set.
class LineWriter {
 public:
  explicit LineWriter(const PoolPolicy& names) : names_(names) {}

  void amounts(const char* key, const AmountRules& rules) {
    for (const auto& [gpu_class, amount] : rules) {
      if (gpu_class >= names_.gpu_classes.size()) continue;
      add(std::string(key) + "." + names_.gpu_classes[gpu_class].name, gpus_text(amount));
    }
  }
  void per_user(const PerUserRules& rules) {
    if (rules.gpus) add("max_per_user.gpus", gpus_text(*rules.gpus));
    if (rules.leases) add("max_per_user.leases", count_text(*rules.leases));
    if (rules.pending) add("max_per_user.pending", count_text(*rules.pending));
  }
  void seconds(const char* key, const std::optional<uint64_t>& rule) {
    if (rule) add(key, seconds_text(*rule));
  }
  void number(const char* key, const std::optional<int32_t>& rule) {
    if (rule) add(key, std::to_string(*rule));
  }
  void factor(const char* key, const std::optional<double>& rule) {
    if (rule) add(key, factor_text(*rule));
  }
  void flag(const char* key, const std::optional<bool>& rule) {
    if (rule) add(key, *rule ? "true" : "false");
  }
  void actions(const char* key, const std::optional<std::vector<Action>>& rule) {
    if (!rule) return;
    std::string text;
    for (const Action action : *rule)
      text += (text.empty() ? "" : ", ") + std::string(action_name(action));
    add(key, text);
  }
  template <typename Records>
  void list(const char* key, const std::optional<std::vector<uint32_t>>& rule,
            const Records& records) {
    if (!rule) return;
    std::string text;
    for (const uint32_t number : *rule) {
      if (number < records.size()) text += (text.empty() ? "" : ", ") + records[number].name;
    }
    add(key, text.empty() ? "none" : text);
  }
  void add(const std::string& key, const std::string& value) { lines.emplace_back(key, value); }

  Lines lines;

 private:
  const PoolPolicy& names_;
};

const char* over_quota_name(OverQuota rule) {
  switch (rule) {
    case OverQuota::kAllowed:
      return "allowed";
    case OverQuota::kNever:
      return "never";
    case OverQuota::kOnly:
      return "only";
  }
  return "unknown";
}

// The account and those above it, up to where `stop` holds.
template <typename Stop>
std::vector<uint32_t> chain(const PoolPolicy& policy, uint32_t account, Stop stop) {
  std::vector<uint32_t> found;
  while (account != kNoAccount && !stop(account)) {
    found.push_back(account);
    account = policy.accounts[account].parent;
  }
  return found;
}

// What the accounts directly below one have.
uint64_t quota_below(const PoolPolicy& policy, uint32_t parent, uint32_t gpu_class) {
  uint64_t sum = 0;
  for (const Account& account : policy.accounts) {
    if (account.parent == parent) sum += account.quota[gpu_class];
  }
  return sum;
}

}  // namespace

void apply(const AccountRules& rules, Account* account) {
  set(rules.quota, &account->quota);
  for (const auto& [gpu_class, amount] : rules.quota) account->quota_is_sum[gpu_class] = false;
  set(rules.limit, &account->limit);
  set(rules.lending_limit, &account->lending_limit);
  set(rules.over_quota_weight, &account->over_quota_weight);
  set(rules.max_per_user, &account->max_per_user);
}

void apply(const UserClassRules& rules, UserClass* of) {
  set(rules.priority, &of->priority);
  set(rules.max_priority, &of->max_priority);
  set(rules.gpu_classes, &of->gpu_classes);
  set(rules.max_per_user, &of->max_per_user);
  set(rules.max_wall_s, &of->max_wall_s);
  set(rules.default_wall_s, &of->default_wall_s);
  of->default_wall_s = std::min(of->default_wall_s, of->max_wall_s);
  set(rules.warn_time_s, &of->warn_time_s);
  set(rules.wall_action, &of->wall_action);
  set(rules.idle_timeout_s, &of->idle_timeout_s);
  set(rules.idle_unused_timeout_s, &of->idle_unused_timeout_s);
  set(rules.idle_grace_s, &of->idle_grace_s);
  set(rules.idle_action, &of->idle_action);
  set(rules.preempts, &of->preempts);
  set(rules.over_quota, &of->over_quota);
  set(rules.reclaimable, &of->reclaimable);
  set(rules.preempt_mode, &of->preempt_mode);
  set(rules.grace_time_s, &of->grace_time_s);
  set(rules.preempt_exempt_time_s, &of->preempt_exempt_time_s);
  set(rules.usage_factor, &of->usage_factor);
  set(rules.into_maintenance, &of->into_maintenance);
}

AccountRules rules_of(const Account& account) {
  AccountRules rules;
  rules.quota = rules_of(account.quota);
  rules.limit = rules_of(account.limit);
  rules.lending_limit = rules_of(account.lending_limit);
  rules.over_quota_weight = account.over_quota_weight;
  rules.max_per_user = rules_of(account.max_per_user);
  return rules;
}

UserClassRules rules_of(const UserClass& of) {
  UserClassRules rules;
  rules.priority = of.priority;
  rules.max_priority = of.max_priority;
  rules.gpu_classes = of.gpu_classes;
  rules.preempts = of.preempts;
  rules.max_per_user = rules_of(of.max_per_user);
  rules.max_wall_s = of.max_wall_s;
  rules.default_wall_s = of.default_wall_s;
  rules.warn_time_s = of.warn_time_s;
  rules.wall_action = of.wall_action;
  rules.idle_timeout_s = of.idle_timeout_s;
  rules.idle_unused_timeout_s = of.idle_unused_timeout_s;
  rules.idle_grace_s = of.idle_grace_s;
  rules.idle_action = of.idle_action;
  rules.over_quota = of.over_quota;
  rules.reclaimable = of.reclaimable;
  rules.preempt_mode = of.preempt_mode;
  rules.grace_time_s = of.grace_time_s;
  rules.preempt_exempt_time_s = of.preempt_exempt_time_s;
  rules.usage_factor = of.usage_factor;
  rules.into_maintenance = of.into_maintenance;
  return rules;
}

Lines lines_of(const AccountRules& rules, const PoolPolicy& names) {
  LineWriter out(names);
  out.amounts("quota", rules.quota);
  out.amounts("limit", rules.limit);
  out.amounts("lending_limit", rules.lending_limit);
  out.factor("over_quota_weight", rules.over_quota_weight);
  out.per_user(rules.max_per_user);
  return std::move(out.lines);
}

Lines lines_of(const UserClassRules& rules, const PoolPolicy& names) {
  LineWriter out(names);
  out.number("priority", rules.priority);
  out.number("max_priority", rules.max_priority);
  out.list("gpu_classes", rules.gpu_classes, names.gpu_classes);
  out.per_user(rules.max_per_user);
  out.seconds("max_wall", rules.max_wall_s);
  out.seconds("default_wall", rules.default_wall_s);
  out.seconds("warn_time", rules.warn_time_s);
  out.actions("wall_action", rules.wall_action);
  out.seconds("idle_timeout", rules.idle_timeout_s);
  out.seconds("idle_unused_timeout", rules.idle_unused_timeout_s);
  out.seconds("idle_grace", rules.idle_grace_s);
  out.actions("idle_action", rules.idle_action);
  out.list("preempts", rules.preempts, names.user_classes);
  if (rules.over_quota) out.add("over_quota", over_quota_name(*rules.over_quota));
  out.flag("reclaimable", rules.reclaimable);
  out.actions("preempt_mode", rules.preempt_mode);
  out.seconds("grace_time", rules.grace_time_s);
  out.seconds("preempt_exempt_time", rules.preempt_exempt_time_s);
  out.factor("usage_factor", rules.usage_factor);
  out.flag("into_maintenance", rules.into_maintenance);
  return std::move(out.lines);
}

void sum_quotas(PoolPolicy* policy) {
  // Parents come before their children, so the last ones first.
  for (size_t i = policy->accounts.size(); i-- > 0;) {
    Account& account = policy->accounts[i];
    for (size_t c = 0; c < account.quota.size(); ++c) {
      if (account.quota_is_sum[c])
        account.quota[c] = quota_below(*policy, static_cast<uint32_t>(i), static_cast<uint32_t>(c));
    }
  }
}

namespace {

// Whether one class may move; the message says why not.
Status check_move(const PoolPolicy& policy, uint32_t from, uint32_t gpu_class, uint64_t amount,
                  const std::vector<uint32_t>& receivers) {
  const Account& giver = policy.accounts[from];
  const std::string& name = policy.gpu_classes[gpu_class].name;
  for (const uint32_t account : {from, receivers.front()}) {
    if (!policy.accounts[account].quota_is_sum[gpu_class]) continue;
    return Status(Code::kRefused, "the quota of " + policy.accounts[account].name + " for " + name +
                                      " is the sum of the accounts below it; name one of these");
  }
  const uint64_t below = quota_below(policy, from, gpu_class);
  if (giver.quota[gpu_class] < amount + below) {
    return Status(
        Code::kRefused,
        giver.name + " has a quota of " + gpus_text(giver.quota[gpu_class]) + " " + name +
            (below != 0 ? ", of which " + gpus_text(below) + " are of accounts below it" : "") +
            "; " + gpus_text(amount) + " cannot be moved");
  }
  for (const uint32_t receiver : receivers) {
    const Account& account = policy.accounts[receiver];
    const uint64_t quota = account.quota[gpu_class] + amount;
    if (account.limit[gpu_class] >= quota) continue;
    return Status(Code::kRefused, "the quota of " + account.name + " would be " + gpus_text(quota) +
                                      " " + name + ", but its limit is " +
                                      gpus_text(account.limit[gpu_class]) +
                                      "; raise the limit in the policy first");
  }
  return Status();
}

}  // namespace

Status make_move(const Move& move, PoolPolicy* policy) {
  const std::optional<uint32_t> from = policy->account(move.from), to = policy->account(move.to);
  if (!from || !to) {
    return Status(Code::kInvalid,
                  "there is no account '" + base::printable(from ? move.to : move.from, 64) + "'");
  }
  if (*from == *to || move.gpus.empty())
    return Status(Code::kInvalid, "name two accounts and the GPUs that go from one to the other");
  const auto never = [](uint32_t) { return false; };
  const std::vector<uint32_t> above_to = chain(*policy, *to, never);
  const std::vector<uint32_t> givers = chain(*policy, *from, [&](uint32_t account) {
    return std::find(above_to.begin(), above_to.end(), account) != above_to.end();
  });
  const std::vector<uint32_t> above_from = chain(*policy, *from, never);
  const std::vector<uint32_t> receivers = chain(*policy, *to, [&](uint32_t account) {
    return std::find(above_from.begin(), above_from.end(), account) != above_from.end();
  });
  PoolPolicy moved = *policy;
  for (const auto& [name, amount] : move.gpus) {
    const std::optional<uint32_t> gpu_class = policy->gpu_class(name);
    if (!gpu_class || amount == 0) {
      return Status(Code::kInvalid,
                    gpu_class ? "0 GPUs cannot be moved"
                              : "there is no GPU class '" + base::printable(name, 64) + "'");
    }
    // A move up or down a branch changes nothing above: the quota of one holds that of the other.
    if (givers.empty() || receivers.empty()) {
      return Status(Code::kRefused, "one of " + move.from + " and " + move.to +
                                        " is above the other, and its quota has the other's in it; "
                                        "edit the policy instead");
    }
    const Status possible = check_move(moved, *from, *gpu_class, amount, receivers);
    if (!possible.ok()) return possible;
    for (const uint32_t account : givers) moved.accounts[account].quota[*gpu_class] -= amount;
    for (const uint32_t account : receivers) moved.accounts[account].quota[*gpu_class] += amount;
  }
  sum_quotas(&moved);
  *policy = std::move(moved);
  return Status();
}

std::string gpus_text(uint64_t millionths) {
  if (millionths == kUnlimited) return "none";
  std::string text =
      base::format("%llu.%06llu", static_cast<unsigned long long>(millionths / config::kWholeGpu),
                   static_cast<unsigned long long>(millionths % config::kWholeGpu));
  while (text.back() == '0' && text[text.size() - 2] != '.') text.pop_back();
  return text;
}

std::string seconds_text(uint64_t seconds) {
  if (seconds == kUnlimited) return "none";
  if (seconds == 0) return "0s";
  if (seconds % 86'400 == 0) return std::to_string(seconds / 86'400) + "d";
  if (seconds % 3600 == 0) return std::to_string(seconds / 3600) + "h";
  if (seconds % 60 == 0) return std::to_string(seconds / 60) + "m";
  return std::to_string(seconds) + "s";
}

std::string factor_text(double factor) { return base::format("%.6g", factor); }

}  // namespace tendril::pool
