// SPDX-License-Identifier: Apache-2.0
// Windows and moments: how they are written, midnight, and the two nights when clocks are changed.
#include "pool/policy/calendar.h"

#include <gtest/gtest.h>

#include <random>

#include "pool/policy/dates.h"
#include "pool/policy/test_zones.h"

namespace tendril::pool {
namespace {

// By the clock in the zone; shown twice: the first.
int64_t at(int64_t year, int month, int day, int hour, int minute, const Zone& zone = Zone()) {
  return zone.wall_of(days_of({year, month, day}) * kDayS + hour * 3600 + minute * 60, false);
}

When when(const std::string& text) {
  auto parsed = When::parse(text);
  EXPECT_TRUE(parsed.ok()) << text << ": " << parsed.status().message();
  return parsed.ok() ? parsed.take() : When();
}

std::string error_of(const std::string& text) {
  const auto parsed = When::parse(text);
  return parsed.ok() ? "" : parsed.status().message();
}

// 2026-11-23 is a Monday.
TEST(When, HoldsOnItsDaysAtItsTimes) {
  const Zone utc;
  const When work = when("Mon-Fri 08:00-18:00");
  EXPECT_FALSE(work.holds(at(2026, 11, 23, 7, 59), utc));
  EXPECT_TRUE(work.holds(at(2026, 11, 23, 8, 0), utc));
  EXPECT_TRUE(work.holds(at(2026, 11, 27, 17, 59), utc));
  EXPECT_FALSE(work.holds(at(2026, 11, 27, 18, 0), utc));
  EXPECT_FALSE(work.holds(at(2026, 11, 28, 12, 0), utc));
  EXPECT_EQ(work.next_change(at(2026, 11, 23, 9, 0), utc), at(2026, 11, 23, 18, 0));
  EXPECT_EQ(work.next_change(at(2026, 11, 27, 18, 0), utc), at(2026, 11, 30, 8, 0));
  const When lessons = when("mon,Wednesday 10:00-12:00, 14:00-16:00 ; Sat-Sun");
  EXPECT_TRUE(lessons.holds(at(2026, 11, 25, 15, 0), utc));
  EXPECT_FALSE(lessons.holds(at(2026, 11, 25, 13, 0), utc));
  EXPECT_FALSE(lessons.holds(at(2026, 11, 24, 15, 0), utc));
  EXPECT_TRUE(lessons.holds(at(2026, 11, 28, 0, 0), utc));
  EXPECT_EQ(lessons.next_change(at(2026, 11, 28, 12, 0), utc), at(2026, 11, 30, 0, 0));
}

TEST(When, GoesOverMidnightAndTheEndOfTheWeek) {
  const Zone utc;
  const When night = when("22:00-06:00");
  EXPECT_TRUE(night.holds(at(2026, 11, 23, 3, 0), utc));
  EXPECT_FALSE(night.holds(at(2026, 11, 23, 6, 0), utc));
  EXPECT_EQ(night.next_change(at(2026, 11, 23, 23, 0), utc), at(2026, 11, 24, 6, 0));
  const When sunday = when("Sun 22:00-06:00");
  EXPECT_TRUE(sunday.holds(at(2026, 11, 23, 3, 0), utc));
  EXPECT_FALSE(sunday.holds(at(2026, 11, 24, 3, 0), utc));
  const When weekend = when("Fri-Mon");
  EXPECT_TRUE(weekend.holds(at(2026, 11, 23, 3, 0), utc));
  EXPECT_FALSE(weekend.holds(at(2026, 11, 24, 3, 0), utc));
  const auto window = weekend.current_or_next(at(2026, 11, 22, 3, 0), utc);
  ASSERT_TRUE(window.has_value());
  EXPECT_EQ(window->from_s, at(2026, 11, 20, 0, 0));
  EXPECT_EQ(window->to_s, at(2026, 11, 24, 0, 0));
}

TEST(When, HasDates) {
  const Zone utc;
  const When day = when("2026-12-24");
  EXPECT_TRUE(day.holds(at(2026, 12, 24, 23, 59), utc));
  EXPECT_FALSE(day.holds(at(2026, 12, 25, 0, 0), utc));
  EXPECT_EQ(day.next_change(at(2026, 11, 1, 0, 0), utc), at(2026, 12, 24, 0, 0));
  EXPECT_EQ(day.next_change(at(2026, 12, 25, 0, 0), utc), kNever);
  EXPECT_FALSE(day.current_or_next(at(2026, 12, 25, 0, 0), utc).has_value());
  const When evening = when("2026-12-24 20:00-02:00");
  EXPECT_TRUE(evening.holds(at(2026, 12, 25, 1, 0), utc));
  const When holidays = when("2026-12-24 12:00..2027-01-03");
  EXPECT_FALSE(holidays.holds(at(2026, 12, 24, 11, 0), utc));
  EXPECT_TRUE(holidays.holds(at(2027, 1, 3, 23, 0), utc));
  EXPECT_FALSE(holidays.holds(at(2027, 1, 4, 0, 0), utc));
  // What touches is one window: 3 January is a Sunday.
  const When both = when("2026-12-24 12:00..2027-01-03 ; Mon 00:00-08:00");
  EXPECT_EQ(both.next_change(at(2026, 12, 30, 0, 0), utc), at(2027, 1, 4, 8, 0));
}

TEST(When, AlwaysNeverChanges) {
  const Zone utc;
  for (const char* text : {"always", "daily", "00:00-24:00", "Mon-Sun", "Mon-Wed;Thu-Sun",
                           "00:00-12:00,12:00-24:00", "12:00-11:00;11:00-12:00"}) {
    EXPECT_TRUE(when(text).holds(at(2026, 3, 1, 3, 0), utc)) << text;
    EXPECT_EQ(when(text).next_change(at(2026, 3, 1, 3, 0), utc), kNever) << text;
  }
  EXPECT_FALSE(When().holds(0, utc));
  EXPECT_EQ(When().next_change(0, utc), kNever);
}

TEST(When, FollowsTheClockWhenItIsChanged) {
  const Zone zone = berlin();
  // Spring: 02:00 to 03:00 does not exist on 29 March 2026.
  const int64_t spring = days_of({2026, 3, 29}) * kDayS + 3600;
  EXPECT_EQ(when("00:00-04:00").current_or_next(spring, zone)->to_s - spring, 3600);
  EXPECT_EQ(when("02:30-08:00").current_or_next(spring - 7200, zone)->from_s, spring);
  // A window that is skipped whole does not hold that night, but the next.
  const When skipped = when("02:15-02:45");
  EXPECT_EQ(skipped.next_change(spring - 3600, zone), at(2026, 3, 30, 2, 15, zone));
  // Autumn: 02:00 to 03:00 is shown twice on 25 October 2026.
  const int64_t autumn = days_of({2026, 10, 25}) * kDayS + 3600;
  const auto twice = when("02:15-02:45").current_or_next(autumn, zone);
  EXPECT_EQ(twice->from_s, autumn - 2700);
  EXPECT_EQ(twice->to_s, autumn + 2700);
  const auto day = when("2026-10-25").current_or_next(autumn, zone);
  EXPECT_EQ(day->to_s - day->from_s, 25 * 3600);
  // The same wall clock all year.
  const When work = when("Mon-Fri 08:00-18:00");
  EXPECT_TRUE(work.holds(at(2026, 3, 30, 8, 0, zone), zone));
  EXPECT_FALSE(work.holds(at(2026, 3, 30, 8, 0, zone) - 1, zone));
  EXPECT_TRUE(work.holds(at(2026, 10, 26, 8, 0, zone), zone));
  EXPECT_FALSE(work.holds(at(2026, 10, 26, 8, 0, zone) - 1, zone));
}

// Walks from change to change and looks in between; TENDRIL_SEED replays.
TEST(When, ChangesWhereItSaysSo) {
  const char* const given = getenv("TENDRIL_SEED");
  const uint64_t seed = given != nullptr ? strtoull(given, nullptr, 10) : 22;
  SCOPED_TRACE("TENDRIL_SEED=" + std::to_string(seed));
  std::mt19937_64 random(seed);
  const Zone zone = berlin();
  for (const char* text :
       {"Mon-Fri 08:00-18:00", "22:00-06:00", "02:00-03:00", "02:15-02:45;Sun 01:00-02:30",
        "Sat-Mon;2026-03-24..2026-03-29 02:30", "2026-10-24 23:00..2026-10-25 02:10;02:40-02:50"}) {
    const When one = when(text);
    int64_t now = at(2026, 1, 1, 0, 0);
    const int64_t end = at(2027, 1, 1, 0, 0);
    while (now < end) {
      const int64_t next = std::min(one.next_change(now, zone), end);
      ASSERT_GT(next, now) << text;
      const bool holds = one.holds(now, zone);
      for (int i = 0; i < 3; ++i) {
        const int64_t between =
            now + static_cast<int64_t>(random() % static_cast<uint64_t>(next - now));
        ASSERT_EQ(one.holds(between, zone), holds) << text << " at " << between;
      }
      if (next < end) {
        ASSERT_NE(one.holds(next, zone), holds) << text << " at " << next;
      }
      now = next;
    }
  }
}

TEST(When, ErrorsNameTheColumnAndWhatWasExpected) {
  EXPECT_EQ(error_of("Mon-Fry 08:00-18:00"),
            "column 5: expected a day: Mon, Tue, Wed, Thu, Fri, Sat or Sun, found 'Fry 08:00-18'");
  EXPECT_EQ(error_of("Mon 8:00-18:00").find("column 5: expected a time from 00:00 to 23:59"), 0u);
  EXPECT_EQ(error_of("08:00-25:00").find("column 7: expected a time from 00:00 to 24:00"), 0u);
  EXPECT_EQ(error_of("08:00").find("column 6: expected '-'"), 0u);
  EXPECT_EQ(error_of("08:00-08:00").find("column 12: expected another time"), 0u);
  EXPECT_EQ(error_of("2026-02-30").find("column 1: expected a date"), 0u);
  EXPECT_EQ(error_of("2026-12-24..2026-12-23").find("column 23: expected an end"), 0u);
  EXPECT_EQ(error_of("").find("column 1: expected days, times or a date"), 0u);
  for (const char* text :
       {"Mon 08:00-18:00 x", "Mon,", "08:00-09:00,", ";", "always;", "24:00-01:00",
        "2026-12-24 08:00", "2026-1-1", "08:60-09:00", "Mon-", "someday"})
    EXPECT_NE(error_of(text), "") << text;
  EXPECT_NE(error_of(std::string(2000, ' ')), "");
}

TEST(Moment, IsReadAsPeopleWriteIt) {
  const Zone zone = berlin();
  const int64_t now = at(2026, 11, 23, 14, 10, zone);
  const auto moment = [&](const std::string& text) {
    const auto parsed = parse_moment(text, now, zone);
    EXPECT_TRUE(parsed.ok()) << text << ": " << parsed.status().message();
    return parsed.ok() ? format_moment(parsed.value(), zone) : "";
  };
  EXPECT_EQ(moment("now"), "2026-11-23 14:10");
  EXPECT_EQ(moment("18:00"), "2026-11-23 18:00");
  EXPECT_EQ(moment("09:00"), "2026-11-24 09:00");
  EXPECT_EQ(moment("Mon 18:00"), "2026-11-23 18:00");
  EXPECT_EQ(moment("mon 09:00"), "2026-11-30 09:00");
  EXPECT_EQ(moment("2026-12-24 18:00"), "2026-12-24 18:00");
  EXPECT_EQ(moment("2026-12-24"), "2026-12-24 00:00");
  EXPECT_EQ(moment("+2h"), "2026-11-23 16:10");
  EXPECT_EQ(moment("+90m"), "2026-11-23 15:40");
  for (const char* text : {"", "later", "18:00 x", "25:00", "+2", "+2w", "2026-11-01", "Mon",
                           "nowhere", "2026-12-24 18", "+999999999d"})
    EXPECT_FALSE(parse_moment(text, now, zone).ok()) << text;
  EXPECT_NE(parse_moment("2026-11-01", now, zone).status().message().find("is over"),
            std::string::npos);
  EXPECT_EQ(format_clock(now, now, zone), "14:10");
  EXPECT_EQ(format_clock(now + 86'400, now, zone), "2026-11-24 14:10");
}

}  // namespace
}  // namespace tendril::pool
