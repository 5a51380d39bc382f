// SPDX-License-Identifier: Apache-2.0
// See rules_reader.h.
#include "pool/policy/rules_reader.h"

#include "wire/control.h"

namespace tendril::pool {
namespace {

constexpr int32_t kPriorityMax = 1'000'000;

void read_over_quota(PolicyValues* values, const std::string& key, const toml::node& node,
                     UserClassRules* rules) {
  const std::string text = node.value_exact<std::string>().value_or("");
  if (text == "allowed") {
    rules->over_quota = OverQuota::kAllowed;
  } else if (text == "never") {
    rules->over_quota = OverQuota::kNever;
  } else if (text == "only") {
    rules->over_quota = OverQuota::kOnly;
  } else {
    values->expected(key, node, "\"allowed\", \"never\" or \"only\"");
  }
}

struct SecondsKey {
  const char* key;
  std::optional<uint64_t> UserClassRules::*rule;
  bool may_be_none;
};

constexpr SecondsKey kSecondsKeys[] = {
    {"max_wall", &UserClassRules::max_wall_s, true},
    {"default_wall", &UserClassRules::default_wall_s, true},
    {"warn_time", &UserClassRules::warn_time_s, false},
    {"idle_timeout", &UserClassRules::idle_timeout_s, true},
    {"idle_unused_timeout", &UserClassRules::idle_unused_timeout_s, true},
    {"idle_grace", &UserClassRules::idle_grace_s, false},
    {"grace_time", &UserClassRules::grace_time_s, false},
    {"preempt_exempt_time", &UserClassRules::preempt_exempt_time_s, false},
};

}  // namespace

const std::vector<std::string>& account_rule_keys() {
  static const std::vector<std::string> kKeys = {"quota", "limit", "lending_limit",
                                                 "over_quota_weight", "max_per_user"};
  return kKeys;
}

const std::vector<std::string>& user_class_rule_keys() {
  static const std::vector<std::string> kKeys = {
      "priority",     "max_priority",        "gpu_classes",  "max_per_user",
      "max_wall",     "default_wall",        "warn_time",    "wall_action",
      "idle_timeout", "idle_unused_timeout", "idle_grace",   "idle_action",
      "preempts",     "over_quota",          "reclaimable",  "preempt_mode",
      "grace_time",   "preempt_exempt_time", "usage_factor", "into_maintenance"};
  return kKeys;
}

bool read_rule(PolicyValues* values, const std::string& key, const toml::node& node,
               const PoolPolicy& names, AccountRules* rules) {
  if (key == "quota") {
    rules->quota = values->amounts(key, node, names.gpu_classes, false);
  } else if (key == "limit") {
    rules->limit = values->amounts(key, node, names.gpu_classes, true);
  } else if (key == "lending_limit") {
    rules->lending_limit = values->amounts(key, node, names.gpu_classes, true);
  } else if (key == "over_quota_weight") {
    rules->over_quota_weight = values->factor(key, node);
  } else if (key == "max_per_user") {
    rules->max_per_user = values->per_user(key, node);
  } else {
    return false;
  }
  return true;
}

bool read_rule(PolicyValues* values, const std::string& key, const toml::node& node,
               const PoolPolicy& names, UserClassRules* rules) {
  for (const SecondsKey& one : kSecondsKeys) {
    if (key != one.key) continue;
    rules->*one.rule = values->seconds(key, node, one.may_be_none);
    return true;
  }
  if (key == "priority") {
    rules->priority = values->whole(key, node, -kPriorityMax, kPriorityMax);
  } else if (key == "max_priority") {
    rules->max_priority = values->whole(key, node, -wire::kPriorityMax, wire::kPriorityMax);
  } else if (key == "gpu_classes") {
    rules->gpu_classes = values->positions(key, node, names.gpu_classes, "gpu_class");
    if (values->ok() && rules->gpu_classes->empty())
      values->expected(key, node, "a list with at least one GPU class");
  } else if (key == "max_per_user") {
    rules->max_per_user = values->per_user(key, node);
  } else if (key == "wall_action") {
    rules->wall_action = values->actions(key, node, true);
    for (const Action action : *rules->wall_action) {
      if (action == Action::kShrink || action == Action::kPause)
        values->expected(key, node,
                         "a list with only \"warn\", \"requeue\" and \"end\", because its time is "
                         "over");
    }
  } else if (key == "idle_action") {
    rules->idle_action = values->actions(key, node, false);
  } else if (key == "preempt_mode") {
    rules->preempt_mode = values->actions(key, node, true);
  } else if (key == "preempts") {
    rules->preempts = values->positions(key, node, names.user_classes, "user_class");
  } else if (key == "over_quota") {
    read_over_quota(values, key, node, rules);
  } else if (key == "reclaimable") {
    rules->reclaimable = values->flag(key, node);
  } else if (key == "usage_factor") {
    rules->usage_factor = values->factor(key, node);
  } else if (key == "into_maintenance") {
    rules->into_maintenance = values->flag(key, node);
  } else {
    return false;
  }
  return true;
}

}  // namespace tendril::pool
