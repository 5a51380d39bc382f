// SPDX-License-Identifier: Apache-2.0
// When a server of a pool lends by itself, and what it says otherwise.
#include "daemon/pool/pool_standing.h"

#include <gtest/gtest.h>

namespace tendril::daemon {
namespace {

constexpr uint64_t kSecond = 1'000'000'000;

wire::PoolOrders orders(const std::string& policy = "", uint64_t revision = 0) {
  wire::PoolOrders answer;
  answer.pool = "lab";
  answer.schedules = true;
  answer.policy = policy;
  answer.policy_revision = revision;
  return answer;
}

TEST(PoolStanding, WhileASchedulerSpeaksThePoolDecides) {
  PoolStanding standing({"a:7433", "b"}, 100 * kSecond);
  const base::Status early = standing.may_lease(101 * kSecond);
  EXPECT_NE(early.message().find("just started"), std::string::npos) << early.message();
  standing.heard("a:7433", orders(), 102 * kSecond);
  const base::Status refused = standing.may_lease(111 * kSecond);
  EXPECT_EQ(refused.code(), base::Code::kRefused);
  EXPECT_NE(refused.message().find("the pool 'lab'"), std::string::npos) << refused.message();
  EXPECT_NE(refused.message().find("TENDRIL_SERVERS=a:7433,b"), std::string::npos);
  EXPECT_TRUE(standing.may_lease(112 * kSecond).ok());
  standing.heard("b", orders(), 113 * kSecond);
  EXPECT_FALSE(standing.may_lease(114 * kSecond).ok());
}

TEST(PoolStanding, AServerThatNeverHeardItsPoolLendsAfterAWhile) {
  PoolStanding standing({"a"}, 100 * kSecond);
  EXPECT_FALSE(standing.may_lease(109 * kSecond).ok());
  EXPECT_TRUE(standing.may_lease(110 * kSecond).ok());
}

TEST(PoolStanding, ThePolicyMaySayThatNothingIsLentWithoutAScheduler) {
  PoolStanding standing({"a"}, 0);
  standing.heard("a", orders("[pool]\nname = \"lab\"\nwhen_no_scheduler = \"refuse\"\n", 3),
                 kSecond);
  const base::Status refused = standing.may_lease(60 * kSecond);
  EXPECT_NE(refused.message().find("when_no_scheduler"), std::string::npos) << refused.message();
  standing.heard("a", orders("", 3), 61 * kSecond);
  EXPECT_FALSE(standing.may_lease(120 * kSecond).ok());
  standing.heard("a", orders("this is no policy", 4), 121 * kSecond);
  EXPECT_FALSE(standing.policy_error().ok());
  EXPECT_FALSE(standing.may_lease(180 * kSecond).ok());
  standing.heard("a", orders("[pool]\nname = \"lab\"\n", 5), 181 * kSecond);
  EXPECT_TRUE(standing.policy_error().ok());
  EXPECT_TRUE(standing.may_lease(240 * kSecond).ok());
}

TEST(PoolStanding, ADrainedServerLendsNothing) {
  PoolStanding standing({"a"}, 0);
  standing.set_drained(true);
  EXPECT_NE(standing.may_lease(60 * kSecond).message().find("drained"), std::string::npos);
  standing.set_drained(false);
  EXPECT_TRUE(standing.may_lease(60 * kSecond).ok());
}

}  // namespace
}  // namespace tendril::daemon
