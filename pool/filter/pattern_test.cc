// SPDX-License-Identifier: Apache-2.0
// Patterns beside what they should find, and patterns that are slow elsewhere.
#include "pool/filter/pattern.h"

#include <gtest/gtest.h>

namespace tendril::pool {
namespace {

bool found(const std::string& pattern, const std::string& text) {
  const auto parsed = Pattern::parse(pattern);
  EXPECT_TRUE(parsed.ok()) << pattern << ": " << parsed.status().message();
  return parsed.ok() && parsed.value().found_in(text);
}

std::string error_of(const std::string& pattern) {
  const auto parsed = Pattern::parse(pattern);
  return parsed.ok() ? "" : parsed.status().message();
}

TEST(Pattern, FindsAnywhereInAnyCase) {
  EXPECT_TRUE(found("h200", "NVIDIA H200"));
  EXPECT_TRUE(found("H100|H200", "NVIDIA H200 NVL"));
  EXPECT_FALSE(found("H100|H200", "NVIDIA A100"));
  EXPECT_TRUE(found("", "anything"));
  EXPECT_TRUE(found("", ""));
  EXPECT_FALSE(found("a", ""));
  EXPECT_TRUE(found("x|", "anything"));
  EXPECT_TRUE(found("B200|gh200", "NVIDIA GH200 480GB"));
  EXPECT_FALSE(found("H2000", "H200"));
}

TEST(Pattern, KnowsTheUsualSigns) {
  EXPECT_TRUE(found("^nvidia", "NVIDIA H200"));
  EXPECT_FALSE(found("^H200", "NVIDIA H200"));
  EXPECT_TRUE(found("H200$", "NVIDIA H200"));
  EXPECT_FALSE(found("H200$", "NVIDIA H200 NVL"));
  EXPECT_TRUE(found("^$", ""));
  EXPECT_FALSE(found("^$", "a"));
  EXPECT_TRUE(found("A.00", "A100"));
  EXPECT_TRUE(found("^[AH][1-2]00$", "H200"));
  EXPECT_FALSE(found("^[^AH]", "H200"));
  EXPECT_TRUE(found("[]x]", "]"));
  EXPECT_TRUE(found("[a-]", "-"));
  EXPECT_TRUE(found("^ab*c$", "ac"));
  EXPECT_TRUE(found("^ab*c$", "abbbc"));
  EXPECT_FALSE(found("^ab+c$", "ac"));
  EXPECT_TRUE(found("^ab?c$", "abc"));
  EXPECT_FALSE(found("^ab?c$", "abbc"));
  EXPECT_TRUE(found("^(ab|cd)+$", "abcdab"));
  EXPECT_FALSE(found("^(ab|cd)+$", "abc"));
  EXPECT_TRUE(found("^()*$", ""));
  EXPECT_TRUE(found("^(a|)b$", "b"));
  EXPECT_TRUE(found("1\\.5", "1.5"));
  EXPECT_FALSE(found("1\\.5", "1x5"));
  EXPECT_TRUE(found("a\\\\b", "a\\b"));
  EXPECT_TRUE(found("a**", "aaa"));
}

TEST(Pattern, ErrorsNameThePosition) {
  EXPECT_EQ(error_of("a(b"), "at position 4 of the pattern: expected a ')'");
  EXPECT_EQ(error_of("ab)"), "at position 3 of the pattern: expected a '(' before this ')'");
  EXPECT_NE(error_of("*a").find("position 1"), std::string::npos);
  EXPECT_NE(error_of("a|*").find("position 3"), std::string::npos);
  EXPECT_NE(error_of("[a").find("a ']'"), std::string::npos);
  EXPECT_NE(error_of("[z-a]").find("range"), std::string::npos);
  EXPECT_NE(error_of("\\d").find("[0-9]"), std::string::npos);
  EXPECT_NE(error_of("a\\").find("backslash"), std::string::npos);
  EXPECT_NE(error_of("a{2}").find("no counts"), std::string::npos);
  EXPECT_NE(error_of(std::string(257, 'a')), "");
  EXPECT_NE(error_of(std::string(40, '(')).find("32 parentheses"), std::string::npos);
}

// Each of these takes a backtracking engine longer than the age of the world.
TEST(Pattern, NoPatternIsSlow) {
  std::string nested = "a";
  for (int i = 0; i < 30; ++i) nested = "(" + nested + ")*";
  std::string optional;
  for (int i = 0; i < 60; ++i) optional += "a?";
  optional += std::string(100, 'a');
  for (const std::string& pattern : {nested + "b", optional + "c", std::string("(a|a|a)*b")})
    EXPECT_FALSE(found(pattern, std::string(1024, 'a'))) << pattern;
}

}  // namespace
}  // namespace tendril::pool
