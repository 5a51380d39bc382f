// SPDX-License-Identifier: Apache-2.0
// See zone.h. A zone file has a table of changes and, after it, a rule for the years that follow
// (in the form of POSIX). The rule is written out until 2100, so that all else sees one table.
#include "pool/policy/zone.h"

#include <algorithm>

#include "base/text.h"
#include "pool/policy/dates.h"

namespace tendril::pool {
namespace {

using base::Code;
using base::Status;

constexpr size_t kZoneBytesMax = 256 * 1024;
constexpr uint32_t kChangesMax = 4096;
constexpr int32_t kOffsetMax = 26 * 3600;
constexpr int64_t kLastYear = 2100;

// The first change that is later than `wall_s`.
std::vector<Zone::Change>::const_iterator later_than(const Zone& zone, int64_t wall_s) {
  return std::upper_bound(
      zone.changes.begin(), zone.changes.end(), wall_s,
      [](int64_t at, const Zone::Change& change) { return at < change.from_s; });
}

class Bytes {
 public:
  explicit Bytes(const std::string& bytes) : bytes_(bytes) {}
  size_t left() const { return bytes_.size() - at_; }
  bool skip(uint64_t count) {
    if (count > left()) return false;
    at_ += static_cast<size_t>(count);
    return true;
  }
  bool number(int size, uint64_t* value) {
    if (left() < static_cast<size_t>(size)) return false;
    *value = 0;
    for (int i = 0; i < size; ++i) *value = *value << 8 | static_cast<uint8_t>(bytes_[at_++]);
    return true;
  }
  std::string rest() const { return bytes_.substr(at_); }

 private:
  const std::string& bytes_;
  size_t at_ = 0;
};

struct Header {
  uint8_t version = 0;
  uint64_t utc_marks = 0, standard_marks = 0, leaps = 0, times = 0, types = 0, letters = 0;

  bool read(Bytes* bytes) {
    uint64_t magic = 0, found = 0;
    if (!bytes->number(4, &magic) || magic != 0x545a6966 || !bytes->number(1, &found) ||
        !bytes->skip(15))
      return false;
    version = static_cast<uint8_t>(found);
    return bytes->number(4, &utc_marks) && bytes->number(4, &standard_marks) &&
           bytes->number(4, &leaps) && bytes->number(4, &times) && bytes->number(4, &types) &&
           bytes->number(4, &letters);
  }
  uint64_t block_bytes(uint64_t time_bytes) const {
    return times * (time_bytes + 1) + types * 6 + letters + leaps * (time_bytes + 4) +
           standard_marks + utc_marks;
  }
};

bool read_table(Bytes* bytes, const Header& header, int time_bytes, Zone* zone) {
  if (header.times > kChangesMax || header.types == 0 || header.types > 256 || header.leaps != 0)
    return false;
  zone->changes.resize(static_cast<size_t>(header.times));
  for (Zone::Change& change : zone->changes) {
    uint64_t value = 0;
    if (!bytes->number(time_bytes, &value)) return false;
    change.from_s = time_bytes == 4 ? static_cast<int32_t>(static_cast<uint32_t>(value))
                                    : static_cast<int64_t>(value);
    if (change.from_s < -(int64_t{1} << 59) || change.from_s > (int64_t{1} << 59)) return false;
  }
  std::vector<uint64_t> kinds(zone->changes.size());
  for (uint64_t& kind : kinds) {
    if (!bytes->number(1, &kind) || kind >= header.types) return false;
  }
  std::vector<int32_t> offsets(static_cast<size_t>(header.types));
  for (int32_t& offset : offsets) {
    uint64_t value = 0;
    if (!bytes->number(4, &value) || !bytes->skip(2)) return false;
    offset = static_cast<int32_t>(static_cast<uint32_t>(value));
    if (offset < -kOffsetMax || offset > kOffsetMax) return false;
  }
  zone->first_offset_s = offsets[0];
  for (size_t i = 0; i < kinds.size(); ++i) {
    zone->changes[i].offset_s = offsets[static_cast<size_t>(kinds[i])];
    if (i > 0 && zone->changes[i].from_s <= zone->changes[i - 1].from_s) return false;
  }
  return bytes->skip(header.letters + header.leaps * static_cast<uint64_t>(time_bytes + 4) +
                     header.standard_marks + header.utc_marks);
}

// "CET-1CEST,M3.5.0,M10.5.0/3": names and offsets, then when summer begins and ends.
class RuleReader {
 public:
  explicit RuleReader(const std::string& text) : text_(text) {}

  struct DayRule {
    char kind = 'M';  // 'M': month, week, weekday; 'J': day without leap days; 'N': day from 0
    int32_t month = 1, week = 1, weekday = 0, day = 0;
    int32_t time_s = 2 * 3600;
  };

  // False: it is not such a rule. `summer` false: one offset for ever.
  bool read() {
    if (!name() || !time(24, &standard_s)) return false;
    standard_s = -standard_s;
    if (at_ == text_.size()) return true;
    summer = true;
    summer_s = standard_s + 3600;
    if (!name()) return false;
    if (at_ < text_.size() && text_[at_] != ',') {
      if (!time(24, &summer_s)) return false;
      summer_s = -summer_s;
    }
    return day_rule(&begin) && day_rule(&end) && at_ == text_.size();
  }

  // When the rule's moment is in that year, by the clock before the change.
  static int64_t local_moment(const DayRule& rule, int64_t year) {
    int64_t day = days_of({year, 1, 1}) + rule.day;
    if (rule.kind == 'J') {
      const bool leap = days_in_month(year, 2) == 29;
      day += (leap && rule.day >= 60 ? 1 : 0) - 1;
    } else if (rule.kind == 'M') {
      const int64_t first = days_of({year, rule.month, 1});
      const int32_t monday_first = (rule.weekday + 6) % 7;  // here 0 is a Sunday
      day = first + (monday_first - weekday_of(first) + 7) % 7 + 7 * (rule.week - 1);
      while (day >= first + days_in_month(year, rule.month)) day -= 7;
    }
    return day * kDayS + rule.time_s;
  }

  bool summer = false;
  int32_t standard_s = 0, summer_s = 0;
  DayRule begin, end;

 private:
  bool at_letter() const {
    return at_ < text_.size() &&
           ((text_[at_] >= 'A' && text_[at_] <= 'Z') || (text_[at_] >= 'a' && text_[at_] <= 'z'));
  }
  bool name() {
    if (at_ < text_.size() && text_[at_] == '<') {
      const size_t close = text_.find('>', at_);
      if (close == std::string::npos) return false;
      at_ = close + 1;
      return true;
    }
    const size_t from = at_;
    while (at_letter()) ++at_;
    return at_ - from >= 3;
  }
  bool number(int32_t most, int32_t* value) {
    *value = 0;
    const size_t from = at_;
    for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_) {
      *value = *value * 10 + (text_[at_] - '0');
      if (*value > most) return false;
    }
    return at_ > from;
  }
  bool take(char letter) {
    if (at_ >= text_.size() || text_[at_] != letter) return false;
    ++at_;
    return true;
  }
  bool time(int32_t hours_max, int32_t* seconds) {
    const bool negative = take('-');
    if (!negative) take('+');
    int32_t hours = 0, minutes = 0, rest = 0;
    if (!number(hours_max, &hours)) return false;
    if (take(':') && !number(59, &minutes)) return false;
    if (minutes >= 0 && take(':') && !number(59, &rest)) return false;
    *seconds = (hours * 60 + minutes) * 60 + rest;
    if (negative) *seconds = -*seconds;
    return true;
  }
  bool day_rule(DayRule* rule) {
    if (!take(',')) return false;
    if (take('M')) {
      if (!number(12, &rule->month) || !take('.') || !number(5, &rule->week) || !take('.') ||
          !number(6, &rule->weekday) || rule->month == 0 || rule->week == 0)
        return false;
    } else if (take('J')) {
      rule->kind = 'J';
      if (!number(365, &rule->day) || rule->day == 0) return false;
    } else {
      rule->kind = 'N';
      if (!number(365, &rule->day)) return false;
    }
    return !take('/') || time(167, &rule->time_s);
  }

  const std::string& text_;
  size_t at_ = 0;
};

// Writes out what the rule says after the last change.
bool add_rule(const std::string& text, Zone* zone) {
  RuleReader rule(text);
  if (!rule.read()) return false;
  if (!rule.summer) return true;
  int64_t after = zone->changes.empty() ? 0 : zone->changes.back().from_s;
  std::vector<Zone::Change> more;
  const int64_t first_year = std::max<int64_t>(date_of(day_of_second(after)).year, 1970);
  for (int64_t year = first_year; year <= kLastYear; ++year) {
    more.push_back({RuleReader::local_moment(rule.begin, year) - rule.standard_s, rule.summer_s});
    more.push_back({RuleReader::local_moment(rule.end, year) - rule.summer_s, rule.standard_s});
  }
  std::sort(more.begin(), more.end(),
            [](const Zone::Change& a, const Zone::Change& b) { return a.from_s < b.from_s; });
  const bool had_any = !zone->changes.empty();
  for (const Zone::Change& change : more) {
    if ((had_any && change.from_s <= after) ||
        (!zone->changes.empty() && change.from_s <= zone->changes.back().from_s))
      continue;
    zone->changes.push_back(change);
  }
  return true;
}

}  // namespace

int32_t Zone::offset_at(int64_t wall_s) const {
  const auto next = later_than(*this, wall_s);
  return next == changes.begin() ? first_offset_s : (next - 1)->offset_s;
}

int64_t Zone::wall_of(int64_t local_s, bool last) const {
  // Any moment at which clocks there may show it.
  const int64_t from = local_s - kOffsetMax, to = local_s + kOffsetMax;
  const auto first = later_than(*this, from);
  const int32_t offset_before = offset_at(from);
  bool found = false;
  int64_t best = 0;
  const auto look = [&](int32_t offset) {
    const int64_t wall = local_s - offset;
    if (offset_at(wall) != offset) return;
    if (!found || (last ? wall > best : wall < best)) best = wall;
    found = true;
  };
  look(offset_before);
  int64_t jump = local_s - offset_before;
  int32_t offset = offset_before;
  for (auto change = first; change != changes.end() && change->from_s <= to; ++change) {
    look(change->offset_s);
    if (change->from_s + offset <= local_s && local_s < change->from_s + change->offset_s)
      jump = change->from_s;
    offset = change->offset_s;
  }
  return found ? best : jump;
}

base::Result<Zone> only_utc(const std::string& name) {
  if (name == "UTC") return Zone();
  return Status(Code::kNotFound, "there are no rules for the time zone '" +
                                     base::printable(name, 64) + "' here, only for UTC");
}

base::Result<Zone> parse_zone(const std::string& bytes, const std::string& name) {
  const Status wrong(Code::kInvalid, "the file of the time zone '" + base::printable(name, 64) +
                                         "' is not in the format TZif, or counts leap seconds");
  if (bytes.size() > kZoneBytesMax) return wrong;
  Zone zone;
  zone.name = name;
  Bytes reader(bytes);
  Header header;
  if (!header.read(&reader)) return wrong;
  if (header.version < '2') {
    if (!read_table(&reader, header, 4, &zone)) return wrong;
    return zone;
  }
  // The first table has 32 bits for a time; the second has 64, and a rule after it.
  if (!reader.skip(header.block_bytes(4)) || !header.read(&reader) ||
      !read_table(&reader, header, 8, &zone))
    return wrong;
  const std::string rest = reader.rest();
  if (rest.size() < 2 || rest.front() != '\n' || rest.back() != '\n') return wrong;
  if (rest.size() > 2 && !add_rule(rest.substr(1, rest.size() - 2), &zone)) return wrong;
  return zone;
}

}  // namespace tendril::pool
