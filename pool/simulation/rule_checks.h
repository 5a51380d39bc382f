// SPDX-License-Identifier: Apache-2.0
// What the policy promises, compared with the servers' books: limits, quotas and what is lent,
// reservations, maintenance, warnings and how long they last, idle time, and that nobody starves.
// Where the scheduler cannot have known better, because servers or the policy changed a moment ago,
// a check waits. checks.h calls it; README.md lists the promises.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "pool/policy/policy.h"
#include "pool/simulation/fake_client.h"
#include "pool/simulation/fake_server.h"
#include "pool/simulation/starvation_checks.h"

namespace tendril::pool::simulation {

class World;

class RuleChecks {
 public:
  explicit RuleChecks(World* world) : world_(world), starvation_(world) {}

  void sweep();
  void granted(const FakeClient& client, const wire::LeaseReply& reply);
  void told(const FakeServer& server, const FakeLease& lease, const wire::Order& order);
  void ended(const FakeServer& server, const FakeLease& lease, const wire::Order& order);

  // Something changed that the scheduler hears of a little later.
  void servers_changed();
  void attempt_failed();  // what it may still hold counts for a while
  void clock_stepped() { starvation_.clock_stepped(); }
  void forgotten(const std::string& server);
  bool was_forgotten(const std::string& server, int64_t since_ns) const;
  void set_maintenance(const std::string& server, int64_t from_s, int64_t to_s);

  // True if it is an account or a class of the policy that holds now.
  bool policy_has(const std::string& name) const;

  struct Counts {  // how often a check looked at something
    uint64_t limits = 0, lending = 0, reserved = 0, reservations_free = 0, reclaims = 0;
    uint64_t maintenance = 0, warnings = 0, graces = 0, idle = 0, overdue = 0, walls = 0;
  };
  const Counts& counts() const { return counts_; }
  const StarvationChecks::Counts& starvation() const { return starvation_.counts(); }

 private:
  // The policy that held from some time on, as it was then.
  struct Era {
    PoolPolicy policy;
    int64_t from_ns = 0;
  };
  struct Held {
    uint64_t gpus = 0;
    uint64_t leases = 0;
    int64_t oldest_ns = INT64_MAX;  // grant of the oldest lease
    void add(uint64_t more_gpus, uint64_t more_leases, int64_t granted_ns);
  };
  struct Sums {
    std::map<std::pair<uint32_t, uint32_t>, Held> accounts;        // account, class of GPUs
    std::map<std::pair<uint32_t, uint32_t>, uint64_t> counted;     // less what is never inside
    std::map<std::pair<uint32_t, std::string>, Held> class_users;  // class of use, user
    std::map<std::pair<uint32_t, std::string>, Held> account_users;
  };

  void look_at_policy();
  const PoolPolicy& policy() const { return eras_.back().policy; }
  bool is_calm(int64_t for_ns) const;
  uint32_t class_of_gpu(size_t server, uint32_t gpu) const;
  uint64_t amount_of(size_t server, const wire::SliceGrant& slice) const;
  bool counts(const FakeServer& server, const FakeLease& lease) const;
  Sums sums();
  void note_over_quota();
  template <typename Of>
  uint64_t most_since(int64_t since_ns, Of of) const;
  void limits(const Sums& sums);
  void lending(const FakeLease& mine, uint32_t gpu_class);
  bool lends_too_much(const FakeLease& mine, uint32_t gpu_class, int64_t before_ns,
                      std::string* what) const;
  void reservations(bool all);
  void one_reservation(const Reservation& of, uint32_t gpu_class, int64_t wall_s);
  void maintenance(const FakeClient& client, const wire::LeaseReply& reply);
  void overdue();
  void longest_times();
  void idle(const FakeLease& lease, const std::string& what, int64_t at_least_ns);
  void was_over_quota(std::pair<uint32_t, uint32_t> key, const std::string& what);
  uint64_t least_s(const FakeServer& server, const FakeLease& lease, const std::string& text,
                   int64_t since_ns) const;
  void fail(const std::string& text);

  World* const world_;
  StarvationChecks starvation_;
  Counts counts_;
  std::string policy_text_;
  uint64_t term_ = 0;
  int64_t ahead_s_ = 0, until_s_ = 0;
  std::vector<Era> eras_;  // the newest last
  int64_t servers_changed_ns_ = 0, attempt_failed_ns_ = -kHour;
  std::map<std::string, int64_t> forgotten_ns_;
  struct Window {
    int64_t from_s = 0, to_s = 0, known_ns = 0;
  };
  std::map<std::string, Window> maintenance_;
  mutable std::map<std::pair<size_t, uint32_t>, uint32_t>
      gpu_classes_;  // equal in all policies of a world
  std::map<std::pair<uint32_t, uint32_t>, int64_t> over_quota_ns_;  // when it last was
  uint64_t oldest_ = 0;
  int64_t oldest_since_ns_ = 0;
};

}  // namespace tendril::pool::simulation
