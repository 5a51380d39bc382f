// SPDX-License-Identifier: Apache-2.0
// See policy.h.
#include "pool/policy/policy.h"

#include <algorithm>

#include "pool/policy/policy_rules.h"

namespace tendril::pool {
namespace {

template <typename Record>
std::optional<uint32_t> position(const std::vector<Record>& records, const std::string& name) {
  for (size_t i = 0; i < records.size(); ++i) {
    if (records[i].name == name) return static_cast<uint32_t>(i);
  }
  return std::nullopt;
}

// A schedule may give more to accounts than the one above them has. Then that one has their sum.
void raise_parents(PoolPolicy* policy) {
  for (size_t c = 0; c < policy->gpu_classes.size(); ++c) {
    std::vector<uint64_t> below(policy->accounts.size(), 0);
    for (size_t i = policy->accounts.size(); i-- > 0;) {
      Account& account = policy->accounts[i];
      account.quota[c] = std::max(account.quota[c], below[i]);
      if (account.parent != kNoAccount) below[account.parent] += account.quota[c];
    }
  }
}

}  // namespace

const char* action_name(Action action) {
  switch (action) {
    case Action::kWarn:
      return "warn";
    case Action::kShrink:
      return "shrink";
    case Action::kPause:
      return "pause";
    case Action::kRequeue:
      return "requeue";
    case Action::kEnd:
      return "end";
    case Action::kPark:
      return "park";
  }
  return "unknown";
}

std::optional<uint32_t> PoolPolicy::gpu_class(const std::string& named) const {
  return position(gpu_classes, named);
}

std::optional<uint32_t> PoolPolicy::account(const std::string& named) const {
  return position(accounts, named);
}

std::optional<uint32_t> PoolPolicy::user_class(const std::string& named) const {
  return position(user_classes, named);
}

PoolPolicy default_policy() {
  PoolPolicy policy;
  GpuClass gpus;
  gpus.name = "any";
  policy.gpu_classes.push_back(gpus);
  Account account;
  account.name = "everybody";
  account.quota = {0};
  account.quota_is_sum = {false};
  account.limit = {kUnlimited};
  account.lending_limit = {kUnlimited};
  policy.accounts.push_back(account);
  UserClass use;
  use.name = "normal";
  use.gpu_classes = {0};
  policy.user_classes.push_back(use);
  policy.assignments.push_back({Filter(), 0, {0}});
  return policy;
}

PoolPolicy effective(const PoolPolicy& policy, int64_t wall_s) {
  PoolPolicy now = policy;
  now.moves.clear();
  now.schedules.clear();
  for (const Move& move : policy.moves) {
    // One that the file's quotas do not allow was refused when it was read.
    if (move.at_s <= wall_s) static_cast<void>(make_move(move, &now).ok());
  }
  for (const Schedule& schedule : policy.schedules) {
    if (schedule.rules == nullptr || !schedule.when.holds(wall_s, policy.zone)) continue;
    for (const auto& [account, rules] : schedule.rules->accounts)
      apply(rules, &now.accounts[account]);
    for (const auto& [user_class, rules] : schedule.rules->user_classes)
      apply(rules, &now.user_classes[user_class]);
  }
  sum_quotas(&now);
  raise_parents(&now);
  for (Reservation& reservation : now.reservations) {
    const Interval window =
        reservation.when.current_or_next(wall_s, policy.zone).value_or(Interval());
    reservation.from_s = window.from_s;
    reservation.to_s = window.to_s;
  }
  return now;
}

int64_t next_change(const PoolPolicy& policy, int64_t wall_s) {
  int64_t next = kNever;
  for (const Move& move : policy.moves) {
    if (move.at_s > wall_s) next = std::min(next, move.at_s);
  }
  for (const Schedule& schedule : policy.schedules)
    next = std::min(next, schedule.when.next_change(wall_s, policy.zone));
  for (const Reservation& reservation : policy.reservations)
    next = std::min(next, reservation.when.next_change(wall_s, policy.zone));
  return next;
}

}  // namespace tendril::pool
