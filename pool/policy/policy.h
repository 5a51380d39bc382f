// SPDX-License-Identifier: Apache-2.0
// What an administrator of a pool decides: classes of GPUs, accounts, classes of use, who is in
// which, reservations and times of day. Plain data; tables name each other by position. The file is
// read by policy_file.h. Amounts are millionths of GPUs, times are seconds.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "pool/filter/filter.h"
#include "pool/policy/calendar.h"

namespace tendril::pool {

inline constexpr uint64_t kUnlimited = std::numeric_limits<uint64_t>::max();
inline constexpr uint32_t kNoAccount = std::numeric_limits<uint32_t>::max();

// One amount for each GPU class, by position.
using Amounts = std::vector<uint64_t>;

// A GPU is in the first class that it matches, or in none.
struct GpuClass {
  std::string name;
  Filter match;
  double usage_weight = 1;  // a second of it counts this much
};

struct PerUser {
  uint64_t gpus = kUnlimited;  // millionths, over all GPU classes
  uint64_t leases = kUnlimited;
  uint64_t pending = kUnlimited;  // requests that wait
};

struct Account {
  std::string name;
  uint32_t parent = kNoAccount;  // always earlier in the list than its children
  Amounts quota;  // its own, though others may use what it lends. With those below it
  std::vector<bool> quota_is_sum;  // by class: the file leaves it to the accounts below
  Amounts limit;                   // never more, with all accounts below it
  Amounts lending_limit;           // it lends at most this much of its quota
  double over_quota_weight = 1;
  PerUser max_per_user;
};

// What a lease may have to bear, in the order of a list.
enum class Action : uint8_t { kWarn, kShrink, kPause, kRequeue, kEnd, kPark };
const char* action_name(Action action);  // "warn", ...

enum class OverQuota : uint8_t {
  kAllowed,  // inside the quota while there is room, else on what others lend
  kNever,    // waits for its quota
  kOnly,     // never counts as inside the quota, so it can always be reclaimed
};

struct UserClass {
  std::string name;
  int32_t priority = 0;               // the larger goes first
  int32_t max_priority = 0;           // the most that a request may add to it
  std::vector<uint32_t> gpu_classes;  // that it may use, in this order
  PerUser max_per_user;
  uint64_t max_wall_s = kUnlimited;
  uint64_t default_wall_s = kUnlimited;  // for requests that name no longest time
  uint64_t warn_time_s = 300;            // a warning this long before max_wall
  std::vector<Action> wall_action = {Action::kEnd};
  uint64_t idle_timeout_s = kUnlimited;         // since the last work or copy of its GPUs
  uint64_t idle_unused_timeout_s = kUnlimited;  // nothing ever attached
  uint64_t idle_grace_s = 300;
  std::vector<Action> idle_action = {Action::kWarn, Action::kEnd};
  std::vector<uint32_t> preempts;  // user classes whose leases make room for this one's
  OverQuota over_quota = OverQuota::kAllowed;
  bool reclaimable = true;  // false: what it holds over quota is never taken back
  std::vector<Action> preempt_mode = {Action::kWarn, Action::kEnd};
  uint64_t grace_time_s = 120;
  uint64_t preempt_exempt_time_s = 600;  // not sooner than this after its start
  double usage_factor = 1;
  bool into_maintenance = false;  // without a longest time it may start before maintenance
};

// Who is where. The first that matches counts.
struct Assignment {
  Filter match;
  uint32_t account = 0;
  std::vector<uint32_t> user_classes;  // the first one is for who names none
};

struct Reservation {
  std::string name;
  Amounts gpus;
  When when;
  std::vector<uint32_t> accounts;  // and the accounts below them
  std::vector<std::string> users;  // who may use it, too
  // Set by effective(): the window that is, or the next one. Both 0: there is none any more.
  int64_t from_s = 0, to_s = 0;
};

// A part of PerUser, Account, UserClass that a schedule sets while it holds. policy_rules.h
struct ScheduleRules;

struct Schedule {
  std::string name;  // may be empty
  When when;
  std::shared_ptr<const ScheduleRules> rules;
};

// A part of one account's quota that goes to another account at some time.
struct Move {
  std::string from, to;                  // accounts
  std::map<std::string, uint64_t> gpus;  // by the name of a GPU class
  int64_t at_s = 0;                      // wall seconds
};

enum class WithoutScheduler : uint8_t { kLocal, kRefuse };

struct PoolPolicy {
  std::string name = "pool";
  std::string store;  // an address as for `--store`; empty: not said
  std::string timezone = "UTC";
  Zone zone;  // its rules
  uint64_t fair_share_half_life_s = 7 * 86'400;
  uint64_t longest_wait_s = 86'400;  // who waits longer goes first, the oldest before others
  uint64_t pause_limit_s = 300;      // a paused lease goes to the next step after this
  WithoutScheduler when_no_scheduler = WithoutScheduler::kLocal;
  bool servers_are_peers = true;  // workers of two servers may have connections

  // Users by group, beside the groups in which they have proven to be.
  std::map<std::string, std::vector<std::string>> groups;
  std::vector<GpuClass> gpu_classes;
  std::vector<Account> accounts;
  std::vector<UserClass> user_classes;
  std::vector<Assignment> assignments;
  std::vector<Reservation> reservations;
  std::vector<Schedule> schedules;
  std::vector<Move> moves;  // by time

  // Positions by name.
  std::optional<uint32_t> gpu_class(const std::string& name) const;
  std::optional<uint32_t> account(const std::string& name) const;
  std::optional<uint32_t> user_class(const std::string& name) const;
};

// Without a policy file: one class of GPUs with all of them, one account and one class of use for
// everybody, no limits.
PoolPolicy default_policy();

// The policy as it is at that time: moves that are due are made, schedules that hold are applied (a
// later one of two wins), reservations have their windows. The result has no moves and schedules.
PoolPolicy effective(const PoolPolicy& policy, int64_t wall_s);
// The first moment after `wall_s` at which effective() may give something else; kNever.
int64_t next_change(const PoolPolicy& policy, int64_t wall_s);

}  // namespace tendril::pool
