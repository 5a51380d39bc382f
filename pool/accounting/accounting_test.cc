// SPDX-License-Identifier: Apache-2.0
// Records of ended leases and their sums by hour: nothing is lost, to the nanosecond.
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "pool/accounting/hours.h"

namespace tendril::pool {
namespace {

UsedRecord sample() {
  UsedRecord record;
  record.lease = 412;
  record.server_lease = 7;
  record.server = "gpu1";
  record.owner_id = "spiffe://lab/user/ann";
  record.owner = "ann";
  record.account = "vision";
  record.user_class = "batch";
  record.gpu_class = "top";
  record.program = "train \xff\"";
  record.asked_slices = 2;
  record.asked_share_millionths = 500'000;
  record.gpus = {0, 3};
  record.share_millionths = 1'000'000;
  record.granted_at = 1'700'000'000;
  record.ended_at = 1'700'009'000;
  record.sums = {1, 17, 9'000'000'000'001, 5, 4'000'000'000'003, 2, 9'000'000'000'001, 6};
  record.attached = record.exact = true;
  record.why = "the program ended";
  return record;
}

TEST(Accounting, ARecordIsReadAsItWasWritten) {
  const UsedRecord record = sample();
  UsedRecord read;
  ASSERT_TRUE(read_used(used_json(record), &read));
  EXPECT_EQ(read.lease, 412u);
  EXPECT_EQ(read.server, "gpu1");
  EXPECT_EQ(read.gpus, record.gpus);
  EXPECT_EQ(read.granted_at, record.granted_at);
  EXPECT_TRUE(read.sums == record.sums);
  EXPECT_TRUE(read.exact);
  EXPECT_EQ(used_json(read), used_json(record));
}

TEST(Accounting, WhatIsDamagedIsNoRecord) {
  const std::string good = used_json(sample());
  UsedRecord record;
  for (size_t i = 0; i < good.size(); ++i) EXPECT_FALSE(read_used(good.substr(0, i), &record)) << i;
  for (const char* const bad : {"", "[]", "{}", "{\"lease\":-1}", "null"})
    EXPECT_FALSE(read_used(bad, &record)) << bad;
  std::vector<HourRow> rows;
  for (const char* const bad : {"", "[]", "{}", "{\"rows\":{}}", "{\"rows\":[1]}"})
    EXPECT_FALSE(read_hour(bad, &rows)) << bad;
}

TEST(Accounting, ALeaseIsInTheHoursInWhichItRan) {
  const std::vector<HourPart> hours = hours_of(sample(), 0, 100);
  ASSERT_EQ(hours.size(), 3u);  // 22:13:20 to 00:43:20
  EXPECT_EQ(hour_count(sample()), 3u);
  EXPECT_EQ(hours[0].hour, 472'222);
  EXPECT_EQ(hours[0].sums.held_ns, 2'800'000'000'000u);
  EXPECT_EQ(hours[1].sums.held_ns, kHourNs);
  EXPECT_EQ(hours[0].sums.leases, 1u);
  EXPECT_EQ(hours[0].sums.waited_ns, 17u);
  EXPECT_EQ(hours[1].sums.leases, 0u);
}

// Whatever a record says, also nonsense, its hours together are the record.
TEST(Accounting, SumsOfHoursAreTheSumsOfLeases) {
  std::mt19937_64 random(22);
  std::map<std::string, UsedSums> by_lease, by_hour;
  std::map<std::string, std::vector<HourRow>> hours;
  for (int i = 0; i < 300; ++i) {
    UsedRecord record = sample();
    record.owner_id = record.owner = std::string(1, char('a' + random() % 5));
    record.account = random() % 2 == 0 ? "vision" : "nlp";
    record.granted_at = int64_t(random() % 2'000'000'000);
    const uint64_t longest = random() % 3 == 0 ? 400 * kHourNs : 2 * kHourNs;
    record.sums = {1,
                   random() % kHourNs,
                   random() % 10 == 0 ? 0 : random() % longest,
                   random() % longest,
                   random() % longest,
                   random() % longest,
                   random() % (longest * 8),
                   random() % (longest * 8)};
    by_lease[record.account + record.owner].add(record.sums);
    // In pieces, as the store takes them.
    for (size_t at = 0; at < hour_count(record);) {
      const std::vector<HourPart> parts = hours_of(record, at, 1 + random() % 40);
      ASSERT_FALSE(parts.empty());
      at += parts.size();
      for (const HourPart& part : parts) {
        add_to_hour(record, part.sums, &hours[hour_key(part.hour, record.account, "gpu1")]);
      }
    }
  }
  for (const auto& [key, rows] : hours) {
    std::vector<HourRow> read;
    ASSERT_TRUE(read_hour(hour_json(rows), &read));
    const std::string account = key.substr(15, key.rfind('/') - 15);
    for (const HourRow& row : read) by_hour[account + row.owner].add(row.sums);
  }
  EXPECT_TRUE(by_lease == by_hour);
  EXPECT_EQ(by_lease.size(), 10u);
}

TEST(Accounting, ARecordIsKeptAsLongAsIsSaid) {
  const UsedRecord record = sample();
  EXPECT_FALSE(is_old(record, record.ended_at + 10, 10));
  EXPECT_TRUE(is_old(record, record.ended_at + 11, 10));
  EXPECT_FALSE(is_old(record, record.ended_at + 1'000'000'000, 0));
  EXPECT_FALSE(is_old(record, record.ended_at - 100, 10));
}

}  // namespace
}  // namespace tendril::pool
