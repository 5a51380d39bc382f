// SPDX-License-Identifier: Apache-2.0
// Writes the pool's history: takes what servers say of leases as sums that only grow, and makes of
// it rows for the store, in three tiers. Each row that a lease gets is in each tier once, so sums
// of any tier are the lease's own. The scheduler calls it, with its times; it decides nothing.
// Pure.
//
// What came since the last write is a chunk of the seconds. Every minute these chunks together are
// one of the minutes, and every hour one of the hours, which names no leases. A chunk is of what
// *came* in its time: what a server tells late is a row that reaches far back. README.md has the
// keys.
//
// Marks say how much of each lease that lives is in rows already. A later scheduler reads them and
// the chunks after them, so nothing is in the history twice, and nothing is left out: it goes on
// with the servers' own sums.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "pool/accounting/history_chunk.h"

namespace tendril::pool {

// Bounds what is written: where a second's rows would be more, they are of 2, 5, 10, ... seconds,
// and so with minutes.
struct HistoryLimits {
  uint32_t least_step_s = 1;             // divides 60
  uint64_t second_bytes = 256ull << 20;  // of the seconds that are kept, an hour
  uint64_t minute_bytes = 768ull << 20;  // of the minutes that are kept, a month
};
inline constexpr uint64_t kSecondsKeptS = 3600, kMinutesKeptS = 31 * 86'400;

// kConcluded: its server was lost, and has not said that the lease ended. Where the server comes
// back with it, the lease goes on in the history where it was.
enum class LeaseEnd : uint8_t { kLives, kTold, kConcluded };

using HistoryWrites = std::vector<std::pair<std::string, std::string>>;  // key, value

class History {
 public:
  explicit History(HistoryLimits limits) : limits_(limits) {}

  // All that the store has where first_history_reads and later_history_reads say, in any order.
  // Gives the keys of what is damaged. Once, before anything else.
  std::vector<std::string> recover(const std::vector<std::pair<std::string, std::string>>& records,
                                   uint64_t now_ns);
  // Of the time in which nobody recorded, if leases lived then.
  std::optional<HistoryGap> gap() const { return gap_; }

  // This history's clock, from the caller's. It never runs backwards, not over a restart either: if
  // the wall's clock was set back, it goes at half the speed until they agree.
  uint64_t clock(uint64_t monotonic_ns, int64_t wall_s);

  // A lease's sums at a moment. `total`: as its server counts them. Counted here is what follows
  // from what it has then: memory, and GPUs while it is idle. `began_ns`: where its first row
  // begins. Gives all that the history has of it. A request that waits is one,
  // too, with its sums of the queue.
  struct Holding {
    uint64_t memory_bytes = 0, memory_used_bytes = 0, share_millionths = 0;
  };
  const HistoryRow& heard(const HistoryWho& who, const UsedSums& total, const Holding& holding,
                          uint64_t began_ns, uint64_t at_ns, LeaseEnd end);
  // The server has said all that it knows. Leases of its earlier runs do not come back, nor does
  // what it said of leases that ended.
  void told_all(const std::string& server, uint64_t boot, uint64_t now_ns);
  // The server is silent. It may not have heard that its leases' ends are stored, and says them
  // again when it is back, however late.
  void lost(const std::string& server);
  // The store was slow, and nobody heard meanwhile that an end is stored. Servers have as long
  // again to hear it.
  void store_is_back();
  // What is no lease on a server. Rows of no duration are left out.
  void add(HistoryRow row);

  // Rows of leases that ended since the last call, to be written with their records; may be none.
  HistoryWrites ended();
  // All that is due, as lists that are each to be written whole, in this order.
  std::vector<HistoryWrites> cut(uint64_t now_ns);
  // Call cut then. `waits`: there are rows of requests to write, beside what was heard.
  uint64_t due_ns(bool waits = false) const;
  // A lease of the pool that lives on that server; null: there is none. Valid until the next call.
  const HistoryWho* find(uint64_t lease, const std::string& server) const;
  // Leases, and requests, of which nothing was heard since, and that have not ended: all that the
  // history has of each.
  std::vector<HistoryRow> unheard_since(uint64_t since_ns) const;

 private:
  // server, boot, server_lease, lease
  using LeaseKey = std::tuple<std::string, uint64_t, uint64_t, uint64_t>;
  struct Total {
    HistoryRow row;              // all sums up to row.to_ns; `last`: the lease ended
    uint64_t kept_until_ns = 0;  // of one that ended
    uint64_t held_rest = 0, used_rest = 0, idle_rest = 0;
    std::vector<HistoryRow> pending;               // not in the store yet; not of one that ended
    std::vector<HistoryRow>* of_minute = nullptr;  // in minutes_; null: not looked up
  };
  using Rows = std::map<HistoryWho, std::vector<HistoryRow>>;

  static LeaseKey key_of(const HistoryWho& who) {
    return {who.server, who.boot, who.server_lease, who.lease};
  }
  uint64_t next_upto(uint64_t now_ns);
  void take_head(const std::string& text);
  void take_chunk(const HistoryChunk& chunk);
  void take_marks(size_t shard, const HistoryChunk& chunk);
  static void put(HistoryRow row, Rows* rows);
  static void join(const HistoryWho& who, const HistoryRow& row, std::vector<HistoryRow>* rows);
  void put_hours(const HistoryRow& row);
  void cut_seconds(uint64_t now_ns, std::vector<HistoryWrites>* batches);
  void cut_minutes(uint64_t now_ns, std::vector<HistoryWrites>* batches);
  void cut_marks(uint64_t upto_ns, std::vector<HistoryWrites>* batches);
  void cut_hours(uint64_t now_ns, std::vector<HistoryWrites>* batches);
  std::pair<std::string, std::string> head() const;
  static bool is_request(const HistoryWho& who) { return who.server.empty(); }
  // How long the end that an earlier scheduler wrote is remembered.
  static uint64_t kept_ns(const HistoryWho& who);
  static size_t shard_of(const std::string& server);

  static constexpr size_t kShards = 16;
  const HistoryLimits limits_;
  std::map<LeaseKey, Total, std::less<>> totals_;
  Rows seconds_;                                               // of no lease; not in the store yet
  Rows ended_;                                                 // neither; of leases that ended
  Rows minutes_;                                               // not in a chunk of minutes yet
  std::map<std::pair<uint64_t, HistoryWho>, UsedSums> hours_;  // nor of hours; by hour
  bool has_leases_ = false;                                    // rows of leases are pending
  uint64_t second_due_ns_ = 0, minute_due_ns_ = 0, hour_due_ns_ = 0;
  uint64_t upto_ns_ = 0, minutes_upto_ns_ = 0, hours_upto_ns_ = 0;
  uint64_t marks_upto_ns_[kShards] = {};
  std::optional<HistoryGap> gap_;
  std::vector<HistoryGap> gaps_of_seconds_, gaps_of_minutes_, gaps_of_hours_;  // not written yet
  uint64_t clock_ns_ = 0, clock_monotonic_ns_ = 0;
};

// Where a scheduler that begins finds what recover() needs: lists of a prefix, after a key. First
// these, then those that follow from what the first gave.
struct HistoryRead {
  std::string prefix, after;
};
std::vector<HistoryRead> first_history_reads();
std::vector<HistoryRead> later_history_reads(
    const std::vector<std::pair<std::string, std::string>>& records);

namespace keys {
inline const std::string kHistory = "history/";
inline const std::string kHistoryHead = "history/head";
inline const std::string kHistoryMarks = "history/marks/";
inline const std::string kSeconds = "history/s/";
inline const std::string kMinutes = "history/m/";
inline const std::string kHours = "history/h/";
}  // namespace keys
// Keys of chunks grow with upto_ns. Several may have one upto_ns: they are parts.
std::string chunk_key(const std::string& tier, uint64_t upto_ns, uint32_t part = 0);
// 0: it is none.
uint64_t upto_of_key(const std::string& key);
// The chunks that are kept no longer have keys below this one.
std::string expired_before(const std::string& tier, uint64_t now_ns, uint64_t kept_s);

}  // namespace tendril::pool
