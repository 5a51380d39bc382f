// SPDX-License-Identifier: Apache-2.0
// See dates.h. Years are counted from March, so that the leap day is a year's last.
#include "pool/policy/dates.h"

namespace tendril::pool {
namespace {

constexpr int64_t kEraDays = 146'097;   // of 400 years
constexpr int64_t kEraShift = 719'468;  // from 0000-03-01 to 1970-01-01

int64_t floor_of(int64_t value, int64_t by) { return value / by - (value % by < 0 ? 1 : 0); }

bool is_leap(int64_t year) { return year % 4 == 0 && (year % 100 != 0 || year % 400 == 0); }

}  // namespace

int64_t days_of(const Date& date) {
  const int64_t year = date.year - (date.month <= 2 ? 1 : 0);
  const int64_t era = floor_of(year, 400), in_era = year - era * 400;
  const int64_t month = (date.month + 9) % 12;  // March: 0
  const int64_t in_year = (153 * month + 2) / 5 + date.day - 1;
  return era * kEraDays + in_era * 365 + in_era / 4 - in_era / 100 + in_year - kEraShift;
}

Date date_of(int64_t days) {
  const int64_t shifted = days + kEraShift, era = floor_of(shifted, kEraDays);
  const int64_t in_era = shifted - era * kEraDays;
  const int64_t year = (in_era - in_era / 1460 + in_era / 36'524 - in_era / 146'096) / 365;
  const int64_t in_year = in_era - (365 * year + year / 4 - year / 100);
  const int64_t month = (5 * in_year + 2) / 153;
  Date date;
  date.day = static_cast<int32_t>(in_year - (153 * month + 2) / 5 + 1);
  date.month = static_cast<int32_t>(month < 10 ? month + 3 : month - 9);
  date.year = year + era * 400 + (date.month <= 2 ? 1 : 0);
  return date;
}

int32_t days_in_month(int64_t year, int32_t month) {
  if (month == 2) return is_leap(year) ? 29 : 28;
  return month == 4 || month == 6 || month == 9 || month == 11 ? 30 : 31;
}

bool is_date(const Date& date) {
  return date.year >= 1970 && date.year <= 9999 && date.month >= 1 && date.month <= 12 &&
         date.day >= 1 && date.day <= days_in_month(date.year, date.month);
}

int32_t weekday_of(int64_t days) {
  return static_cast<int32_t>(((days + 3) % 7 + 7) % 7);  // 1970-01-01 was a Thursday
}

}  // namespace tendril::pool
