// SPDX-License-Identifier: Apache-2.0
// See calendar.h. A window is two points on the clock of each of its days; the zone makes moments
// of them. Questions look at the days around a moment only.
#include "pool/policy/calendar.h"

#include <algorithm>

#include "base/text.h"
#include "pool/policy/dates.h"

namespace tendril::pool {
namespace {

using base::Code;
using base::Status;

constexpr size_t kTextMax = 1024;
constexpr int32_t kDayMinutes = 24 * 60;
constexpr int kDaysBefore = 8, kDaysAfter = 9;
constexpr int kJoinsMax = 256;
constexpr char kDays[7][10] = {"monday", "tuesday",  "wednesday", "thursday",
                               "friday", "saturday", "sunday"};

char small(char letter) {
  return letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter + 32) : letter;
}
bool is_letter(char letter) { return small(letter) >= 'a' && small(letter) <= 'z'; }
bool is_digit(char letter) { return letter >= '0' && letter <= '9'; }

// The first three letters of a day, or its whole name. -1: no day.
int day_named(const std::string& word) {
  for (int day = 0; day < 7; ++day) {
    const std::string name = kDays[day];
    if (word == name || word == name.substr(0, 3)) return day;
  }
  return -1;
}

// What windows and moments are written of.
class TimeReader {
 public:
  explicit TimeReader(const std::string& text) : text_(text) {}

  void skip_blanks() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t')) ++at_;
  }
  bool at_end() const { return at_ >= text_.size(); }
  char here() const { return at_end() ? '\0' : text_[at_]; }
  bool take(const std::string& sign) {
    if (text_.compare(at_, sign.size(), sign) != 0) return false;
    at_ += sign.size();
    return true;
  }
  void fail(const std::string& expected) {
    if (!status_.ok()) return;
    const std::string found =
        at_end() ? "the end" : "'" + base::printable(text_.substr(at_, 12), 12) + "'";
    status_ = Status(Code::kInvalid, base::format("column %zu: expected %s, found %s", at_ + 1,
                                                  expected.c_str(), found.c_str()));
  }
  bool ok() const { return status_.ok(); }
  const Status& status() const { return status_; }

  std::string word() {
    std::string found;
    while (is_letter(here())) found += small(text_[at_++]);
    return found;
  }
  bool at_date() const {
    if (at_ + 4 >= text_.size() || text_[at_ + 4] != '-') return false;
    return std::all_of(text_.begin() + static_cast<std::ptrdiff_t>(at_),
                       text_.begin() + static_cast<std::ptrdiff_t>(at_ + 4), is_digit);
  }
  // Days since 1970.
  int64_t date() {
    const size_t from = at_;
    Date date;
    date.year = digits(4);
    take("-");
    date.month = static_cast<int32_t>(digits(2));
    take("-");
    date.day = static_cast<int32_t>(digits(2));
    if (at_ - from != 10 || !is_date(date)) {
      at_ = from;
      fail("a date, as in 2026-12-24");
      return 0;
    }
    return days_of(date);
  }
  // Minutes since midnight; 24:00 only as an end.
  int32_t time(bool is_end) {
    const size_t from = at_;
    const int64_t hour = digits(2);
    const bool colon = take(":");
    const int64_t minute = digits(2);
    const int64_t total = hour * 60 + minute;
    const int64_t most = is_end ? kDayMinutes : kDayMinutes - 1;
    if (!colon || at_ - from != 5 || minute > 59 || total > most) {
      at_ = from;
      fail(is_end ? "a time from 00:00 to 24:00, as in 08:00"
                  : "a time from 00:00 to 23:59, as in 08:00");
      return 0;
    }
    return static_cast<int32_t>(total);
  }
  int day() {
    const size_t from = at_;
    const int found = day_named(word());
    if (found >= 0) return found;
    at_ = from;
    fail("a day: Mon, Tue, Wed, Thu, Fri, Sat or Sun");
    return 0;
  }
  uint64_t number() {
    uint64_t value = 0;
    const size_t from = at_;
    while (is_digit(here()) && at_ - from < 9)
      value = value * 10 + static_cast<uint64_t>(text_[at_++] - '0');
    if (at_ == from) fail("a number");
    return value;
  }

 private:
  int64_t digits(int count) {
    int64_t value = 0;
    for (int i = 0; i < count && is_digit(here()); ++i) value = value * 10 + (text_[at_++] - '0');
    return value;
  }

  const std::string& text_;
  size_t at_ = 0;
  Status status_;
};

}  // namespace

class WhenReader {
 public:
  explicit WhenReader(const std::string& text) : in_(text) { when_.text_ = text; }

  base::Result<When> read() {
    do {
      in_.skip_blanks();
      part();
      in_.skip_blanks();
    } while (in_.ok() && in_.take(";"));
    if (in_.ok() && !in_.at_end()) in_.fail("';' and another window, or the end");
    if (!in_.ok()) return in_.status();
    return std::move(when_);
  }

 private:
  void part() {
    if (in_.at_date()) return dated();
    uint8_t days = 0x7f;
    if (is_letter(in_.here())) {
      days = weekdays();
      in_.skip_blanks();
    } else if (!is_digit(in_.here())) {
      return in_.fail(
          "days, times or a date, as in \"Mon-Fri 08:00-18:00\", \"22:00-06:00\", \"always\" or "
          "\"2026-12-24\"");
    }
    if (in_.ok() && !is_digit(in_.here())) return add_weekly(days, 0, kDayMinutes);
    do {
      in_.skip_blanks();
      times(days);
      in_.skip_blanks();
    } while (in_.ok() && in_.take(","));
  }

  uint8_t weekdays() {
    if (in_.take("always") || in_.take("daily")) return 0x7f;
    unsigned days = 0;
    do {
      in_.skip_blanks();
      const int first = in_.day();
      int last = first;
      if (in_.ok() && in_.take("-")) last = in_.day();
      for (int day = first;; day = (day + 1) % 7) {
        days |= 1u << day;
        if (day == last) break;
      }
    } while (in_.ok() && in_.take(","));
    return static_cast<uint8_t>(days);
  }

  void times(uint8_t days) {
    const int32_t from = in_.time(false);
    if (in_.ok() && !in_.take("-")) in_.fail("'-' and the time at which it ends");
    if (!in_.ok()) return;
    int32_t to = in_.time(true);
    if (in_.ok() && to == from) in_.fail("another time than the one at which it begins");
    if (to < from) to += kDayMinutes;
    add_weekly(days, from, to);
  }

  void add_weekly(uint8_t days, int32_t from, int32_t to) {
    When::Part part;
    part.days = days;
    part.from_minute = from;
    part.to_minute = to;
    when_.parts_.push_back(part);
    for (int day = 0; day < 7; ++day) {
      if ((days >> day & 1) == 0) continue;
      for (int32_t minute = from; minute < to; ++minute)
        covered_[static_cast<size_t>((day * kDayMinutes + minute) % (7 * kDayMinutes))] = true;
    }
    when_.always_ = std::find(covered_.begin(), covered_.end(), false) == covered_.end();
  }

  // "2026-12-24", "2026-12-24 08:00-18:00", "2026-12-24 08:00..2026-12-27", and so on.
  void dated() {
    When::Part part;
    part.first_day = part.last_day = in_.date();
    part.to_minute = kDayMinutes;
    in_.skip_blanks();
    if (in_.ok() && is_digit(in_.here())) {
      part.from_minute = in_.time(false);
      in_.skip_blanks();
      if (in_.ok() && in_.take("-")) {
        in_.skip_blanks();
        part.to_minute = in_.time(true);
        if (part.to_minute <= part.from_minute) part.last_day += 1;
        if (in_.ok()) when_.parts_.push_back(part);
        return;
      }
      if (in_.ok() && in_.here() != '.')
        return in_.fail("'-' and a time, or '..' and the date at which it ends");
    }
    if (in_.ok() && in_.take("..")) {
      in_.skip_blanks();
      part.last_day = in_.date();
      in_.skip_blanks();
      if (in_.ok() && is_digit(in_.here())) part.to_minute = in_.time(true);
      if (in_.ok() &&
          std::pair(part.last_day, part.to_minute) <= std::pair(part.first_day, part.from_minute))
        in_.fail("an end that is later than the beginning");
    }
    if (in_.ok()) when_.parts_.push_back(part);
  }

  TimeReader in_;
  When when_;
  std::vector<bool> covered_ = std::vector<bool>(7 * kDayMinutes, false);
};

base::Result<When> When::parse(const std::string& text) {
  if (text.size() > kTextMax)
    return Status(Code::kInvalid, "column 1025: expected at most 1024 signs");
  return WhenReader(text).read();
}

void When::intervals_near(int64_t wall_s, const Zone& zone, std::vector<Interval>* found) const {
  const auto add = [&](int64_t from_day, int64_t from_minute, int64_t to_day, int64_t to_minute) {
    const int64_t from = zone.wall_of(from_day * kDayS + from_minute * 60, false);
    const int64_t to = zone.wall_of(to_day * kDayS + to_minute * 60, true);
    if (from < to) found->push_back({from, to});
  };
  const int64_t today = day_of_second(wall_s + zone.offset_at(wall_s));
  for (const Part& part : parts_) {
    if (part.days == 0) {
      add(part.first_day, part.from_minute, part.last_day, part.to_minute);
      continue;
    }
    for (int64_t day = today - kDaysBefore; day <= today + kDaysAfter; ++day) {
      if ((part.days >> weekday_of(day) & 1) != 0) add(day, part.from_minute, day, part.to_minute);
    }
  }
  std::sort(found->begin(), found->end(),
            [](const Interval& a, const Interval& b) { return a.from_s < b.from_s; });
}

bool When::holds(int64_t wall_s, const Zone& zone) const {
  if (always_) return true;
  std::vector<Interval> near;
  intervals_near(wall_s, zone, &near);
  return std::any_of(near.begin(), near.end(), [wall_s](const Interval& one) {
    return one.from_s <= wall_s && wall_s < one.to_s;
  });
}

std::optional<Interval> When::current_or_next(int64_t wall_s, const Zone& zone) const {
  if (always_) return Interval{std::numeric_limits<int64_t>::min(), kNever};
  std::optional<Interval> found;
  int64_t around = wall_s;
  for (int join = 0; join < kJoinsMax; ++join) {
    std::vector<Interval> near;
    intervals_near(around, zone, &near);
    const int64_t end_before = found ? found->to_s : 0;
    Interval run{0, 0};
    bool any = false;
    for (const Interval& one : near) {
      if (any && one.from_s <= run.to_s) {
        run.to_s = std::max(run.to_s, one.to_s);
        continue;
      }
      if (any && run.to_s > around) break;
      run = one;
      any = true;
    }
    if (!any || run.to_s <= around) return found;
    if (!found) {
      found = run;
    } else if (run.from_s <= found->to_s) {
      found->to_s = run.to_s;
    }
    if (found->to_s == end_before) return found;
    around = found->to_s;  // what begins there belongs to it
  }
  return found;
}

int64_t When::next_change(int64_t wall_s, const Zone& zone) const {
  const std::optional<Interval> window = current_or_next(wall_s, zone);
  if (!window) return kNever;
  return window->from_s > wall_s ? window->from_s : window->to_s;
}

namespace {

// "+90m", "+2h"
base::Result<int64_t> later_by(TimeReader* in, int64_t now_wall_s) {
  const auto amount = static_cast<int64_t>(in->number());
  const int64_t unit = in->take("s")   ? 1
                       : in->take("m") ? 60
                       : in->take("h") ? 3600
                       : in->take("d") ? kDayS
                                       : 0;
  if (unit == 0 || !in->at_end() || amount > 10 * 365 * kDayS / unit)
    in->fail("a time from now on, as in +90m, +2h or +3d");
  if (!in->ok()) return in->status();
  return now_wall_s + amount * unit;
}

}  // namespace

base::Result<int64_t> parse_moment(const std::string& text, int64_t now_wall_s, const Zone& zone) {
  TimeReader in(text);
  in.skip_blanks();
  if (in.take("now") && in.at_end()) return now_wall_s;
  if (in.take("+")) return later_by(&in, now_wall_s);
  const int64_t today = day_of_second(now_wall_s + zone.offset_at(now_wall_s));
  if (in.at_date()) {
    const int64_t day = in.date();
    in.skip_blanks();
    const int32_t minute = in.ok() && !in.at_end() ? in.time(false) : 0;
    in.skip_blanks();
    if (in.ok() && !in.at_end()) in.fail("the end");
    if (!in.ok()) return in.status();
    const int64_t moment = zone.wall_of(day * kDayS + minute * 60, false);
    if (moment >= now_wall_s) return moment;
    return Status(Code::kInvalid, base::printable(text, 40) + " is over: it is " +
                                      format_moment(now_wall_s, zone) + " in the pool's time zone");
  }
  int weekday = -1;
  if (is_letter(in.here())) {
    weekday = in.day();
    in.skip_blanks();
  } else if (!is_digit(in.here())) {
    in.fail("a time, as in now, 18:00, \"Mon 18:00\", \"2026-12-24 18:00\" or +2h");
  }
  const int32_t minute = in.time(false);
  in.skip_blanks();
  if (in.ok() && !in.at_end()) in.fail("the end");
  if (!in.ok()) return in.status();
  for (int64_t day = today;; ++day) {
    if (weekday >= 0 && weekday_of(day) != weekday) continue;
    const int64_t moment = zone.wall_of(day * kDayS + minute * 60, false);
    if (moment >= now_wall_s) return moment;
  }
}

std::string format_moment(int64_t wall_s, const Zone& zone) {
  const int64_t local = wall_s + zone.offset_at(wall_s), day = day_of_second(local);
  const Date date = date_of(day);
  const auto minute = static_cast<int>((local - day * kDayS) / 60);
  return base::format("%04lld-%02d-%02d %02d:%02d", static_cast<long long>(date.year), date.month,
                      date.day, minute / 60, minute % 60);
}

std::string format_clock(int64_t wall_s, int64_t now_wall_s, const Zone& zone) {
  const std::string moment = format_moment(wall_s, zone);
  const std::string now = format_moment(now_wall_s, zone);
  return moment.compare(0, 10, now, 0, 10) == 0 ? moment.substr(11) : moment;
}

}  // namespace tendril::pool
