// SPDX-License-Identifier: Apache-2.0
// Knobs from text.
#include "softnccl/knobs.h"

#include <gtest/gtest.h>

#include <map>

namespace tendril::softnccl {
namespace {

Knobs read(const std::map<std::string, const char*>& all, std::string* problem) {
  return read_knobs(
      [&](const char* name) {
        auto found = all.find(name);
        return found == all.end() ? nullptr : found->second;
      },
      problem);
}

TEST(Knobs, AreRead) {
  std::string problem;
  const Knobs knobs = read({{"VERSION", "22705"},
                            {"ADDRESS", "127.0.0.9"},
                            {"CONNECT_DELAY_MS", "20"},
                            {"QUEUE", "0"},
                            {"LOSE", "3"},
                            {"FAIL", "ncclSend:2:5,ncclRecv:1+:6"}},
                           &problem);
  EXPECT_EQ(problem, "");
  EXPECT_EQ(knobs.version, 22705);
  EXPECT_EQ(knobs.address, "127.0.0.9");
  EXPECT_EQ(knobs.connect_delay_ms, 20u);
  EXPECT_EQ(knobs.queue, 1u);  // with none at all nothing could run
  EXPECT_EQ(knobs.lose, 3u);
  EXPECT_EQ(knobs.flip, 0u);
  ASSERT_EQ(knobs.failures.size(), 2u);
  EXPECT_EQ(knobs.failures[0].first, 2u);
  EXPECT_FALSE(knobs.failures[0].from_there_on);
  EXPECT_EQ(knobs.failures[1].call, "ncclRecv");
  EXPECT_TRUE(knobs.failures[1].from_there_on);
  EXPECT_EQ(knobs.failures[1].code, ncclRemoteError);
}

TEST(Knobs, WhatDoesNotParseIsNamedAndLeftOut) {
  for (auto [name, text] :
       std::initializer_list<std::pair<const char*, const char*>>{{"VERSION", "-1"},
                                                                  {"VERSION", "2.28"},
                                                                  {"CONNECT_DELAY_MS", "999999999"},
                                                                  {"ADDRESS", "localhost"},
                                                                  {"FAIL", "ncclSend"},
                                                                  {"FAIL", "ncclSend:x:1"},
                                                                  {"FAIL", "ncclSend:1:99"},
                                                                  {"FAIL", ""}}) {
    std::string problem;
    const Knobs knobs = read({{name, text}}, &problem);
    EXPECT_NE(problem.find(name), std::string::npos) << name << "=" << text;
    EXPECT_EQ(knobs.version, Knobs().version);
    EXPECT_EQ(knobs.address, Knobs().address);
    EXPECT_EQ(knobs.connect_delay_ms, 0u);
    EXPECT_TRUE(knobs.failures.empty());
  }
}

}  // namespace
}  // namespace tendril::softnccl
