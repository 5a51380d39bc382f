// SPDX-License-Identifier: Apache-2.0
// Policies as people write them, right and wrong.
#include "access/policy_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

namespace tendril::access {
namespace {

constexpr char kPolicy[] = R"(
encrypt = "always"
trusted_networks = ["10.0.0.0/8", "fd00::/8"]
audit_required = true
certificate_grace = "15m"

[unix]
users = ["carol", 1002]
operators = [1001]
admins = ["alice"]

[limits]
shares = "1/2"
leases = 4
sessions = 16
priority = 0
cap = true
rdma = false
longest_lease = "12h"
unattached = "5m"
idle = "90s"

[role.operator]
priority = 50

[user.bob]
shares = 2.5
leases = "none"
cap = false
rdma = true
idle = "none"
)";

Principal named(const char* name, Role role) {
  Principal who;
  who.name = who.id = name;
  who.role = role;
  return who;
}

std::string error_of(const std::string& text) {
  const auto policy = parse_policy(text, "policy.toml");
  return policy.ok() ? "" : policy.status().message();
}

TEST(PolicyFile, SaysEverything) {
  const auto policy = parse_policy(kPolicy, "policy.toml");
  ASSERT_TRUE(policy.ok()) << policy.status().message();
  const Policy& p = policy.value();
  EXPECT_EQ(p.encrypt, Encrypt::kAlways);
  EXPECT_TRUE(p.encrypt_given);
  EXPECT_TRUE(p.audit_required);
  EXPECT_EQ(p.certificate_grace_s, 900u);
  EXPECT_TRUE(contains(p.trusted_networks, "10.1.1.1:5"));
  EXPECT_EQ(p.unix_users, UnixUsers::kListed);
  EXPECT_EQ(p.unix_listed, (std::vector<std::string>{"carol", "1002"}));
  EXPECT_EQ(p.unix_operators, std::vector<std::string>{"1001"});
  EXPECT_EQ(p.unix_admins, std::vector<std::string>{"alice"});
  const Limits eve = p.limits_of(named("eve", Role::kUser));
  EXPECT_EQ(eve.share_millionths, 500'000u);
  EXPECT_EQ(eve.leases, 4u);
  EXPECT_EQ(eve.sessions, 16u);
  EXPECT_EQ(eve.priority, 0);
  EXPECT_EQ(eve.capped, true);
  EXPECT_EQ(eve.longest_s, 12u * 3600);
  EXPECT_EQ(eve.unattached_s, 300u);
  EXPECT_EQ(eve.idle_s, 90u);
  const Limits bob = p.limits_of(named("bob", Role::kOperator));
  EXPECT_EQ(bob.share_millionths, 2'500'000u);
  EXPECT_FALSE(bob.leases.has_value());
  EXPECT_EQ(bob.priority, 50);
  EXPECT_EQ(bob.capped, false);
  EXPECT_EQ(eve.rdma, false);
  EXPECT_EQ(bob.rdma, true);
  EXPECT_FALSE(bob.idle_s.has_value());
  EXPECT_EQ(bob.unattached_s, 300u);
}

TEST(PolicyFile, AnEmptyOneLimitsNothing) {
  const auto policy = parse_policy("", "policy.toml");
  ASSERT_TRUE(policy.ok());
  const Limits limits = policy.value().limits_of(named("eve", Role::kUser));
  EXPECT_FALSE(limits.leases || limits.share_millionths || limits.priority || limits.idle_s);
  EXPECT_EQ(policy.value().encrypt, Encrypt::kUntrusted);
  EXPECT_EQ(policy.value().certificate_grace_s, 3600u);
}

TEST(PolicyFile, ErrorsNameLineColumnAndWhatWasExpected) {
  EXPECT_EQ(error_of("\n[limits]\nleases = -1\n"),
            "policy.toml, line 3, column 10: 'leases' must be a whole number from 0 to 1000000, or "
            "\"none\"");
  EXPECT_EQ(error_of("[limits]\n  priority = 101\n"),
            "policy.toml, line 2, column 14: 'priority' must be a whole number from -100 to 100, "
            "or \"none\"");
  EXPECT_NE(error_of("[limits]\nidle = \"5 minutes\"\n").find("line 2, column 8: 'idle' must be"),
            std::string::npos);
  EXPECT_NE(error_of("encrypt = \"sometimes\"").find("\"always\", \"untrusted\" or \"never\""),
            std::string::npos);
  EXPECT_NE(error_of("[role.king]\nleases = 1").find("'king' is no role; the roles are admin"),
            std::string::npos);
  EXPECT_NE(error_of("[limits]\nlease = 1").find("unknown limit 'lease'; the limits are shares"),
            std::string::npos);
  EXPECT_NE(error_of("limit = 1").find("unknown key 'limit'"), std::string::npos);
  EXPECT_NE(error_of("metrics = \"secret\"").find("\"tls\" or \"clear\""), std::string::npos);
  EXPECT_NE(error_of("trusted_networks = [\"10.0.0.1/8\"]").find("line 1, column 21: "),
            std::string::npos);
  EXPECT_EQ(error_of("[limits]\n# \xef\xb8\xbf\n"),
            "policy.toml, line 2, column 3: write plain ASCII text, in comments too");
  EXPECT_NE(error_of("[limits\n").find("policy.toml, line 1"), std::string::npos);
}

TEST(PolicyFile, RefusesOtherTypes) {
  for (const char* text : {"limits = 1",
                           "[limits]\nshares = 0",
                           "[limits]\nshares = nan",
                           "[limits]\nshares = inf",
                           "[limits]\nshares = true",
                           "[limits]\nshares = \"2\"",
                           "[limits]\nleases = 1.5",
                           "[limits]\nleases = 99999999999",
                           "[limits]\ncap = \"none\"",
                           "[limits]\nidle = 5",
                           "[limits]\nidle = \"0s\"",
                           "[limits]\nidle = \"99999d\"",
                           "[limits]\nidle = \"s\"",
                           "trusted_networks = \"10.0.0.0/8\"",
                           "trusted_networks = [10]",
                           "[unix]\nusers = \"some\"",
                           "[unix]\nadmins = \"alice\"",
                           "[unix]\nadmins = [-1]",
                           "[unix]\nroot = []",
                           "user = 1",
                           "[user]\nbob = 1",
                           "audit_required = 1",
                           "certificate_grace = \"none\"",
                           "certificate_grace = \"25h\"",
                           "encrypt = 1",
                           "a = {",
                           "\xff\xfe"}) {
    EXPECT_NE(error_of(text), "") << text;
  }
}

TEST(PolicyFile, MustBelongToItsWriters) {
  char path[] = "/tmp/tendril-policy-XXXXXX";
  close(mkstemp(path));
  std::ofstream(path) << "[limits]\nleases = 1\n";
  EXPECT_TRUE(read_policy(path).ok());
  chmod(path, 0622);
  const auto policy = read_policy(path);
  ASSERT_FALSE(policy.ok());
  EXPECT_NE(policy.status().message().find("chmod go-w"), std::string::npos);
  unlink(path);
  EXPECT_FALSE(read_policy(path).ok());
  EXPECT_FALSE(read_policy("/tmp").ok());
}

}  // namespace
}  // namespace tendril::access
