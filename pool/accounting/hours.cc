// SPDX-License-Identifier: Apache-2.0
// See hours.h.
#include "pool/accounting/hours.h"

#include <algorithm>

#include "base/text.h"
#include "pool/accounting/sums_json.h"

namespace tendril::pool {

using Json = nlohmann::ordered_json;

namespace {

constexpr size_t kRowsMax = 4096;
constexpr size_t kHourBytesMax = 768u << 10;  // what a store takes as one value
constexpr uint64_t kLongestNs = kHourNs * 24 * 366 * 10;

// Of a damaged record nothing may overflow.
uint64_t begin_of(const UsedRecord& record) {
  const int64_t at_s = std::clamp<int64_t>(record.granted_at, 0, int64_t(8) << 30);
  return uint64_t(at_s) * 1'000'000'000;
}
uint64_t held_of(const UsedRecord& record) { return std::min(record.sums.held_ns, kLongestNs); }

// How much of `total` belongs to the first `part` of `whole`.
uint64_t share_of(uint64_t total, uint64_t part, uint64_t whole) {
  if (part >= whole) return total;
  return uint64_t(static_cast<unsigned __int128>(total) * part / whole);
}

}  // namespace

size_t hour_count(const UsedRecord& record) {
  const uint64_t begin = begin_of(record), held = held_of(record);
  return held == 0 ? 1 : size_t((begin + held - 1) / kHourNs - begin / kHourNs) + 1;
}

std::vector<HourPart> hours_of(const UsedRecord& record, size_t first, size_t most) {
  const uint64_t begin = begin_of(record), held = held_of(record);
  const uint64_t first_hour = begin / kHourNs;
  const size_t count = hour_count(record);
  std::vector<HourPart> parts;
  for (size_t i = first; i < count && parts.size() < most; ++i) {
    const uint64_t from = std::max(begin, (first_hour + i) * kHourNs) - begin;
    // The last hour has all the rest.
    const bool last = i + 1 == count;
    const uint64_t to = last ? held : (first_hour + i + 1) * kHourNs - begin;
    HourPart part;
    part.hour = int64_t(first_hour + i);
    for (const auto& [key, field] : kSumFields) {
      const uint64_t total = record.sums.*field;
      if (field == &UsedSums::leases || field == &UsedSums::waited_ns) {
        part.sums.*field = i == 0 ? total : 0;
      } else {
        const uint64_t end = last ? total : share_of(total, to, held);
        part.sums.*field = end - (i == 0 ? 0 : share_of(total, from, held));
      }
    }
    parts.push_back(part);
  }
  return parts;
}

std::string hour_key(int64_t hour, const std::string& account, const std::string& server) {
  return keys::kHours + base::format("%08lld/", static_cast<long long>(hour)) + account + "/" +
         server;
}

std::string hour_json(const std::vector<HourRow>& rows) {
  Json list = Json::array();
  for (const HourRow& row : rows) {
    Json json;
    json["owner_id"] = row.owner_id;
    json["owner"] = row.owner;
    json["user_class"] = row.user_class;
    json["gpu_class"] = row.gpu_class;
    put_sums(row.sums, &json);
    list.push_back(std::move(json));
  }
  Json json;
  json["rows"] = std::move(list);
  return text_of(json);
}

bool read_hour(const std::string& text, std::vector<HourRow>* rows) {
  rows->clear();
  if (text.size() > kHourBytesMax) return false;
  const Json json = Json::parse(text, nullptr, false);
  const Json* const list = find(json, "rows");
  if (list == nullptr || !list->is_array() || list->size() > kRowsMax) return false;
  for (const Json& each : *list) {
    HourRow row;
    if (!get(each, "owner_id", &row.owner_id) || !get(each, "owner", &row.owner) ||
        !get(each, "user_class", &row.user_class) || !get(each, "gpu_class", &row.gpu_class) ||
        !get_sums(each, &row.sums)) {
      return false;
    }
    rows->push_back(std::move(row));
  }
  return true;
}

void add_to_hour(const UsedRecord& record, const UsedSums& sums, std::vector<HourRow>* rows) {
  for (HourRow& row : *rows) {
    if (row.owner_id != record.owner_id || row.user_class != record.user_class ||
        row.gpu_class != record.gpu_class) {
      continue;
    }
    row.sums.add(sums);
    return;
  }
  rows->push_back({record.owner_id, record.owner, record.user_class, record.gpu_class, sums});
}

bool is_old(const UsedRecord& record, int64_t now_s, uint64_t keep_s) {
  if (keep_s == 0 || record.ended_at > now_s) return false;
  return uint64_t(now_s - record.ended_at) > keep_s;
}

}  // namespace tendril::pool
