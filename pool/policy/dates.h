// SPDX-License-Identifier: Apache-2.0
// Dates as numbers of days since 1970-01-01, in the Gregorian calendar. Pure.
#pragma once

#include <cstdint>

namespace tendril::pool {

struct Date {
  int64_t year = 1970;
  int32_t month = 1, day = 1;
};

int64_t days_of(const Date& date);
Date date_of(int64_t days);
bool is_date(const Date& date);    // "2026-02-30" is none
int32_t weekday_of(int64_t days);  // 0: Monday
int32_t days_in_month(int64_t year, int32_t month);

inline constexpr int64_t kDayS = 86'400;
// Rounds down, also before 1970.
constexpr int64_t day_of_second(int64_t second) {
  return second / kDayS - (second % kDayS < 0 ? 1 : 0);
}

}  // namespace tendril::pool
