// SPDX-License-Identifier: Apache-2.0
// See history_checks.h.
#include "pool/simulation/history_checks.h"

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <iterator>
#include <map>
#include <vector>

#include "pool/accounting/history.h"

namespace tendril::pool::simulation {
namespace {

using Sums = std::map<std::string, UsedSums>;
using NameOf = std::function<std::string(const HistoryWho&)>;

std::string lease_name(const std::string& server, uint64_t boot, uint64_t lease) {
  return "lease " + std::to_string(lease) + " of " + server + " in boot " + std::to_string(boot);
}

// Only what records of leases have, too.
void add(const std::string& name, const UsedSums& sums, Sums* to) {
  UsedSums some;
  for (size_t i = 0; i < kLeaseSumFields; ++i)
    some.*kSumFields[i].second = sums.*kSumFields[i].second;
  if (!(some == UsedSums())) (*to)[name].add(some);
}

std::string difference(const Sums& records, const Sums& rows, const std::string& what) {
  for (const auto* one : {&records, &rows}) {
    for (const auto& [name, sums] : *one) {
      const auto record = records.find(name), row = rows.find(name);
      for (const auto& [field, member] : kSumFields) {
        const uint64_t first = record == records.end() ? 0 : record->second.*member;
        const uint64_t second = row == rows.end() ? 0 : row->second.*member;
        if (first == second) continue;
        return name + ": " + field + " is " + std::to_string(first) + " in records and " +
               std::to_string(second) + " in " + what;
      }
    }
  }
  return "";
}

// Rows that name no lease may hide what is missing, but not what is too much.
std::string excess(const Sums& records, const Sums& rows, const std::string& what) {
  Sums too_much = rows;
  for (auto& [name, sums] : too_much) {
    const auto record = records.find(name);
    if (record == records.end()) continue;
    for (const auto& [field, member] : kSumFields)
      sums.*member = std::max(sums.*member, record->second.*member);
  }
  for (const auto& [name, sums] : records) too_much.try_emplace(name, sums);
  return difference(records, too_much, what);
}

struct Chunk {
  std::string tier;
  HistoryChunk chunk;
};

uint64_t last_upto(const std::vector<Chunk>& chunks, const std::string& tier) {
  uint64_t upto_ns = 0;
  for (const Chunk& each : chunks) {
    if (each.tier == tier) upto_ns = std::max(upto_ns, each.chunk.upto_ns);
  }
  return upto_ns;
}

// From the given tier on: what is newer than a tier's last chunk is in the next one.
std::vector<HistoryRow> rows_from(const std::vector<Chunk>& chunks, size_t tier) {
  const std::string tiers[] = {keys::kHours, keys::kMinutes, keys::kSeconds};
  std::vector<HistoryRow> rows;
  uint64_t after_ns = 0;
  for (; tier < std::size(tiers); ++tier) {
    for (const Chunk& each : chunks) {
      if (each.tier != tiers[tier] || each.chunk.upto_ns <= after_ns) continue;
      rows.insert(rows.end(), each.chunk.rows.begin(), each.chunk.rows.end());
    }
    after_ns = std::max(after_ns, last_upto(chunks, tiers[tier]));
  }
  return rows;
}

bool names_no_lease(const HistoryRow& row) {
  return row.sums.leases + row.sums.held_ns != 0 && row.who.server_lease == 0;
}

// By hours, what the minutes have up to the last chunk of hours, and what the hours have.
std::string hours_differ(const std::vector<Chunk>& chunks) {
  const uint64_t upto_ns = last_upto(chunks, keys::kHours);
  Sums minutes, hours;
  for (const Chunk& each : chunks) {
    if (each.tier == keys::kSeconds || each.chunk.upto_ns > upto_ns) continue;
    for (const HistoryRow& row : each.chunk.rows) {
      for (uint64_t hour = row.from_ns / kHourNs; hour <= row.to_ns / kHourNs; ++hour) {
        add("hour " + std::to_string(hour) + " of " + row.who.owner_id + " in " + row.who.account +
                " on " + row.who.server,
            part_of(row, hour * kHourNs, (hour + 1) * kHourNs),
            each.tier == keys::kHours ? &hours : &minutes);
      }
    }
  }
  return difference(minutes, hours, "hours");
}

}  // namespace

std::string history_differs(const FakeStore& store) {
  std::vector<Chunk> chunks;
  for (const std::string& tier : {keys::kHours, keys::kMinutes, keys::kSeconds}) {
    for (const auto& [key, bytes] : store.read(tier)) {
      Chunk& read = chunks.emplace_back();
      read.tier = tier;
      if (!unpack_chunk(bytes, &read.chunk)) return key + " is damaged";
      if (read.chunk.upto_ns != upto_of_key(key)) return key + " is another chunk";
    }
  }
  Sums by_lease, by_user, by_account, by_server;
  for (const auto& [key, json] : store.read(keys::kUsed)) {
    UsedRecord record;
    if (!read_used(json, &record)) return key + " is damaged";
    // used/SERVER-BOOT-LEASE-POOL'S LEASE
    const size_t lease_at = key.rfind('-', key.rfind('-') - 1);
    const size_t boot_at = key.rfind('-', lease_at - 1);
    const uint64_t boot = strtoull(key.c_str() + boot_at + 1, nullptr, 16);
    add(lease_name(record.server, boot, record.server_lease), record.sums, &by_lease);
    add(record.owner_id, record.sums, &by_user);
    add(record.account, record.sums, &by_account);
    add(record.server, record.sums, &by_server);
  }
  const NameOf of_lease = [](const HistoryWho& who) {
    return lease_name(who.server, who.boot, who.server_lease);
  };
  const NameOf of_user = [](const HistoryWho& who) { return who.owner_id; };
  const NameOf of_account = [](const HistoryWho& who) { return who.account; };
  const NameOf of_server = [](const HistoryWho& who) { return who.server; };
  const char* const tiers[] = {"hours", "minutes", "seconds"};
  // Leases, which say most, come first. Seconds may have been thinned.
  for (size_t tier = std::size(tiers) - (store.thins() ? 1 : 0); tier-- > 0;) {
    const std::vector<HistoryRow> rows = rows_from(chunks, tier);
    for (const auto& [sums, name_of] : {std::pair{&by_lease, &of_lease},
                                        {&by_user, &of_user},
                                        {&by_account, &of_account},
                                        {&by_server, &of_server}}) {
      // Hours name no leases, and of a store that failed for hours nor does one of the minutes.
      const bool whole =
          sums != &by_lease || tier == 2 || std::none_of(rows.begin(), rows.end(), names_no_lease);
      Sums found;
      for (const HistoryRow& row : rows)
        if (whole || row.who.server_lease != 0) add((*name_of)(row.who), row.sums, &found);
      std::string differs =
          whole ? difference(*sums, found, tiers[tier]) : excess(*sums, found, tiers[tier]);
      if (!differs.empty()) return differs;
    }
  }
  return hours_differ(chunks);
}

}  // namespace tendril::pool::simulation
