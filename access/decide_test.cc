// SPDX-License-Identifier: Apache-2.0
// Who may do what: the table of roles, limits, and random policies against a plain model.
#include "access/decide.h"

#include <gtest/gtest.h>

#include <random>

namespace tendril::access {
namespace {

constexpr uint64_t kSecondNs = 1'000'000'000u;
constexpr uint64_t kGpu = 1'000'000;

Principal someone(Role role, const char* id = "me") {
  Principal who;
  who.role = role;
  who.id = who.name = id;
  return who;
}

TEST(Decide, OwnersAndOperatorsEndAndChangeLeases) {
  for (const Action action : {Action::kRelease, Action::kChange, Action::kAttach}) {
    EXPECT_TRUE(decide(someone(Role::kUser), action, "me").allowed);
    EXPECT_FALSE(decide(someone(Role::kUser), action, "you").allowed);
    EXPECT_FALSE(decide(someone(Role::kUser), action, "").allowed);
    EXPECT_TRUE(decide(someone(Role::kOperator), action, "you").allowed);
    EXPECT_TRUE(decide(someone(Role::kAdmin), action, "you").allowed);
    EXPECT_FALSE(decide(someone(Role::kMetrics), action, "me").allowed);
    EXPECT_FALSE(decide(someone(Role::kServer), action, "me").allowed);
    EXPECT_FALSE(decide(someone(Role::kNone), action, "me").allowed);
  }
  EXPECT_EQ(decide(someone(Role::kUser), Action::kRelease, "me").rule, "owner");
  EXPECT_EQ(decide(someone(Role::kUser), Action::kRelease, "you").rule, "owner-or-operator");
}

TEST(Decide, RolesHaveTheirActions) {
  struct Row {
    Role role;
    bool lists, leases, invites;
  };
  for (const Row& row :
       {Row{Role::kNone, false, false, false}, Row{Role::kUser, true, true, false},
        Row{Role::kOperator, true, true, false}, Row{Role::kAdmin, true, true, true},
        Row{Role::kServer, true, false, false}, Row{Role::kMetrics, true, false, false}}) {
    EXPECT_EQ(decide(someone(row.role), Action::kList).allowed, row.lists) << role_name(row.role);
    EXPECT_EQ(decide(someone(row.role), Action::kLease).allowed, row.leases) << role_name(row.role);
    for (const Action action : {Action::kInvite, Action::kRevoke, Action::kIssued, Action::kReload})
      EXPECT_EQ(decide(someone(row.role), action).allowed, row.invites) << role_name(row.role);
  }
}

TEST(Decide, APoolKnowsRolesWhereUsersHaveNames) {
  struct Row {
    Role role;
    bool reports, operates, rules;
  };
  for (const Row& row :
       {Row{Role::kNone, false, false, false}, Row{Role::kUser, false, false, false},
        Row{Role::kOperator, false, true, false}, Row{Role::kAdmin, true, true, true},
        Row{Role::kServer, true, false, false}, Row{Role::kMetrics, false, false, false}}) {
    for (const Proof proof : {Proof::kCertificate, Proof::kUnixUser}) {
      Principal who = someone(row.role);
      who.proof = proof;
      EXPECT_EQ(decide(who, Action::kReport).allowed, row.reports) << role_name(row.role);
      EXPECT_EQ(decide(who, Action::kOperatePool).allowed, row.operates) << role_name(row.role);
      EXPECT_EQ(decide(who, Action::kRulePool).allowed, row.rules) << role_name(row.role);
    }
  }
  // One secret for all gives the right to all of it.
  Principal bearer = someone(Role::kUser);
  bearer.proof = Proof::kToken;
  for (const Action action : {Action::kReport, Action::kOperatePool, Action::kRulePool})
    EXPECT_TRUE(decide(bearer, action).allowed);
  EXPECT_FALSE(decide(bearer, Action::kInvite).allowed);
}

TEST(Decide, EveryRefusalNamesItsRule) {
  for (int role = 0; role <= static_cast<int>(Role::kMetrics); ++role) {
    for (int action = 0; action <= static_cast<int>(Action::kRulePool); ++action) {
      const Decision decision =
          decide(someone(static_cast<Role>(role)), static_cast<Action>(action), "you");
      EXPECT_FALSE(decision.rule.empty());
      EXPECT_EQ(decision.status().ok(), decision.allowed);
      if (decision.allowed) continue;
      EXPECT_NE(decision.text.find("(rule: " + decision.rule + ")"), std::string::npos)
          << decision.text;
    }
  }
}

TEST(Decide, UsersSeeNamesOfTheirOwnLeasesOnly) {
  EXPECT_TRUE(may_see(someone(Role::kUser), "me"));
  EXPECT_FALSE(may_see(someone(Role::kUser), "you"));
  EXPECT_FALSE(may_see(someone(Role::kUser, ""), ""));
  EXPECT_TRUE(may_see(someone(Role::kMetrics), "you"));
  EXPECT_FALSE(may_see(someone(Role::kNone), "you"));
}

TEST(Limits, HoldForLeases) {
  Limits limits;
  EXPECT_TRUE(check_lease(limits, {100 * kGpu, 100, 100}, 8 * kGpu, 100).allowed);
  limits.share_millionths = 2 * kGpu;
  limits.leases = 3;
  limits.priority = 5;
  EXPECT_TRUE(check_lease(limits, {kGpu, 2, 0}, kGpu, 5).allowed);
  EXPECT_EQ(check_lease(limits, {kGpu, 2, 0}, kGpu + 1, 5).rule, "limit-shares");
  EXPECT_EQ(check_lease(limits, {kGpu, 3, 0}, 1, 5).rule, "limit-leases");
  EXPECT_EQ(check_lease(limits, {kGpu, 2, 0}, 1, 6).rule, "limit-priority");
  EXPECT_TRUE(check_lease(limits, {kGpu, 2, 0}, 1, -100).allowed);
  EXPECT_EQ(check_lease(limits, {UINT64_MAX, 0, 0}, UINT64_MAX, 0).rule, "limit-shares");
}

TEST(Limits, HoldForSessionsAndChanges) {
  Limits limits;
  limits.sessions = 2;
  limits.capped = true;
  limits.priority = 0;
  limits.share_millionths = kGpu;
  EXPECT_TRUE(check_session(limits, {0, 1, 1}).allowed);
  EXPECT_EQ(check_session(limits, {0, 1, 2}).rule, "limit-sessions");
  wire::ChangeRequest request;
  EXPECT_TRUE(check_change(limits, {}, request, 0).allowed);
  request.sets_policy = true;
  request.terms.policy = wire::SharePolicy::kLend;
  EXPECT_EQ(check_change(limits, {}, request, 0).rule, "limit-cap");
  request.terms.policy = wire::SharePolicy::kCap;
  request.sets_priority = true;
  request.terms.priority = 1;
  EXPECT_EQ(check_change(limits, {}, request, 0).rule, "limit-priority");
  request.terms.priority = 0;
  EXPECT_EQ(check_change(limits, {kGpu / 2, 0, 0}, request, kGpu).rule, "limit-shares");
  EXPECT_TRUE(check_change(limits, {kGpu / 2, 0, 0}, request, kGpu / 2).allowed);
  EXPECT_EQ(granted_terms(limits, {}).policy, wire::SharePolicy::kCap);
}

TEST(Life, EndsByTheRuleThatComesFirst) {
  Limits limits;
  EXPECT_FALSE(check_life(limits, {}, UINT64_MAX).due);
  limits.longest_s = 100;
  limits.unattached_s = 10;
  limits.idle_s = 20;
  LeaseLife life;
  life.began_ns = 5 * kSecondNs;
  EXPECT_FALSE(check_life(limits, life, 14 * kSecondNs).due);
  EXPECT_EQ(check_life(limits, life, 15 * kSecondNs).rule, "unattached");
  life.sessions = 1;
  life.attached_ns = 15 * kSecondNs;
  EXPECT_FALSE(check_life(limits, life, 24 * kSecondNs).due);
  EXPECT_EQ(check_life(limits, life, 25 * kSecondNs).rule, "idle") << "it never worked";
  life.worked_ns = 24 * kSecondNs;
  EXPECT_FALSE(check_life(limits, life, 43 * kSecondNs).due);
  EXPECT_EQ(check_life(limits, life, 44 * kSecondNs).rule, "idle");
  life.worked_ns = 104 * kSecondNs;
  EXPECT_EQ(check_life(limits, life, 105 * kSecondNs).rule, "longest-lease");
  EXPECT_FALSE(check_life(limits, life, 0).due) << "a clock behind the lease";
}

// A random policy of three sections: the narrowest that says something counts.
TEST(Policies, AtRandomAgreeWithAPlainModel) {
  for (uint64_t seed = 1; seed <= 2000; ++seed) {
    std::mt19937_64 random(seed);
    Policy policy;
    const auto rules = [&] {
      LimitRules made;
      if (random() % 2 == 0) made.leases = {true, std::nullopt};
      if (random() % 2 == 0) made.leases = {true, static_cast<uint32_t>(random() % 4)};
      if (random() % 2 == 0) made.priority = {true, static_cast<int32_t>(random() % 5) - 2};
      return made;
    };
    policy.everybody = rules();
    if (random() % 2 == 0) policy.roles[Role::kUser] = rules();
    if (random() % 2 == 0) policy.users["me"] = rules();
    Principal who = someone(random() % 3 == 0 ? Role::kOperator : Role::kUser);
    if (random() % 2 == 0) who.proof = Proof::kCertificate;
    std::optional<uint32_t> leases;
    std::optional<int32_t> priority;
    if (who.proof == Proof::kCertificate && who.role == Role::kUser) priority = 0;
    std::vector<const LimitRules*> sections = {&policy.everybody};
    if (policy.roles.count(who.role) != 0) sections.push_back(&policy.roles[who.role]);
    if (policy.users.count(who.name) != 0) sections.push_back(&policy.users[who.name]);
    for (const LimitRules* section : sections) {
      if (section->leases.given) leases = section->leases.value;
      if (section->priority.given) priority = section->priority.value;
    }
    const Usage has = {random() % kGpu, static_cast<uint32_t>(random() % 5), 0};
    const auto asked = static_cast<int32_t>(random() % 7) - 3;
    const bool expected = (!leases || has.leases < *leases) && (!priority || asked <= *priority);
    const Decision decision = check_lease(policy.limits_of(who), has, random() % kGpu, asked);
    ASSERT_EQ(decision.allowed, expected) << "seed " << seed << ": " << decision.text;
  }
}

}  // namespace
}  // namespace tendril::access
