// SPDX-License-Identifier: Apache-2.0
// A piece of the pool's history as the store keeps it: rows that say who had how much between two
// moments. All three tiers (seconds, minutes, hours) and the marks of a recovery have this form.
// Times are nanoseconds since 1970, UTC. The bytes come from a store that may be damaged: reading
// is bounded. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "pool/accounting/used_record.h"

namespace tendril::pool {

// Whose sums they are. Rows of a server's capacity have server and gpu_class only; rows of requests
// that wait have no server.
struct HistoryWho {
  uint64_t server_lease = 0, lease = 0, boot = 0;  // 0: not of one lease; the pool's is `lease`
  std::string server, owner_id, owner, account, user_class, gpu_class;
  auto operator<=>(const HistoryWho&) const = default;
};

struct HistoryRow {
  HistoryWho who;
  uint64_t from_ns = 0, to_ns = 0;
  UsedSums sums;      // between the two, even
  bool last = false;  // the lease ended then
  // It ended as the scheduler sees it, and its server has not said so: it may live after all.
  bool untold = false;
};

struct HistoryGap {
  uint64_t from_ns = 0, to_ns = 0;
};

// Nobody recorded in `gaps`: rows that reach over them are whole, but not known any finer.
struct HistoryChunk {
  uint64_t upto_ns = 0;  // when the last row came; grows from chunk to chunk
  std::vector<HistoryGap> gaps;
  std::vector<HistoryRow> rows;
};

std::string pack_chunk(const HistoryChunk& chunk);
bool unpack_chunk(const std::string& bytes, HistoryChunk* chunk);
inline constexpr size_t kChunkRowsMax = 65'536, kChunkBytesMax = 768u << 10;

// What of the row lies between the moments. Parts that follow each other sum to the row. What
// counts beginnings (`leases`, `waited_ns`) is in the part that has the beginning.
UsedSums part_of(const HistoryRow& row, uint64_t from_ns, uint64_t to_ns);

inline constexpr uint64_t kNsOfSecond = 1'000'000'000, kMinuteNs = 60 * kNsOfSecond,
                          kHourNs = 60 * kMinuteNs;

}  // namespace tendril::pool
