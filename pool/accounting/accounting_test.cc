// SPDX-License-Identifier: Apache-2.0
// Records of ended leases: read as they were written, and kept as long as is said.
#include "pool/accounting/used_record.h"

#include <gtest/gtest.h>

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
