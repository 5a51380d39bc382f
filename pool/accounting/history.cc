// SPDX-License-Identifier: Apache-2.0
// See history.h.
#include "pool/accounting/history.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>

#include "base/text.h"

namespace tendril::pool {
namespace {

constexpr uint64_t kMibMs = (1ull << 20) * 1'000'000;
constexpr uint64_t kMergedNs = 2 * kMinuteNs;  // rows no longer than this become one
// A lease that ended is remembered: a server may say it once more to the next scheduler, which does
// not know what of it was written. One that was lost may even come back with the lease.
constexpr uint64_t kEndedKeptNs = kMinutesKeptS * kNsOfSecond;
constexpr uint64_t kToldKeptNs = 10 * kMinuteNs;   // since its server said all that it knows
constexpr uint64_t kClockOffNs = 2 * kNsOfSecond;  // the wall's clock has whole seconds only
constexpr uint64_t kMostHours = 10'000;            // that one row is spread over
// Of what one write takes, and one value. A row with the longest names takes 1.6 kB.
constexpr size_t kRowsOfChunk = 4'000, kMinuteBytesMax = 900u << 10, kMarksBytesMax = 512u << 10,
                 kRowsBytesMax = 500u << 10;
constexpr uint32_t kChunkSteps[] = {1, 2, 5, 10, 20, 30, 60};

bool has_prefix(const std::string& text, const std::string& prefix) {
  return text.compare(0, prefix.size(), prefix) == 0;
}

// The narrowest step with which so many bytes at a time stay within the rate.
uint64_t step_of(size_t bytes, uint64_t unit_ns, uint64_t kept_bytes, uint64_t kept_s,
                 uint32_t least) {
  const double bytes_of_unit = double(kept_bytes) * double(unit_ns) / 1e9 / double(kept_s);
  for (const uint32_t step : kChunkSteps) {
    if (step >= least && double(bytes) <= bytes_of_unit * step) return step * unit_ns;
  }
  return 60 * unit_ns;
}

uint64_t next_multiple(uint64_t now_ns, uint64_t step_ns) {
  return (now_ns / step_ns + 1) * step_ns;
}

// At most, when packed.
size_t bytes_of(const HistoryRow& row) {
  const HistoryWho& who = row.who;
  return 80 + who.server.size() + who.owner_id.size() + who.owner.size() + who.account.size() +
         who.user_class.size() + who.gpu_class.size();
}

bool is_empty(const UsedSums& sums) { return sums == UsedSums(); }

// One list of writes, of one or more parts.
HistoryWrites chunk_writes(const std::string& tier, uint64_t upto_ns,
                           const std::vector<HistoryRow>& rows,
                           const std::vector<HistoryGap>& gaps) {
  HistoryWrites writes;
  for (size_t at = 0; at < rows.size() || writes.empty(); at += kRowsOfChunk) {
    HistoryChunk chunk;
    chunk.upto_ns = upto_ns;
    if (writes.empty()) chunk.gaps = gaps;
    chunk.rows.assign(rows.begin() + ptrdiff_t(at),
                      rows.begin() + ptrdiff_t(std::min(rows.size(), at + kRowsOfChunk)));
    writes.emplace_back(chunk_key(tier, upto_ns, uint32_t(writes.size())), pack_chunk(chunk));
  }
  return writes;
}

size_t bytes_of(const HistoryWrites& writes) {
  size_t bytes = 0;
  for (const auto& [key, value] : writes) bytes += value.size();
  return bytes;
}

// Rows that do not fit into one write lose what is finest. Sums stay.
void coarsen(int look, std::vector<HistoryRow>* rows) {
  std::map<std::pair<HistoryWho, uint64_t>, HistoryRow> merged;
  for (HistoryRow& row : *rows) {
    row.who.lease = row.who.server_lease = row.who.boot = 0;
    if (look > 0) row.who.server.clear();
    if (look > 1) row.who.owner_id = row.who.owner = "";
    if (look > 2) row.who = HistoryWho();
    const bool is_long = row.to_ns - row.from_ns > kMergedNs;
    const auto [found, is_new] =
        merged.try_emplace({row.who, is_long ? row.from_ns / kHourNs + 1 : 0}, row);
    if (is_new) continue;
    found->second.from_ns = std::min(found->second.from_ns, row.from_ns);
    found->second.to_ns = std::max(found->second.to_ns, row.to_ns);
    found->second.sums.add(row.sums);
  }
  rows->clear();
  for (auto& [key, row] : merged) rows->push_back(std::move(row));
}

// The same, with room for the head in the same write: first the lease goes, then the server, then
// the user. `rows` becomes what is written.
HistoryWrites fitting_writes(const std::string& tier, uint64_t upto_ns,
                             std::vector<HistoryRow>* rows, const std::vector<HistoryGap>& gaps) {
  HistoryWrites writes = chunk_writes(tier, upto_ns, *rows, gaps);
  for (int look = 0; look < 4 && bytes_of(writes) > kMinuteBytesMax; ++look) {
    coarsen(look, rows);
    writes = chunk_writes(tier, upto_ns, *rows, gaps);
  }
  return writes;
}

void read_head(const std::string& text, uint64_t* minutes_upto_ns, uint64_t* hours_upto_ns) {
  char* rest = nullptr;
  *minutes_upto_ns = strtoull(text.c_str(), &rest, 16);
  *hours_upto_ns = strtoull(rest, nullptr, 16);
}

}  // namespace

std::string chunk_key(const std::string& tier, uint64_t upto_ns, uint32_t part) {
  return tier + base::format("%016llx-%04x", static_cast<unsigned long long>(upto_ns), part);
}

uint64_t upto_of_key(const std::string& key) {
  const size_t slash = key.rfind('/');
  if (slash == std::string::npos || !has_prefix(key, keys::kHistory)) return 0;
  return strtoull(key.c_str() + slash + 1, nullptr, 16);
}

std::string expired_before(const std::string& tier, uint64_t now_ns, uint64_t kept_s) {
  const uint64_t kept_ns = kept_s * kNsOfSecond;
  return chunk_key(tier, now_ns - std::min(now_ns, kept_ns));
}

std::vector<HistoryRead> first_history_reads() {
  return {{keys::kHistoryHead, ""}, {keys::kHistoryMarks, ""}};
}

std::vector<HistoryRead> later_history_reads(
    const std::vector<std::pair<std::string, std::string>>& records) {
  uint64_t seconds_after_ns = 0, minutes_after_ns = 0;
  for (const auto& [key, value] : records) {
    if (key == keys::kHistoryHead) read_head(value, &seconds_after_ns, &minutes_after_ns);
  }
  for (const auto& [key, value] : records) {
    HistoryChunk marks;
    if (has_prefix(key, keys::kHistoryMarks) && unpack_chunk(value, &marks))
      seconds_after_ns = std::min(seconds_after_ns, marks.upto_ns);
  }
  return {{keys::kMinutes, chunk_key(keys::kMinutes, minutes_after_ns, 0xffff)},
          {keys::kSeconds, chunk_key(keys::kSeconds, seconds_after_ns, 0xffff)}};
}

// ---- a start ----

size_t History::shard_of(const std::string& server) {
  uint32_t hash = 2166136261u;  // FNV-1a: the same in every build
  for (const char byte : server) hash = (hash ^ uint8_t(byte)) * 16777619u;
  return hash % kShards;
}

std::pair<std::string, std::string> History::head() const {
  return {keys::kHistoryHead,
          base::format("%016llx %016llx", static_cast<unsigned long long>(minutes_upto_ns_),
                       static_cast<unsigned long long>(hours_upto_ns_))};
}

void History::take_head(const std::string& text) {
  read_head(text, &minutes_upto_ns_, &hours_upto_ns_);
  upto_ns_ = std::max({upto_ns_, minutes_upto_ns_, hours_upto_ns_});
}

void History::take_marks(size_t shard, const HistoryChunk& chunk) {
  marks_upto_ns_[shard] = chunk.upto_ns;
  for (const HistoryRow& row : chunk.rows) {
    Total& total = totals_[key_of(row.who)];
    total.row = row;
    total.kept_until_ns = row.to_ns + kept_ns(row.who);
  }
}

// Nobody says again that a request ended.
uint64_t History::kept_ns(const HistoryWho& who) {
  return is_request(who) ? kToldKeptNs : kEndedKeptNs;
}

// A chunk of the seconds, after all marks.
void History::take_chunk(const HistoryChunk& chunk) {
  upto_ns_ = std::max(upto_ns_, chunk.upto_ns);
  for (const HistoryRow& row : chunk.rows) {
    if (chunk.upto_ns > minutes_upto_ns_) put(row, &minutes_);
    const bool is_lease = row.who.server_lease != 0 || row.who.lease != 0;
    if (!is_lease || chunk.upto_ns <= marks_upto_ns_[shard_of(row.who.server)]) continue;
    Total& total = totals_[key_of(row.who)];
    total.row.who = row.who;
    total.row.sums.add(row.sums);
    total.row.to_ns = std::max(total.row.to_ns, row.to_ns);
    total.row.last = row.last;
    total.row.untold = row.untold;
    total.kept_until_ns = row.to_ns + kept_ns(row.who);
  }
  if (chunk.upto_ns <= minutes_upto_ns_) return;
  gaps_of_minutes_.insert(gaps_of_minutes_.end(), chunk.gaps.begin(), chunk.gaps.end());
}

std::vector<std::string> History::recover(
    const std::vector<std::pair<std::string, std::string>>& records, uint64_t now_ns) {
  std::vector<std::string> damaged;
  std::map<std::string, HistoryChunk> chunks;
  for (const auto& [key, value] : records) {
    if (key == keys::kHistoryHead) take_head(value);
    if (!has_prefix(key, keys::kHistory) || key == keys::kHistoryHead) continue;
    HistoryChunk chunk;
    if (!unpack_chunk(value, &chunk))
      damaged.push_back(key);
    else if (has_prefix(key, keys::kHistoryMarks))
      take_marks(std::min<uint64_t>(upto_of_key(key), kShards - 1), chunk);
    else
      chunks[key] = std::move(chunk);
  }
  for (const auto& [key, chunk] : chunks) {
    if (has_prefix(key, keys::kSeconds)) take_chunk(chunk);
    if (!has_prefix(key, keys::kMinutes) || chunk.upto_ns <= hours_upto_ns_) continue;
    for (const HistoryRow& row : chunk.rows) put_hours(row);
    gaps_of_hours_.insert(gaps_of_hours_.end(), chunk.gaps.begin(), chunk.gaps.end());
  }
  const bool lived = std::any_of(totals_.begin(), totals_.end(),
                                 [](const auto& item) { return !item.second.row.last; });
  if (lived && now_ns > upto_ns_ + kClockOffNs) {
    gap_ = HistoryGap{upto_ns_, now_ns};
    gaps_of_seconds_.push_back(*gap_);
  }
  clock_ns_ = std::max(clock_ns_, upto_ns_);
  hour_due_ns_ = next_multiple(hours_upto_ns_ != 0 ? hours_upto_ns_ : now_ns, kHourNs);
  return damaged;
}

uint64_t History::clock(uint64_t monotonic_ns, int64_t wall_s) {
  const uint64_t wall_ns = uint64_t(std::max<int64_t>(0, wall_s)) * kNsOfSecond;
  const bool is_first = clock_monotonic_ns_ == 0;
  const uint64_t passed_ns = is_first ? 0 : monotonic_ns - clock_monotonic_ns_;
  clock_monotonic_ns_ = monotonic_ns;
  // The wall's second may be nearly over.
  if (clock_ns_ + passed_ns + kClockOffNs / 2 < wall_ns)
    clock_ns_ = wall_ns;
  else
    clock_ns_ += clock_ns_ + passed_ns > wall_ns + kClockOffNs ? passed_ns / 2 : passed_ns;
  return clock_ns_;
}

// ---- what comes ----

// `who` counts, not the row's own.
void History::join(const HistoryWho& who, const HistoryRow& row, std::vector<HistoryRow>* rows) {
  HistoryRow* const before = rows->empty() ? nullptr : &rows->back();
  const bool joins =
      before != nullptr && before->to_ns == row.from_ns && row.to_ns - before->from_ns <= kMergedNs;
  if (!joins) {
    rows->push_back(row);
    rows->back().who = who;
    return;
  }
  before->to_ns = row.to_ns;
  before->sums.add(row.sums);
  before->last = row.last;
  before->untold = row.untold;
}

void History::put(HistoryRow row, Rows* rows) { join(row.who, row, &(*rows)[row.who]); }

void History::put_hours(const HistoryRow& row) {
  HistoryRow whole = row;
  whole.who.lease = whole.who.server_lease = whole.who.boot = 0;
  if (whole.to_ns - whole.from_ns > kMostHours * kHourNs)
    whole.from_ns = whole.to_ns - kMostHours * kHourNs;
  for (uint64_t hour = whole.from_ns / kHourNs; hour * kHourNs <= whole.to_ns; ++hour) {
    const UsedSums part = part_of(whole, hour * kHourNs, (hour + 1) * kHourNs);
    if (!is_empty(part)) hours_[{hour, whole.who}].add(part);
  }
}

const HistoryRow& History::heard(const HistoryWho& who, const UsedSums& total,
                                 const Holding& holding, uint64_t began_ns, uint64_t at_ns,
                                 LeaseEnd end) {
  // Leases are heard of all the time, so their names are copied with their first row only.
  auto found = totals_.find(std::tie(who.server, who.boot, who.server_lease, who.lease));
  const bool is_new = found == totals_.end();
  if (is_new) {
    found = totals_.try_emplace(key_of(who)).first;
    found->second.row.who = who;
  }
  Total& known = found->second;
  HistoryRow row;
  if (!is_new) at_ns = std::max(at_ns, known.row.to_ns);
  row.to_ns = at_ns;
  row.from_ns = is_new ? std::min(at_ns, began_ns) : known.row.to_ns;
  row.last = end != LeaseEnd::kLives;
  row.untold = end == LeaseEnd::kConcluded;
  const auto grown = [](uint64_t from, uint64_t to) { return to > from ? to - from : 0; };
  for (const auto& [name, field] : kSumFields)
    row.sums.*field = grown(known.row.sums.*field, total.*field);
  const auto integral = [](uint64_t amount, uint64_t time_ns, uint64_t unit, uint64_t* rest) {
    const auto sum = static_cast<unsigned __int128>(amount) * time_ns + *rest;
    *rest = uint64_t(sum % unit);
    return uint64_t(sum / unit);
  };
  row.sums.memory_held_mib_ms =
      integral(holding.memory_bytes, row.sums.held_ns, kMibMs, &known.held_rest);
  row.sums.memory_used_mib_ms =
      integral(holding.memory_used_bytes, row.sums.held_ns, kMibMs, &known.used_rest);
  row.sums.idle_gpu_ns =
      integral(holding.share_millionths, row.sums.idle_ns, 1'000'000, &known.idle_rest);
  known.row.sums.add(row.sums);
  known.row.to_ns = at_ns;
  known.row.last = row.last;
  known.row.untold = row.untold;
  known.kept_until_ns = clock_ns_ + (row.untold ? kEndedKeptNs : kToldKeptNs);
  if (row.last) {
    // With all that came since the last write.
    std::vector<HistoryRow>& mine = ended_[known.row.who];
    mine.insert(mine.end(), known.pending.begin(), known.pending.end());
    known.pending = {};
    join(known.row.who, row, &mine);
    has_leases_ = true;
  } else if (!is_empty(row.sums)) {
    has_leases_ = true;
    join(known.row.who, row, &known.pending);
  }
  return known.row;
}

void History::told_all(const std::string& server, uint64_t boot, uint64_t now_ns) {
  for (auto at = totals_.lower_bound({server, 0, 0, 0}); at != totals_.end(); ++at) {
    if (std::get<0>(at->first) != server) return;
    Total& total = at->second;
    const bool may_live = total.row.untold && total.row.who.boot == boot;
    if (total.row.last && !may_live)
      total.kept_until_ns = std::min(total.kept_until_ns, now_ns + kToldKeptNs);
  }
}

void History::lost(const std::string& server) {
  for (auto at = totals_.lower_bound({server, 0, 0, 0}); at != totals_.end(); ++at) {
    if (std::get<0>(at->first) != server) return;
    at->second.kept_until_ns = std::max(at->second.kept_until_ns, clock_ns_ + kEndedKeptNs);
  }
}

void History::store_is_back() {
  for (auto& [key, total] : totals_) {
    if (total.row.last)
      total.kept_until_ns = std::max(total.kept_until_ns, clock_ns_ + kToldKeptNs);
  }
}

void History::add(HistoryRow row) {
  if (is_empty(row.sums)) return;
  has_leases_ = has_leases_ || row.who.lease != 0;
  put(std::move(row), &seconds_);
}

// ---- what is written ----

uint64_t History::next_upto(uint64_t now_ns) {
  upto_ns_ = std::max(upto_ns_ + 1, now_ns);
  return upto_ns_;
}

HistoryWrites History::ended() {
  if (ended_.empty()) return {};
  std::vector<HistoryRow> rows;
  for (auto& [who, mine] : ended_) {
    for (HistoryRow& row : mine) {
      put(row, &minutes_);
      rows.push_back(std::move(row));
    }
  }
  ended_.clear();
  return chunk_writes(keys::kSeconds, next_upto(clock_ns_), rows, {});
}

const HistoryWho* History::find(uint64_t lease, const std::string& server) const {
  if (lease == 0) return nullptr;
  for (auto at = totals_.lower_bound({server, 0, 0, 0}); at != totals_.end(); ++at) {
    const HistoryRow& row = at->second.row;
    if (row.who.server != server) return nullptr;
    if (row.who.lease == lease && !row.last) return &row.who;
  }
  return nullptr;
}

std::vector<HistoryRow> History::unheard_since(uint64_t since_ns) const {
  std::vector<HistoryRow> rows;
  for (const auto& [key, total] : totals_) {
    const HistoryRow& row = total.row;
    const bool is_known = row.who.server_lease != 0 || is_request(row.who);
    if (is_known && !row.last && row.to_ns < since_ns) rows.push_back(row);
  }
  return rows;
}

uint64_t History::due_ns(bool waits) const {
  return has_leases_ || waits ? std::min(second_due_ns_, minute_due_ns_) : minute_due_ns_;
}

std::vector<HistoryWrites> History::cut(uint64_t now_ns) {
  std::vector<HistoryWrites> batches;
  cut_seconds(now_ns, &batches);
  if (now_ns < minute_due_ns_) return batches;
  cut_minutes(now_ns, &batches);
  if (now_ns >= hour_due_ns_) cut_hours(now_ns, &batches);
  return batches;
}

// Each part is a chunk of its own: marks know which of them they have.
void History::cut_seconds(uint64_t now_ns, std::vector<HistoryWrites>* batches) {
  if (HistoryWrites late = ended(); !late.empty()) batches->push_back(std::move(late));
  std::vector<HistoryRow> rows;
  size_t bytes = 0, names = 0;
  const auto flush = [&] {
    gaps_of_minutes_.insert(gaps_of_minutes_.end(), gaps_of_seconds_.begin(),
                            gaps_of_seconds_.end());
    batches->push_back(chunk_writes(keys::kSeconds, next_upto(now_ns), rows, gaps_of_seconds_));
    bytes += bytes_of(batches->back());
    names = 0;
    gaps_of_seconds_.clear();
    rows.clear();
  };
  const auto take = [&](std::vector<HistoryRow>* mine, std::vector<HistoryRow>* of_minute) {
    for (HistoryRow& row : *mine) {
      join(row.who, row, of_minute);
      names += bytes_of(row);
      rows.push_back(std::move(row));
      if (rows.size() == kRowsOfChunk || names > kRowsBytesMax) flush();
    }
    mine->clear();
  };
  for (auto& [who, mine] : seconds_) take(&mine, &minutes_[who]);
  for (auto& [key, total] : totals_) {
    if (total.pending.empty()) continue;
    if (total.of_minute == nullptr) total.of_minute = &minutes_[total.row.who];
    take(&total.pending, total.of_minute);
  }
  if (!rows.empty()) flush();
  seconds_.clear();
  has_leases_ = false;
  second_due_ns_ = next_multiple(now_ns, step_of(bytes, kNsOfSecond, limits_.second_bytes,
                                                 kSecondsKeptS, limits_.least_step_s));
}

void History::cut_minutes(uint64_t now_ns, std::vector<HistoryWrites>* batches) {
  for (auto at = totals_.begin(); at != totals_.end();) {
    const HistoryRow& row = at->second.row;
    at->second.of_minute = nullptr;
    const bool is_over = row.last && at->second.kept_until_ns < now_ns;
    at = is_over ? totals_.erase(at) : std::next(at);
  }
  // Before the head says that seconds up to here need not be read.
  cut_marks(upto_ns_, batches);
  // The chunks of seconds up to here are in it.
  minutes_upto_ns_ = upto_ns_;
  std::vector<HistoryRow> rows;
  for (auto& [who, mine] : minutes_) {
    for (HistoryRow& row : mine) {
      row.to_ns = std::min(row.to_ns, minutes_upto_ns_);  // no chunk says what comes after it
      row.from_ns = std::min(row.from_ns, row.to_ns);
      rows.push_back(std::move(row));
    }
  }
  minutes_.clear();
  size_t bytes = 0;
  if (!rows.empty() || !gaps_of_minutes_.empty()) {
    gaps_of_hours_.insert(gaps_of_hours_.end(), gaps_of_minutes_.begin(), gaps_of_minutes_.end());
    HistoryWrites writes =
        fitting_writes(keys::kMinutes, minutes_upto_ns_, &rows, gaps_of_minutes_);
    // Hours are made of the minutes as they are written: who reads these finds the same.
    for (const HistoryRow& row : rows) put_hours(row);
    gaps_of_minutes_.clear();
    bytes = bytes_of(writes);
    writes.push_back(head());
    batches->push_back(std::move(writes));
  }
  minute_due_ns_ =
      next_multiple(now_ns, step_of(bytes, kMinuteNs, limits_.minute_bytes, kMinutesKeptS, 1));
}

void History::cut_marks(uint64_t upto_ns, std::vector<HistoryWrites>* batches) {
  std::map<size_t, HistoryChunk> shards;
  for (size_t shard = 0; shard < kShards; ++shard) shards[shard];
  for (const auto& [key, total] : totals_) {
    shards[shard_of(total.row.who.server)].rows.push_back(total.row);
  }
  HistoryWrites writes;
  size_t bytes = 0;
  for (auto& [shard, chunk] : shards) {
    chunk.upto_ns = upto_ns;
    std::string value = pack_chunk(chunk);
    // Leases that live come first, then requests that wait.
    std::stable_sort(chunk.rows.begin(), chunk.rows.end(),
                     [](const HistoryRow& row, const HistoryRow& other) {
                       return std::pair(row.last, is_request(row.who)) <
                              std::pair(other.last, is_request(other.who));
                     });
    // Only of a server that invents leases. Better a row twice than no marks at all.
    for (; value.size() > kMarksBytesMax; value = pack_chunk(chunk))
      chunk.rows.resize(chunk.rows.size() * 3 / 4);
    if (!writes.empty() && bytes + value.size() > kMarksBytesMax) {
      batches->push_back(std::move(writes));
      writes.clear();
      bytes = 0;
    }
    bytes += value.size();
    writes.emplace_back(keys::kHistoryMarks + base::format("%zx", shard), std::move(value));
  }
  if (!writes.empty()) batches->push_back(std::move(writes));
}

void History::cut_hours(uint64_t now_ns, std::vector<HistoryWrites>* batches) {
  hour_due_ns_ = next_multiple(now_ns, kHourNs);
  if (hours_.empty() && gaps_of_hours_.empty()) return;  // it would replace the last one
  std::vector<HistoryRow> rows;
  for (auto& [key, sums] : hours_) {
    HistoryRow& row = rows.emplace_back();
    row.who = key.second;
    row.from_ns = key.first * kHourNs;
    row.to_ns = std::max(row.from_ns, std::min(row.from_ns + kHourNs, minutes_upto_ns_));
    row.sums = sums;
  }
  hours_.clear();
  hours_upto_ns_ = minutes_upto_ns_;
  HistoryWrites writes = fitting_writes(keys::kHours, hours_upto_ns_, &rows, gaps_of_hours_);
  gaps_of_hours_.clear();
  writes.push_back(head());
  batches->push_back(std::move(writes));
}

}  // namespace tendril::pool
