// SPDX-License-Identifier: Apache-2.0
// Who is in which account and class, and what differs between two policies.
#include "pool/policy/assign.h"

#include <gtest/gtest.h>

#include "pool/policy/policy_file.h"
#include "pool/policy/settings.h"

namespace tendril::pool {
namespace {

constexpr char kPolicy[] = R"(
[[gpu_class]]
name = "top"
match = 'model ~ "H100|H200"'
[[gpu_class]]
name = "any"

[[account]]
name = "vision"
quota = { top = 4 }
[[account]]
name = "teaching"
quota = { any = 4 }

[[user_class]]
name = "interactive"
[[user_class]]
name = "batch"

[[assignment]]
match = 'group = students'
account = "teaching"
user_classes = ["interactive"]
[[assignment]]
match = 'group = vision'
account = "vision"
user_classes = ["batch", "interactive"]
)";

PoolPolicy policy_of(const std::string& text) {
  auto policy = parse_pool_policy(text, "p", only_utc);
  EXPECT_TRUE(policy.ok()) << policy.status().message();
  return policy.ok() ? policy.take() : PoolPolicy();
}

UserFacts user(const std::string& name, std::vector<std::string> groups) {
  UserFacts who;
  who.user = name;
  who.groups = std::move(groups);
  return who;
}

TEST(Assign, TakesTheFirstThatMatches) {
  const PoolPolicy policy = policy_of(kPolicy);
  const UserFacts both = user("alice", {"vision", "students"});
  const auto first = assign(policy, both);
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(policy.accounts[first.value().account].name, "teaching");
  EXPECT_EQ(policy.user_classes[first.value().user_class].name, "interactive");
  const auto named = assign(policy, both, "vision");
  ASSERT_TRUE(named.ok());
  EXPECT_EQ(policy.accounts[named.value().account].name, "vision");
  EXPECT_EQ(policy.user_classes[named.value().user_class].name, "batch");
  const auto by_class = assign(policy, both, "", "batch");
  ASSERT_TRUE(by_class.ok());
  EXPECT_EQ(by_class.value().assignment, 1u);
  EXPECT_TRUE(assign(policy, both, "vision", "interactive").ok());
}

// Certificates name no groups.
TEST(Assign, KnowsTheGroupsOfThePolicy) {
  const PoolPolicy policy =
      policy_of(std::string(kPolicy) + "[groups]\nvision = [\"carol\", \"dave\"]\nchess = []\n");
  EXPECT_TRUE(assign(policy, user("carol", {})).ok());
  EXPECT_FALSE(assign(policy, user("erin", {})).ok());
  EXPECT_EQ(in_groups(policy, user("dave", {"vision", "staff"})).groups,
            (std::vector<std::string>{"vision", "staff"}));
  EXPECT_EQ(difference(policy_of(kPolicy), policy).size(), 2u);
}

TEST(Assign, SaysWhyNot) {
  const PoolPolicy policy = policy_of(kPolicy);
  const auto error = [&](const UserFacts& who, const char* account, const char* user_class) {
    const auto found = assign(policy, who, account, user_class);
    return found.ok() ? "" : found.status().message();
  };
  EXPECT_EQ(error(user("eve", {}), "", ""),
            "no assignment of the pool's policy matches eve (in no group); ask its administrator "
            "(rule: assignment)");
  const UserFacts bob = user("bob", {"students"});
  EXPECT_NE(error(bob, "vision", "").find("may not use the account 'vision', only teaching"),
            std::string::npos);
  EXPECT_NE(error(bob, "", "batch").find("may not use the class 'batch', only interactive"),
            std::string::npos);
  EXPECT_NE(error(bob, "visoin", "").find("did you mean 'vision'?"), std::string::npos);
  EXPECT_NE(error(bob, "", "bach").find("did you mean 'batch'?"), std::string::npos);
}

TEST(Assign, PutsAGpuInItsFirstClass) {
  const PoolPolicy policy = policy_of(kPolicy);
  GpuFacts gpu;
  gpu.model = "NVIDIA H200";
  EXPECT_EQ(class_of(policy, gpu), 0u);
  gpu.model = "NVIDIA L4";
  EXPECT_EQ(class_of(policy, gpu), 1u);
  EXPECT_FALSE(class_of(PoolPolicy(), gpu).has_value());
}

TEST(Difference, NamesWhatChanged) {
  const PoolPolicy before = policy_of(kPolicy);
  EXPECT_TRUE(difference(before, before).empty());
  std::string text = kPolicy;
  text.replace(text.find("{ top = 4 }"), 11, "{ top = 2 }");
  text += "[[account]]\nname = \"nlp\"\n[pool]\nlongest_wait = \"12h\"\n";
  const std::vector<PolicyChange> changes = difference(before, policy_of(text));
  std::vector<std::string> texts;
  for (const PolicyChange& change : changes) texts.push_back(text_of(change));
  ASSERT_GE(texts.size(), 3u);
  EXPECT_EQ(texts[0], "pool: longest_wait 1d -> 12h");
  EXPECT_EQ(texts[1], "account vision: quota.top 4.0 -> 2.0");
  EXPECT_EQ(texts[2], "account nlp: parent is new: none");
  const std::vector<PolicyChange> back = difference(policy_of(text), before);
  EXPECT_EQ(back.size(), changes.size());
  EXPECT_EQ(text_of(back.back()).find("account nlp: "), 0u);
  EXPECT_NE(text_of(back.back()).find("is gone"), std::string::npos);
}

}  // namespace
}  // namespace tendril::pool
