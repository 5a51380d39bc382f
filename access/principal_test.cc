// SPDX-License-Identifier: Apache-2.0
// From evidence to a principal, in each mode, and names of identities.
#include "access/principal.h"

#include <gtest/gtest.h>

#include "access/policy.h"

namespace tendril::access {
namespace {

Evidence unix_peer(uint32_t user, const char* name, bool administrators = false) {
  Evidence evidence;
  evidence.from = "unix pid 1";
  evidence.local = true;
  evidence.user = user;
  evidence.user_name = name;
  evidence.administrators = administrators;
  evidence.daemon_user = 990;
  return evidence;
}

TEST(Identity, IsReadAndWrittenTheSame) {
  const auto name = parse_identity("spiffe://lab/operator/alice@example.org");
  ASSERT_TRUE(name.ok());
  EXPECT_EQ(name.value().pool, "lab");
  EXPECT_EQ(name.value().name, "alice@example.org");
  EXPECT_EQ(name.value().role, Role::kOperator);
}

TEST(Identity, RefusesOtherForms) {
  for (const char* text :
       {"", "alice", "spiffe://", "spiffe://lab", "spiffe://lab/user", "spiffe://lab/user/",
        "spiffe:///user/alice", "spiffe://lab/root/alice", "spiffe://lab/nobody/alice",
        "spiffe://lab/user/a/b", "spiffe://lab/user/a b", "spiffe://lab/user/a\nb",
        "https://lab/user/alice", "spiffe://lab/User/alice", "spiffe://lab/user/al\xc3\xa9"}) {
    EXPECT_FALSE(parse_identity(text).ok()) << text;
  }
  EXPECT_FALSE(parse_identity("spiffe://lab/user/" + std::string(65, 'a')).ok());
}

TEST(Recognize, OpenModeKnowsUsersOfThisHostAndCallsTheOthersLocal) {
  const Policy policy;
  Evidence loopback;
  loopback.local = true;
  EXPECT_EQ(recognize(loopback, Mode::kOpen, policy).id, "local");
  EXPECT_EQ(recognize(loopback, Mode::kOpen, policy).role, Role::kUser);
  const Principal alice = recognize(unix_peer(1000, "alice"), Mode::kOpen, policy);
  EXPECT_EQ(alice.name, "alice");
  EXPECT_EQ(alice.id, "uid 1000");
  EXPECT_EQ(alice.proof, Proof::kUnixUser);
  Evidence far;
  EXPECT_EQ(recognize(far, Mode::kOpen, policy).role, Role::kNone);
}

TEST(Recognize, OnlyTheAdministratorsSocketMakesRootOneOfThem) {
  const Policy policy;
  for (const Mode mode : {Mode::kOpen, Mode::kSecret, Mode::kIdentity}) {
    EXPECT_EQ(recognize(unix_peer(0, "root", true), mode, policy).role, Role::kAdmin);
    EXPECT_EQ(recognize(unix_peer(990, "tendril", true), mode, policy).role, Role::kAdmin);
    EXPECT_NE(recognize(unix_peer(0, "root"), mode, policy).role, Role::kAdmin);
    EXPECT_NE(recognize(unix_peer(1000, "alice", true), mode, policy).role, Role::kAdmin);
  }
}

TEST(Recognize, ATokenIsABearerAndNoName) {
  const Policy policy;
  Evidence evidence;
  evidence.knows_token = true;
  evidence.token_generation = 2;
  const Principal bearer = recognize(evidence, Mode::kSecret, policy);
  EXPECT_EQ(bearer.name, "bearer");
  EXPECT_EQ(bearer.id, "token 2");
  EXPECT_EQ(bearer.role, Role::kUser);
  EXPECT_EQ(recognize(evidence, Mode::kIdentity, policy).role, Role::kNone);
  Evidence user = unix_peer(1000, "alice");
  EXPECT_EQ(recognize(user, Mode::kSecret, policy).role, Role::kNone);
  user.knows_token = true;
  EXPECT_EQ(recognize(user, Mode::kSecret, policy).name, "bearer");
}

TEST(Recognize, ACertificateNamesItsRole) {
  const Policy policy;
  Evidence evidence;
  evidence.certificate = "spiffe://lab/metrics/prometheus";
  const Principal who = recognize(evidence, Mode::kIdentity, policy);
  EXPECT_EQ(who.role, Role::kMetrics);
  EXPECT_EQ(who.id, evidence.certificate);
  evidence.certificate = "spiffe://lab/king/prometheus";
  EXPECT_EQ(recognize(evidence, Mode::kIdentity, policy).role, Role::kNone);
}

TEST(Recognize, APolicyNamesUsersOfThisHost) {
  Policy policy;
  policy.unix_admins = {"alice"};
  policy.unix_operators = {"1001"};
  policy.unix_users = UnixUsers::kListed;
  policy.unix_listed = {"carol"};
  EXPECT_EQ(recognize(unix_peer(1000, "alice"), Mode::kIdentity, policy).role, Role::kAdmin);
  EXPECT_EQ(recognize(unix_peer(1001, ""), Mode::kIdentity, policy).role, Role::kOperator);
  EXPECT_EQ(recognize(unix_peer(1001, ""), Mode::kIdentity, policy).name, "uid 1001");
  EXPECT_EQ(recognize(unix_peer(1002, "carol"), Mode::kIdentity, policy).role, Role::kUser);
  EXPECT_EQ(recognize(unix_peer(1003, "dave"), Mode::kOpen, policy).role, Role::kNone);
}

}  // namespace
}  // namespace tendril::access
