// SPDX-License-Identifier: Apache-2.0
// Zones beside what the C library says of the same ones, and files that are none.
#include "pool/policy/zone.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <time.h>

#include <fstream>
#include <random>
#include <sstream>

#include "pool/policy/dates.h"
#include "pool/policy/test_zones.h"

namespace tendril::pool {
namespace {

TEST(Dates, AreTheInverseOfEachOther) {
  EXPECT_EQ(days_of({1970, 1, 1}), 0);
  EXPECT_EQ(days_of({2026, 11, 23}), 20'780);
  EXPECT_EQ(weekday_of(20'780), 0);  // a Monday
  EXPECT_FALSE(is_date({2026, 2, 29}));
  EXPECT_TRUE(is_date({2028, 2, 29}));
  for (int64_t day = -1000; day < 60'000; ++day) {
    const Date date = date_of(day);
    ASSERT_EQ(days_of(date), day);
    ASSERT_LE(date.day, days_in_month(date.year, date.month));
  }
  EXPECT_EQ(day_of_second(-1), -1);
  EXPECT_EQ(day_of_second(86'400), 1);
}

TEST(Zone, FollowsARule) {
  const Zone zone = berlin();
  const int64_t spring = days_of({2026, 3, 29}) * kDayS + 3600;  // 01:00 UTC
  const int64_t autumn = days_of({2026, 10, 25}) * kDayS + 3600;
  EXPECT_EQ(zone.offset_at(spring - 1), 3600);
  EXPECT_EQ(zone.offset_at(spring), 7200);
  EXPECT_EQ(zone.offset_at(autumn - 1), 7200);
  EXPECT_EQ(zone.offset_at(autumn), 3600);
  const int64_t half_past_two = 2 * 3600 + 1800;
  // 02:30 is skipped in spring, and shown twice in autumn.
  EXPECT_EQ(zone.wall_of(days_of({2026, 3, 29}) * kDayS + half_past_two, false), spring);
  EXPECT_EQ(zone.wall_of(days_of({2026, 10, 25}) * kDayS + half_past_two, false), autumn - 1800);
  EXPECT_EQ(zone.wall_of(days_of({2026, 10, 25}) * kDayS + half_past_two, true), autumn + 1800);
}

TEST(Zone, KnowsSouthernAndOddRules) {
  const Zone sydney = zone_of_rule("AEST-10AEDT,M10.1.0,M4.1.0/3");
  EXPECT_EQ(sydney.offset_at(days_of({2026, 1, 15}) * kDayS), 11 * 3600);
  EXPECT_EQ(sydney.offset_at(days_of({2026, 7, 15}) * kDayS), 10 * 3600);
  const Zone lord_howe = zone_of_rule("<+1030>-10:30<+11>-11,M10.1.0,M4.1.0");
  EXPECT_EQ(lord_howe.offset_at(days_of({2026, 7, 15}) * kDayS), 37'800);
  EXPECT_EQ(lord_howe.offset_at(days_of({2026, 1, 15}) * kDayS), 39'600);
  const Zone days = zone_of_rule("AAA3BBB,J60/0,300/-1");
  EXPECT_EQ(days.offset_at(days_of({2028, 3, 1}) * kDayS + 3 * 3600), -2 * 3600);
  EXPECT_EQ(days.offset_at(days_of({2028, 3, 1}) * kDayS + 3 * 3600 - 1), -3 * 3600);
  EXPECT_EQ(zone_of_rule("<-03>3").changes.size(), 0u);
}

// Every zone of this machine that the C library knows, at seeded moments.
TEST(Zone, AgreesWithTheCLibrary) {
  std::mt19937_64 random(7);
  int compared = 0;
  for (const char* name : {"Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Tokyo",
                           "America/Sao_Paulo", "Africa/Casablanca", "Asia/Kathmandu", "UTC"}) {
    std::ifstream file(std::string("/usr/share/zoneinfo/") + name, std::ios::binary);
    if (!file) continue;
    std::stringstream bytes;
    bytes << file.rdbuf();
    const auto zone = parse_zone(bytes.str(), name);
    ASSERT_TRUE(zone.ok()) << name << ": " << zone.status().message();
    setenv("TZ", name, 1);
    tzset();
    for (int i = 0; i < 20'000; ++i) {
      const time_t moment = static_cast<time_t>(random() % (120ull * 366 * 86'400));
      struct tm there = {};
      localtime_r(&moment, &there);
      ASSERT_EQ(zone.value().offset_at(moment), there.tm_gmtoff) << name << " at " << moment;
    }
    ++compared;
  }
  unsetenv("TZ");
  tzset();
  if (compared == 0) GTEST_SKIP() << "this machine has no zones";
}

TEST(Zone, RefusesWhatIsNone) {
  const std::string good = zone_bytes("CET-1CEST,M3.5.0,M10.5.0/3");
  EXPECT_TRUE(parse_zone(good, "x").ok());
  for (size_t length = 0; length + 1 < good.size(); length += 3)
    EXPECT_FALSE(parse_zone(good.substr(0, length), "x").ok()) << length;
  for (const char* rule : {"C", "CET", "CET-1CEST", "CET-1CEST,M3.5.0", "CET-99",
                           "CET-1CEST,M13.5.0,M1.1.1", "CET-1CEST,M3.5.0,M10.5.0/3x", "<CET-1"})
    EXPECT_FALSE(parse_zone(zone_bytes(rule), "x").ok()) << rule;
  EXPECT_FALSE(only_utc("Europe/Berlin").ok());
  EXPECT_TRUE(only_utc("UTC").ok());
}

}  // namespace
}  // namespace tendril::pool
