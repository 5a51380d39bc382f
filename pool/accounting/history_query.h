// SPDX-License-Identifier: Apache-2.0
// Questions about the pool's history, and the sums that answer them. scheduler/history_reader reads
// the store's chunks and adds their rows here; `tendril report` and the page show what comes out.
// Pure.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/result.h"
#include "pool/accounting/history.h"

namespace tendril::pool {

struct HistoryQuery {
  int64_t from_s = 0, to_s = 0;  // since 1970, UTC
  uint32_t step_s = 0;           // of a bucket; 0: the whole range is one
  std::vector<std::string> by;   // of kHistoryNames
  // Charts of kHistorySeries; none: the sums. `lines`: the names that had most have lines of their
  // own, and all others have one together.
  std::vector<std::string> series;
  uint32_t lines = 12;
  uint64_t lease = 0;    // its totals, and nothing else of this matters
  std::string owner_id;  // only what is theirs; empty: everybody's
};
inline constexpr const char* kHistoryNames[] = {"user",      "account", "user_class",
                                                "gpu_class", "server",  "lease"};
inline constexpr const char* kHistorySeries[] = {"gpus", "utilisation", "memory", "waiting",
                                                 "waits"};
// Words of a command: "from=1790000000", "to=1790003600" (default: now), "step=60",
// "by=user,account", "series=gpus,waits", "lines=12", "points=500" (instead of a step),
// "lease=412". Errors name the word. A range begins at a multiple of its step, and has no more than
// kBucketsMax of them.
base::Result<HistoryQuery> parse_history_query(const std::vector<std::string>& words,
                                               int64_t now_s);
inline constexpr size_t kBucketsMax = 4000, kSumRowsMax = 100'000, kLinesMax = 50;

// The coarsest tier whose chunks say enough; what is newer than its last chunk is in finer ones.
enum class HistoryTier : uint8_t { kHours, kMinutes, kSeconds };
HistoryTier tier_of(const HistoryQuery& query, int64_t now_s);

class HistorySums {
 public:
  explicit HistorySums(HistoryQuery query) : query_(std::move(query)) {}
  // For a series by names: `whole` has the sums of the whole range, and says which names have
  // lines. Without it, memory would be names times points.
  HistorySums(HistoryQuery query, const HistorySums& whole);
  void add(const HistoryChunk& chunk);
  // Only what of the row is before that moment.
  void add(const HistoryRow& row, uint64_t before_ns = UINT64_MAX);
  // Rows that come later are not in. Points of a series end there.
  void set_known_until(uint64_t until_ns) { known_until_ns_ = until_ns; }
  // Not ok: there are too many rows.
  base::Status status() const;
  // A JSON object; README.md has the fields, which are a contract.
  std::string json() const;

 private:
  using Names = std::vector<std::string>;
  using Sums = std::array<unsigned __int128, std::size(kSumFields)>;
  // Those that have no line of their own, together.
  bool are_others(const Names& names) const { return limits_names_ && names.empty(); }
  uint64_t bucket_ns(size_t bucket) const;
  std::map<Names, Sums> totals() const;
  std::vector<Names> by_weight() const;
  double known_seconds(size_t bucket) const;
  std::string head_json() const;
  std::string row_json(const Names& names, const Sums& sums) const;
  std::string sums_json() const;
  std::string charts_json() const;
  std::string chart_json(const std::string& series, const std::vector<Names>& order) const;
  std::string gaps_json() const;

  const HistoryQuery query_;
  const bool limits_names_ = false;
  std::set<Names> kept_;
  size_t others_ = 0;
  uint64_t known_until_ns_ = UINT64_MAX;
  std::map<std::pair<size_t, Names>, Sums> sums_;  // by bucket
  std::vector<HistoryGap> gaps_;
};

// What one lease had, over all its servers: from records of it that ended, and rows of marks.
class LeaseTotals {
 public:
  explicit LeaseTotals(const HistoryQuery& query)
      : lease_(query.lease), owner_id_(query.owner_id) {}
  void add(const UsedRecord& record);
  void add(const HistoryRow& mark);
  // kNotFound: there is no such lease.
  base::Result<std::string> json() const;

 private:
  void add(const UsedSums& sums);

  const uint64_t lease_;
  const std::string owner_id_;
  bool found_ = false, lives_ = false;
  std::string owner_, account_, user_class_, gpu_class_;
  int64_t from_s_ = 0, to_s_ = 0;
  UsedSums sums_;
};

// A record of an ended lease as a row: even over its life.
HistoryRow row_of(const UsedRecord& record);

}  // namespace tendril::pool
