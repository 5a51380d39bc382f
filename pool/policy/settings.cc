// SPDX-License-Identifier: Apache-2.0
// See settings.h and difference() of assign.h.
#include "pool/policy/settings.h"

#include <map>
#include <tuple>

#include "pool/filter/nearest.h"
#include "pool/policy/assign.h"
#include "pool/policy/policy_rules.h"

namespace tendril::pool {
namespace {

class Settings {
 public:
  explicit Settings(const PoolPolicy& policy) : policy_(policy) {}

  std::vector<PolicySetting> read() {
    pool();
    begin("groups", "");
    for (const auto& [group, users] : policy_.groups) add(group, joined(users));
    for (const GpuClass& one : policy_.gpu_classes) {
      begin("gpu_class", one.name);
      add("match", filter_text(one.match));
      add("usage_weight", factor_text(one.usage_weight));
    }
    for (const Account& one : policy_.accounts) {
      begin("account", one.name);
      add("parent", one.parent == kNoAccount ? "none" : policy_.accounts[one.parent].name);
      add(lines_of(rules_of(one), policy_));
    }
    for (const UserClass& one : policy_.user_classes) {
      begin("user_class", one.name);
      add(lines_of(rules_of(one), policy_));
    }
    assignments();
    reservations();
    schedules();
    moves();
    return std::move(found_);
  }

 private:
  void begin(const char* table, const std::string& name) {
    table_ = table;
    name_ = name;
  }
  void add(const std::string& key, const std::string& value) {
    found_.push_back({table_, name_, key, value});
  }
  void add(const Lines& lines, const std::string& before = "") {
    for (const auto& [key, value] : lines) add(before + key, value);
  }
  static std::string filter_text(const Filter& filter) {
    return filter.matches_everything() ? "true" : filter.text();
  }
  template <typename Records>
  static std::string list(const std::vector<uint32_t>& numbers, const Records& records) {
    std::vector<std::string> names;
    for (const uint32_t number : numbers) names.push_back(records[number].name);
    return joined(names);
  }

  void pool() {
    begin("pool", "");
    add("name", policy_.name);
    if (!policy_.store.empty()) add("store", policy_.store);
    add("timezone", policy_.timezone);
    add("fair_share_half_life", seconds_text(policy_.fair_share_half_life_s));
    add("longest_wait", seconds_text(policy_.longest_wait_s));
    add("pause_limit", seconds_text(policy_.pause_limit_s));
    add("when_no_scheduler",
        policy_.when_no_scheduler == WithoutScheduler::kLocal ? "local" : "refuse");
    add("servers_are_peers", policy_.servers_are_peers ? "true" : "false");
  }
  void assignments() {
    for (size_t i = 0; i < policy_.assignments.size(); ++i) {
      const Assignment& one = policy_.assignments[i];
      begin("assignment", std::to_string(i + 1));
      add("match", filter_text(one.match));
      add("account", policy_.accounts[one.account].name);
      add("user_classes", list(one.user_classes, policy_.user_classes));
    }
  }
  void reservations() {
    for (const Reservation& one : policy_.reservations) {
      begin("reservation", one.name);
      for (size_t i = 0; i < one.gpus.size(); ++i) {
        if (one.gpus[i] != 0) add("gpus." + policy_.gpu_classes[i].name, gpus_text(one.gpus[i]));
      }
      add("when", one.when.text());
      if (!one.accounts.empty()) add("accounts", list(one.accounts, policy_.accounts));
      if (!one.users.empty()) add("users", joined(one.users));
    }
  }
  void schedules() {
    for (size_t i = 0; i < policy_.schedules.size(); ++i) {
      const Schedule& one = policy_.schedules[i];
      begin("schedule", one.name.empty() ? std::to_string(i + 1) : one.name);
      add("when", one.when.text());
      if (one.rules == nullptr) continue;
      for (const auto& [account, rules] : one.rules->accounts)
        add(lines_of(rules, policy_), "account." + policy_.accounts[account].name + ".");
      for (const auto& [user_class, rules] : one.rules->user_classes)
        add(lines_of(rules, policy_), "user_class." + policy_.user_classes[user_class].name + ".");
    }
  }
  void moves() {
    for (size_t i = 0; i < policy_.moves.size(); ++i) {
      const Move& one = policy_.moves[i];
      begin("move", std::to_string(i + 1));
      add("from", one.from);
      add("to", one.to);
      for (const auto& [gpu_class, amount] : one.gpus) add("gpus." + gpu_class, gpus_text(amount));
      add("at", format_moment(one.at_s, policy_.zone));
    }
  }

  const PoolPolicy& policy_;
  std::vector<PolicySetting> found_;
  std::string table_, name_;
};

}  // namespace

std::vector<PolicySetting> settings_of(const PoolPolicy& policy) { return Settings(policy).read(); }

std::vector<PolicyChange> difference(const PoolPolicy& before, const PoolPolicy& after) {
  using Place = std::tuple<std::string, std::string, std::string>;
  const std::vector<PolicySetting> old_ones = settings_of(before), new_ones = settings_of(after);
  std::map<Place, std::string> values;
  for (const PolicySetting& one : old_ones) values[{one.table, one.name, one.key}] = one.value;
  std::vector<PolicyChange> changes;
  for (const PolicySetting& one : new_ones) {
    const auto found = values.find({one.table, one.name, one.key});
    if (found == values.end()) {
      changes.push_back({one.table, one.name, one.key, "", one.value});
      continue;
    }
    if (found->second != one.value)
      changes.push_back({one.table, one.name, one.key, found->second, one.value});
    values.erase(found);
  }
  for (const PolicySetting& one : old_ones) {
    if (values.count({one.table, one.name, one.key}) != 0)
      changes.push_back({one.table, one.name, one.key, one.value, ""});
  }
  return changes;
}

std::string text_of(const PolicyChange& change) {
  const std::string where =
      change.table + (change.name.empty() ? "" : " " + change.name) + ": " + change.key;
  if (change.before.empty()) return where + " is new: " + change.after;
  if (change.after.empty()) return where + " is gone (was " + change.before + ")";
  return where + " " + change.before + " -> " + change.after;
}

}  // namespace tendril::pool
