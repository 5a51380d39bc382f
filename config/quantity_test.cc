// SPDX-License-Identifier: Apache-2.0
// Fractions and sizes: what is read, what is refused, what is printed.
#include "config/quantity.h"

#include <gtest/gtest.h>

namespace tendril::config {
namespace {

TEST(Quantity, Fractions) {
  const std::pair<const char*, uint32_t> good[] = {
      {"1", 1'000'000},   {"0.5", 500'000},    {".25", 250'000},     {"1/3", 333'333},
      {"35%", 350'000},   {"100%", 1'000'000}, {"0.05", 50'000},     {"5/20", 250'000},
      {"0.5%", 5'000},    {"0.000001", 1},     {"1.0", 1'000'000},   {"1.5/3", 500'000},
      {"1 / 7", 142'857}, {" 1 ", 1'000'000},  {"12.5 % ", 125'000}, {"0.0000019", 1},
  };
  for (const auto& [text, millionths] : good) {
    const auto parsed = parse_fraction(text);
    ASSERT_TRUE(parsed.ok()) << text;
    EXPECT_EQ(parsed.value(), millionths) << text;
  }
  for (const char* text : {"",
                           "0",
                           "0.0",
                           "-0.5",
                           "1.1",
                           "50",
                           "101%",
                           "2/1",
                           "3/2",
                           "1/0",
                           "0/4",
                           "x",
                           "half",
                           "0.5x",
                           "0.5555555555555555x",
                           "1/",
                           "/2",
                           "/",
                           ".",
                           "%",
                           "0.0000001",
                           "1e-1",
                           "0,5",
                           "nan",
                           "99999999999999999999",
                           "99999999999999999999999"}) {
    EXPECT_FALSE(parse_fraction(text).ok()) << text;
  }
}

TEST(Quantity, Sizes) {
  const std::pair<const char*, uint64_t> good[] = {
      {"10G", 10ull << 30},    {"10g", 10ull << 30},    {"512M", 512ull << 20},
      {"512MB", 512ull << 20}, {"512 M", 512ull << 20}, {"1.5GiB", 3ull << 29},
      {"2Gi", 2ull << 30},     {"2t", 2ull << 40},      {"1 TB", 1ull << 40},
      {"64k", 64ull << 10},    {"4096B", 4096},         {"7b", 7},
  };
  for (const auto& [text, bytes] : good) {
    const auto parsed = parse_size(text);
    ASSERT_TRUE(parsed.ok()) << text;
    EXPECT_EQ(parsed.value(), bytes) << text;
  }
  for (const char* text : {"", "0", "G", "-1G", "-1", "10X", "10GG", "10iB", "1e9", "1..5G", "B",
                           "99999999999T", "99999999999999999T", "18446744073709551616"}) {
    EXPECT_FALSE(parse_size(text).ok()) << text;
  }
}

TEST(Quantity, ABareNumberIsMebibytes) {
  EXPECT_EQ(parse_size("512").value(), 512ull << 20);
  EXPECT_EQ(parse_size("1.5").value(), 3ull << 19);
  EXPECT_EQ(parse_size("16777216").value(), 16ull << 40);
  const auto bytes_meant = parse_size("1073741824");
  ASSERT_FALSE(bytes_meant.ok());
  EXPECT_NE(bytes_meant.status().message().find("1073741824B"), std::string::npos);
}

TEST(Quantity, Formats) {
  EXPECT_EQ(format_size(0), "0 B");
  EXPECT_EQ(format_size(10ull << 30), "10.0 GiB");
  EXPECT_EQ(format_size(1536), "1.5 KiB");
  EXPECT_EQ(format_fraction(1'000'000), "1.00");
  EXPECT_EQ(format_fraction(350'000), "0.35");
  EXPECT_EQ(format_fraction(333'333), "0.333333");
}

TEST(Quantity, ASliceIsWhatWasSaidOfIt) {
  EXPECT_EQ(format_slice(250'000, 0), "0.25 GPU");
  EXPECT_EQ(format_slice(0, 10ull << 30), "10.0 GiB");
  EXPECT_EQ(format_slice(250'000, 10ull << 30), "0.25 GPU with 10.0 GiB");
}

TEST(Quantity, WhatIsWrittenExactlyReadsTheSame) {
  EXPECT_EQ(format_size_exactly(10ull << 30), "10G");
  EXPECT_EQ(format_size_exactly(1536ull << 20), "1536M");
  EXPECT_EQ(format_size_exactly(7), "7B");
  for (const uint64_t bytes :
       {uint64_t{1}, uint64_t{1} << 50, (uint64_t{1} << 40) + 1024, uint64_t{123'456'789}}) {
    EXPECT_EQ(parse_size(format_size_exactly(bytes)).value(), bytes);
  }
}

TEST(Quantity, Durations) {
  EXPECT_EQ(parse_duration("90").value(), 90u);
  EXPECT_EQ(parse_duration("0").value(), 0u);
  EXPECT_EQ(parse_duration("90s").value(), 90u);
  EXPECT_EQ(parse_duration(" 30 m ").value(), 1800u);
  EXPECT_EQ(parse_duration("8h").value(), 28'800u);
  EXPECT_EQ(parse_duration("10000d").value(), 864'000'000u);
  for (const char* const bad :
       {"", "m", "-1s", "1.5h", "3w", "10001d", "1h30m", "99999999999999"}) {
    const auto refused = parse_duration(bad);
    EXPECT_FALSE(refused.ok()) << bad;
    EXPECT_NE(refused.status().message().find("8h"), std::string::npos) << bad;
  }
}

TEST(Quantity, DurationsForPeople) {
  EXPECT_EQ(format_duration(45), "45 s");
  EXPECT_EQ(format_duration(119), "119 s");
  EXPECT_EQ(format_duration(1400), "23 min");
  EXPECT_EQ(format_duration(7500), "2 h 05 min");
  EXPECT_EQ(format_duration(7200), "2 h");
  EXPECT_EQ(format_duration(3 * 86'400), "3 d");
  EXPECT_EQ(format_duration(3 * 86'400 + 7200), "3 d 2 h");
}

}  // namespace
}  // namespace tendril::config
