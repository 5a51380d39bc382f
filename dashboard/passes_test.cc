// SPDX-License-Identifier: Apache-2.0
// Passes work once, sessions end, and there are never too many of either.
#include "dashboard/passes.h"

#include <gtest/gtest.h>

namespace tendril::dashboard {
namespace {

access::Principal named(const std::string& name) {
  access::Principal who;
  who.name = who.id = name;
  return who;
}

TEST(Passes, APassWorksOnceAndForAWhile) {
  Passes passes;
  auto pass = passes.give_pass(named("ann"), 1000);
  ASSERT_TRUE(pass.ok());
  EXPECT_EQ(passes.use_pass(*pass, 2000)->name, "ann");
  EXPECT_FALSE(passes.use_pass(*pass, 2000));
  pass = passes.give_pass(named("bob"), 1000);
  EXPECT_FALSE(passes.use_pass(*pass, 1000 + kPassNs)) << "it is too old";
  EXPECT_TRUE(passes.use_pass(*passes.give_pass(named("cy"), 0), kPassNs - 1));
}

TEST(Passes, ASessionIsNoPassAndAPassNoSession) {
  Passes passes;
  const std::string session = *passes.begin_session(named("ann"), 1000);
  const std::string pass = *passes.give_pass(named("bob"), 1000);
  EXPECT_FALSE(passes.use_pass(session, 1000));
  EXPECT_FALSE(passes.session(pass, 1000));
  EXPECT_EQ(passes.session(session, 1000)->name, "ann");
  EXPECT_FALSE(passes.session(session, 1000 + kSessionNs));
  passes.end_session(session);
  EXPECT_FALSE(passes.session(session, 1000));
}

TEST(Passes, WhatIsNearlyRightIsWrong) {
  Passes passes;
  const std::string session = *passes.begin_session(named("ann"), 1000);
  std::string other = session;
  other.back() = other.back() == '0' ? '1' : '0';
  for (const std::string& wrong : {std::string(), other, session + "0", session.substr(1),
                                   std::string(session.size(), '0'), std::string(1 << 20, 'a')}) {
    EXPECT_FALSE(passes.session(wrong, 1000));
    passes.end_session(wrong);
  }
  EXPECT_TRUE(passes.session(session, 1000));
  EXPECT_NE(session, *passes.begin_session(named("ann"), 1000));
}

TEST(Passes, TheOldestGoesWhenThereAreTooMany) {
  Passes passes;
  const std::string first = *passes.begin_session(named("ann"), 1);
  std::string last;
  for (size_t i = 0; i < kSessionsMax; ++i) last = *passes.begin_session(named("bob"), 2 + i);
  EXPECT_FALSE(passes.session(first, 3));
  EXPECT_TRUE(passes.session(last, 3));
}

}  // namespace
}  // namespace tendril::dashboard
