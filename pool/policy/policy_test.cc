// SPDX-License-Identifier: Apache-2.0
// Policies as data: the one without a file, and what holds when.
#include "pool/policy/policy.h"

#include <gtest/gtest.h>

namespace tendril::pool {
namespace {

TEST(PoolPolicy, WithoutAFileEverybodyMayUseEverything) {
  const PoolPolicy policy = default_policy();
  ASSERT_EQ(policy.assignments.size(), 1u);
  EXPECT_TRUE(policy.assignments[0].match.matches_everything());
  EXPECT_EQ(policy.account("everybody"), 0u);
  EXPECT_EQ(policy.gpu_class("any"), 0u);
  EXPECT_EQ(policy.user_class("normal"), 0u);
  EXPECT_FALSE(policy.account("nobody").has_value());
}

}  // namespace
}  // namespace tendril::pool
