// SPDX-License-Identifier: Apache-2.0
// Fractions and sizes: what is read, what is refused, what is printed.
#include "config/quantity.h"

#include <gtest/gtest.h>

namespace tendril::config {
namespace {

TEST(Quantity, Fractions) {
  const std::pair<const char*, uint32_t> good[] = {
      {"1", 1'000'000}, {"0.5", 500'000},    {".25", 250'000},   {"1/3", 333'333},
      {"35%", 350'000}, {"100%", 1'000'000}, {"0.05", 50'000},   {"5/20", 250'000},
      {"0.5%", 5'000},  {"0.000001", 1},     {"1.0", 1'000'000}, {"1.5/3", 500'000}};
  for (const auto& [text, millionths] : good) {
    const auto parsed = parse_fraction(text);
    ASSERT_TRUE(parsed.ok()) << text;
    EXPECT_EQ(parsed.value(), millionths) << text;
  }
  for (const char* text :
       {"", "0", "-0.5", "1.1", "101%", "2/1", "1/0", "x", "0.5x", "1/", "/2", "%", "0.0000001",
        "1e-1", "0,5", " 1", "nan", "99999999999999999999999"}) {
    EXPECT_FALSE(parse_fraction(text).ok()) << text;
  }
}

TEST(Quantity, Sizes) {
  const std::pair<const char*, uint64_t> good[] = {
      {"10G", 10ull << 30}, {"512M", 512ull << 20}, {"512MB", 512ull << 20}, {"1.5GiB", 3ull << 29},
      {"4096", 4096},       {"2t", 2ull << 40},     {"64k", 64ull << 10},    {"7B", 7}};
  for (const auto& [text, bytes] : good) {
    const auto parsed = parse_size(text);
    ASSERT_TRUE(parsed.ok()) << text;
    EXPECT_EQ(parsed.value(), bytes) << text;
  }
  EXPECT_EQ(parse_size("4096", 1 << 20).value(), 4096ull << 20);
  for (const char* text :
       {"", "0", "G", "-1G", "10X", "10GG", "1e9", "99999999999999999T", "10 G"}) {
    EXPECT_FALSE(parse_size(text).ok()) << text;
  }
}

TEST(Quantity, Formats) {
  EXPECT_EQ(format_size(0), "0 B");
  EXPECT_EQ(format_size(10ull << 30), "10.0 GiB");
  EXPECT_EQ(format_size(1536), "1.5 KiB");
  EXPECT_EQ(format_fraction(1'000'000), "1.00");
  EXPECT_EQ(format_fraction(350'000), "0.35");
  EXPECT_EQ(format_fraction(333'333), "0.333333");
}

}  // namespace
}  // namespace tendril::config
