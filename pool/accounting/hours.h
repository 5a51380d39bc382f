// SPDX-License-Identifier: Apache-2.0
// Sums of ended leases by hour, account, server, user and classes. Records of leases that are older
// than the pool keeps are added to them and go. The sums of the hours of a record are the record's
// own, to the nanosecond: a sum of a lease is spread evenly over its life, and what rounding leaves
// is in a later hour. When it began and what it waited is in its first hour. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "pool/accounting/used_record.h"

namespace tendril::pool {

inline constexpr uint64_t kHourNs = 3'600'000'000'000;

struct HourPart {
  int64_t hour = 0;  // since 1970, UTC
  UsedSums sums;
};
// Its hours from number `first` on, at most `most` of them.
std::vector<HourPart> hours_of(const UsedRecord& record, size_t first, size_t most);
size_t hour_count(const UsedRecord& record);

// What one user had in one hour, of one account on one server.
struct HourRow {
  std::string owner_id, owner, user_class, gpu_class;
  UsedSums sums;
};
// In the store: under this key, a JSON object with a list of rows.
std::string hour_key(int64_t hour, const std::string& account, const std::string& server);
std::string hour_json(const std::vector<HourRow>& rows);
bool read_hour(const std::string& json, std::vector<HourRow>* rows);
void add_to_hour(const UsedRecord& record, const UsedSums& sums, std::vector<HourRow>* rows);

// Whether the pool keeps this record no longer. `keep_s` 0: for ever.
bool is_old(const UsedRecord& record, int64_t now_s, uint64_t keep_s);

namespace keys {
inline const std::string kUsed = "used/";
inline const std::string kHours = "hours/";
}  // namespace keys

}  // namespace tendril::pool
