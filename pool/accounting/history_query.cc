// SPDX-License-Identifier: Apache-2.0
// See history_query.h.
#include "pool/accounting/history_query.h"

#include <algorithm>
#include <iterator>

#include "base/text.h"
#include "config/text.h"
#include "pool/accounting/sums_json.h"

namespace tendril::pool {
namespace {

using base::Code;
using base::Status;
using Json = nlohmann::ordered_json;

constexpr int64_t kLongestS = int64_t(100) * 366 * 86'400;
constexpr uint32_t kPlotSteps[] = {1,   2,    5,    10,   30,    60,    120,    300,
                                   600, 1800, 3600, 7200, 21600, 86400, 604800, 2592000};
constexpr int64_t kDaySeconds = 86'400;
// "The last hour" is older when it is read, and begins at a multiple of its step.
constexpr int64_t kLatenessS = 60;

bool is_one_of(const std::string& text, const auto& names) {
  return std::any_of(std::begin(names), std::end(names),
                     [&](const char* name) { return text == name; });
}

// Seconds, exactly.
std::string seconds_text(uint64_t ns) {
  return base::format("%llu.%09llu", static_cast<unsigned long long>(ns / kNsOfSecond),
                      static_cast<unsigned long long>(ns % kNsOfSecond));
}

Status bad_word(const std::string& word, const std::string& wanted) {
  return Status(Code::kInvalid, "history: " + base::printable(word) + ": " + wanted);
}

// Splits at commas; what is there twice counts once. False: one is not among the names.
bool read_names(const std::string& value, const auto& known, std::vector<std::string>* names) {
  for (size_t at = 0; at <= value.size() && !value.empty();) {
    const size_t comma = std::min(value.find(',', at), value.size());
    std::string name = value.substr(at, comma - at);
    at = comma + 1;
    if (name == "class") name = "gpu_class";
    if (!is_one_of(name, known)) return false;
    if (std::find(names->begin(), names->end(), name) == names->end())
      names->push_back(std::move(name));
  }
  return true;
}

bool has(const HistoryQuery& query, const char* name) {
  return std::find(query.by.begin(), query.by.end(), name) != query.by.end();
}

std::string lease_text(const HistoryWho& who) {
  if (who.lease != 0) return std::to_string(who.lease);
  return who.server_lease == 0 ? "" : who.server + "/" + std::to_string(who.server_lease);
}

// One step fits so many points into the range, and the tier that still has it.
uint32_t step_for(const HistoryQuery& query, uint64_t points, int64_t now_s) {
  const uint64_t span_s = uint64_t(query.to_s - query.from_s);
  const int64_t age_s = now_s - query.from_s;
  const uint32_t least = age_s > int64_t(kMinutesKeptS)                ? 3600
                         : age_s > int64_t(kSecondsKeptS) + kLatenessS ? 60
                                                                       : 1;
  for (const uint32_t step : kPlotSteps) {
    if (step >= least && span_s / step + 2 <= points) return step;
  }
  return kPlotSteps[std::size(kPlotSteps) - 1];
}

Status check_range(uint64_t points, int64_t now_s, HistoryQuery* query) {
  if (query->to_s <= query->from_s || query->to_s - query->from_s > kLongestS)
    return Status(Code::kInvalid, "history: the range ends before it begins, or is too long");
  if (points != 0) query->step_s = step_for(*query, points, now_s);
  if (query->step_s == 0) return Status();
  query->from_s -= query->from_s % query->step_s;
  if (uint64_t(query->to_s - query->from_s) / query->step_s < kBucketsMax) return Status();
  return Status(Code::kInvalid,
                base::format("history: the range has more than %zu steps of %u s; step=%u fits",
                             kBucketsMax, query->step_s, step_for(*query, kBucketsMax, now_s)));
}

}  // namespace

base::Result<HistoryQuery> parse_history_query(const std::vector<std::string>& words,
                                               int64_t now_s) {
  HistoryQuery query;
  query.to_s = now_s;
  query.from_s = now_s - 3600;
  uint64_t points = 0;
  for (const std::string& word : words) {
    const size_t equals = std::min(word.find('='), word.size());
    const std::string name = word.substr(0, equals),
                      value = equals < word.size() ? word.substr(equals + 1) : "";
    uint64_t number = 0;
    const bool is_number = config::read_number(value, &number) && number <= uint64_t(kLongestS);
    if (name == "by") {
      if (!read_names(value, kHistoryNames, &query.by))
        return bad_word(word, "names are user, account, user_class, gpu_class, server and lease");
    } else if (name == "series") {
      if (!read_names(value, kHistorySeries, &query.series) || query.series.empty())
        return bad_word(word, "series are gpus, utilisation, memory, waiting and waits");
    } else if (!is_number) {
      return bad_word(word, "a whole number is wanted, of from, to, step, points, lines or lease");
    } else if (name == "from") {
      query.from_s = int64_t(number);
    } else if (name == "to") {
      query.to_s = int64_t(number);
    } else if (name == "step") {
      query.step_s = uint32_t(std::min<uint64_t>(number, UINT32_MAX));
    } else if (name == "points") {
      points = std::clamp<uint64_t>(number, 2, kBucketsMax);
    } else if (name == "lines") {
      query.lines = uint32_t(std::clamp<uint64_t>(number, 1, kLinesMax));
    } else if (name == "lease") {
      query.lease = number;
    } else {
      return bad_word(word, "words are from, to, step, points, by, series, lines and lease");
    }
  }
  if (!query.series.empty() && points == 0 && query.step_s == 0) points = 500;
  if (Status status = check_range(points, now_s, &query); !status.ok()) return status;
  return query;
}

HistoryTier tier_of(const HistoryQuery& query, int64_t now_s) {
  const int64_t age_s = now_s - query.from_s, span_s = query.to_s - query.from_s;
  const bool has_minutes = age_s <= int64_t(kMinutesKeptS);
  if (has(query, "lease")) {
    const bool fine = age_s <= int64_t(kSecondsKeptS) && query.step_s % 60 != 0;
    return fine ? HistoryTier::kSeconds : HistoryTier::kMinutes;
  }
  const bool whole_hours = query.from_s % 3600 == 0 && query.step_s % 3600 == 0;
  if (!has_minutes || (whole_hours && span_s > 3600) || (query.step_s == 0 && span_s > kDaySeconds))
    return HistoryTier::kHours;
  const bool fine =
      age_s <= int64_t(kSecondsKeptS) + kLatenessS && (query.step_s % 60 != 0 || span_s <= 600);
  return fine ? HistoryTier::kSeconds : HistoryTier::kMinutes;
}

// ---- sums ----

uint64_t HistorySums::bucket_ns(size_t bucket) const {
  return (uint64_t(query_.from_s) + bucket * query_.step_s) * kNsOfSecond;
}

Status HistorySums::status() const {
  if (sums_.size() <= kSumRowsMax) return Status();
  return Status(Code::kExhausted,
                "history: the answer would have more than " + std::to_string(kSumRowsMax) +
                    " rows; ask for a shorter time, a longer step, or fewer names");
}

HistorySums::HistorySums(HistoryQuery query, const HistorySums& whole)
    : query_(std::move(query)), limits_names_(true) {
  const std::vector<Names> names = whole.by_weight();
  const size_t kept = std::min<size_t>(names.size(), query_.lines);
  kept_.insert(names.begin(), names.begin() + ptrdiff_t(kept));
  others_ = names.size() - kept;
}

void HistorySums::add(const HistoryChunk& chunk) {
  gaps_.insert(gaps_.end(), chunk.gaps.begin(), chunk.gaps.end());
  for (const HistoryRow& row : chunk.rows) add(row);
}

void HistorySums::add(const HistoryRow& row, uint64_t before_ns) {
  if (!query_.owner_id.empty() && row.who.owner_id != query_.owner_id) return;
  // GPUs of a server are nobody's.
  const bool is_capacity = row.who.owner_id.empty() && row.sums.capacity_gpu_ns != 0;
  Names names;
  for (const std::string& name : query_.by) {
    if (is_capacity && name != "server" && name != "gpu_class") return;
    names.push_back(name == "user"         ? row.who.owner
                    : name == "account"    ? row.who.account
                    : name == "user_class" ? row.who.user_class
                    : name == "gpu_class"  ? row.who.gpu_class
                    : name == "server"     ? row.who.server
                                           : lease_text(row.who));
  }
  if (limits_names_ && kept_.count(names) == 0) names.clear();
  const uint64_t from_ns = uint64_t(query_.from_s) * kNsOfSecond;
  const uint64_t to_ns = std::min(uint64_t(query_.to_s) * kNsOfSecond, before_ns);
  const uint64_t last_ns = std::max(row.to_ns, row.from_ns + 1);
  if (last_ns <= from_ns || row.from_ns >= to_ns || sums_.size() > kSumRowsMax) return;
  const uint64_t step_ns = query_.step_s * kNsOfSecond;
  size_t bucket = step_ns == 0 || row.from_ns < from_ns ? 0 : (row.from_ns - from_ns) / step_ns;
  for (;; ++bucket) {
    const uint64_t begin_ns = bucket_ns(bucket);
    const uint64_t end_ns = step_ns == 0 ? to_ns : std::min(begin_ns + step_ns, to_ns);
    if (begin_ns >= to_ns || begin_ns >= last_ns) return;
    const UsedSums part = part_of(row, begin_ns, end_ns);
    Sums& sums = sums_[{bucket, names}];
    for (size_t i = 0; i < sums.size(); ++i) sums[i] += part.*kSumFields[i].second;
    if (step_ns == 0) return;
  }
}

std::string HistorySums::gaps_json() const {
  std::string json;
  for (const HistoryGap& gap : gaps_) {
    if (gap.to_ns <= uint64_t(query_.from_s) * kNsOfSecond ||
        gap.from_ns >= uint64_t(query_.to_s) * kNsOfSecond)
      continue;
    const uint64_t to_s = gap.to_ns / kNsOfSecond + (gap.to_ns % kNsOfSecond != 0);
    json += std::string(json.empty() ? "" : ",") + "[" + std::to_string(gap.from_ns / kNsOfSecond) +
            "," + std::to_string(to_s) + "]";
  }
  return "[" + json + "]";
}

// What both kinds of answers begin with.
std::string HistorySums::head_json() const {
  std::string json = base::format("{\"from_at\":%lld,\"to_at\":%lld,\"step_s\":%u,\"by\":[",
                                  static_cast<long long>(query_.from_s),
                                  static_cast<long long>(query_.to_s), query_.step_s);
  for (size_t i = 0; i < query_.by.size(); ++i)
    json += (i == 0 ? "" : ",") + json_text(query_.by[i]);
  return json + "],\"gaps\":" + gaps_json();
}

// Without braces: `"account":"vision","leases":2,...`.
std::string HistorySums::row_json(const Names& names, const Sums& sums) const {
  std::string json;
  for (size_t i = 0; i < names.size(); ++i)
    json += (json.empty() ? "" : ",") + json_text(query_.by[i]) + ":" + json_text(names[i]);
  for (size_t i = 0; i < sums.size(); ++i) {
    json += std::string(json.empty() ? "\"" : ",\"") + kSumFields[i].first +
            "\":" + whole_text(sums[i]);
  }
  return json;
}

std::string HistorySums::sums_json() const {
  std::string json = head_json() + ",\"rows\":[";
  bool is_first = true;
  for (const auto& [key, sums] : sums_) {
    if (std::all_of(sums.begin(), sums.end(), [](auto sum) { return sum == 0; })) continue;
    json += is_first ? "\n{\"at\":" : ",\n{\"at\":";
    is_first = false;
    json += std::to_string(bucket_ns(key.first) / kNsOfSecond) + "," + row_json(key.second, sums);
    json += "}";
  }
  return json + "]}";
}

std::string HistorySums::json() const {
  return query_.series.empty() ? sums_json() : charts_json();
}

// ---- one lease ----

HistoryRow row_of(const UsedRecord& record) {
  HistoryRow row;
  row.who.lease = record.local ? 0 : record.lease;
  row.who.server_lease = record.server_lease;
  row.who.server = record.server;
  row.who.owner_id = record.owner_id;
  row.who.owner = record.owner;
  row.who.account = record.account;
  row.who.user_class = record.user_class;
  row.who.gpu_class = record.gpu_class;
  row.from_ns = uint64_t(std::clamp<int64_t>(record.granted_at, 0, int64_t(8) << 30)) * kNsOfSecond;
  row.to_ns =
      row.from_ns + std::min<uint64_t>(record.sums.held_ns, uint64_t(kLongestS) * kNsOfSecond);
  row.sums = record.sums;
  row.last = true;
  return row;
}

// Its parts on several servers waited together.
void LeaseTotals::add(const UsedSums& sums) {
  const uint64_t waited_ns = std::max(sums_.waited_ns, sums.waited_ns);
  sums_.add(sums);
  sums_.waited_ns = waited_ns;
}

void LeaseTotals::add(const UsedRecord& record) {
  if (record.lease != lease_ || (!owner_id_.empty() && record.owner_id != owner_id_)) return;
  owner_ = record.owner;
  account_ = record.account;
  user_class_ = record.user_class;
  gpu_class_ = record.gpu_class;
  from_s_ = found_ ? std::min(from_s_, record.granted_at) : record.granted_at;
  to_s_ = std::max(to_s_, record.ended_at);
  found_ = true;
  add(record.sums);
}

void LeaseTotals::add(const HistoryRow& mark) {
  const HistoryWho& who = mark.who;
  if (who.lease != lease_ || who.server_lease == 0 || mark.last) return;
  if (!owner_id_.empty() && who.owner_id != owner_id_) return;
  owner_ = who.owner;
  account_ = who.account;
  user_class_ = who.user_class;
  gpu_class_ = who.gpu_class;
  const auto from_s = int64_t((mark.to_ns - std::min(mark.to_ns, mark.sums.held_ns)) / kNsOfSecond);
  from_s_ = found_ ? std::min(from_s_, from_s) : from_s;
  found_ = lives_ = true;
  add(mark.sums);
}

base::Result<std::string> LeaseTotals::json() const {
  if (!found_) {
    return Status(Code::kNotFound, "the pool's store has nothing of lease " +
                                       std::to_string(lease_) +
                                       "; it began in this minute, or ended long ago");
  }
  const auto memory = [](uint64_t mib_ms) {  // byte-seconds
    return whole_text(static_cast<unsigned __int128>(mib_ms) * (1 << 20) / 1000);
  };
  std::string json = base::format("{\"lease\":%llu,", static_cast<unsigned long long>(lease_));
  json += "\"owner\":" + json_text(owner_) + ",\"account\":" + json_text(account_) +
          ",\"user_class\":" + json_text(user_class_) + ",\"gpu_class\":" + json_text(gpu_class_) +
          ",\"from_at\":" + std::to_string(from_s_) +
          ",\"to_at\":" + (lives_ ? "null" : std::to_string(to_s_)) +
          ",\"parts\":" + std::to_string(sums_.leases);
  for (const auto& [name, ns] : {std::pair{"asked_gpu_s", sums_.asked_gpu_ns},
                                 {"granted_gpu_s", sums_.given_gpu_ns},
                                 {"used_gpu_s", sums_.used_ns},
                                 {"idle_gpu_s", sums_.idle_gpu_ns},
                                 {"idle_s", sums_.idle_ns},
                                 {"held_s", sums_.held_ns},
                                 {"waited_s", sums_.waited_ns},
                                 {"waited_for_turns_s", sums_.gpu_waited_ns}})
    json += std::string(",\"") + name + "\":" + seconds_text(ns);
  return json + ",\"memory_held_byte_s\":" + memory(sums_.memory_held_mib_ms) +
         ",\"memory_used_byte_s\":" + memory(sums_.memory_used_mib_ms) + "}";
}

}  // namespace tendril::pool
