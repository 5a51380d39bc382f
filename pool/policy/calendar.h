// SPDX-License-Identifier: Apache-2.0
// Times of day and of week in one zone: windows such as "Mon-Fri 08:00-18:00", and moments such as
// "18:00". The rules of the zone and the time are passed in. Times are seconds since 1970 in UTC
// ("wall"). Pure; any thread.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "pool/policy/zone.h"

namespace tendril::pool {

inline constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
// So long after a moment. kNever stays what it is.
inline int64_t plus_s(int64_t at_s, int64_t lasts_s) {
  return lasts_s == kNever || at_s > kNever - lasts_s ? kNever : at_s + lasts_s;
}

// From `from_s` on, before `to_s`.
struct Interval {
  int64_t from_s = 0, to_s = 0;
};

// One or several windows. A window begins and ends by the clock on the wall. What the clock shows
// twice when summer ends is inside from its first to its last time. What it skips in spring has no
// length.
class When {
 public:
  // Never holds.
  When() = default;

  // kInvalid: the message names the column, from 1, and what was expected there.
  static base::Result<When> parse(const std::string& text);

  bool holds(int64_t wall_s, const Zone& zone) const;
  // The first moment after `wall_s` at which holds() changes; kNever.
  int64_t next_change(int64_t wall_s, const Zone& zone) const;
  // The window around `wall_s`, else the next one. Windows that touch are one. `to_s` is kNever for
  // what never ends.
  std::optional<Interval> current_or_next(int64_t wall_s, const Zone& zone) const;

  const std::string& text() const { return text_; }

 private:
  friend class WhenReader;
  struct Part {
    uint8_t days = 0;                        // bit 0: Monday; 0: from one date to another
    int64_t first_day = 0, last_day = 0;     // dates only; days since 1970
    int32_t from_minute = 0, to_minute = 0;  // of a week's day: to_minute may be tomorrow's
  };
  void intervals_near(int64_t wall_s, const Zone& zone, std::vector<Interval>* found) const;

  std::string text_;
  std::vector<Part> parts_;
  bool always_ = false;  // days of a week alone cover all of it
};

// A moment as people write it: "now", "18:00" (the next one), "Mon 18:00", "2026-12-24 18:00",
// "2026-12-24", "+90m", "+2h". kInvalid says what was expected, or that it is over.
base::Result<int64_t> parse_moment(const std::string& text, int64_t now_wall_s, const Zone& zone);
// "2026-12-24 18:00" in the zone.
std::string format_moment(int64_t wall_s, const Zone& zone);
// "18:00"; with the date if it is on another day than `now_wall_s`.
std::string format_clock(int64_t wall_s, int64_t now_wall_s, const Zone& zone);

}  // namespace tendril::pool
