// SPDX-License-Identifier: Apache-2.0
// What a scheduler hears of a server's book: everything once, changes at once, sums now and then.
#include "daemon/pool/book_changes.h"

#include <gtest/gtest.h>

namespace tendril::daemon {
namespace {

constexpr uint64_t kSecond = 1'000'000'000;

std::vector<wire::BookEntry> book(size_t leases) {
  std::vector<wire::BookEntry> entries(leases);
  for (size_t i = 0; i < leases; ++i) {
    entries[i].lease_id = i + 1;
    entries[i].phase = wire::LeasePhase::kClaimed;
    entries[i].idle_ns = 0;
  }
  return entries;
}

TEST(BookChanges, NothingIsToldTwice) {
  BookChanges changes;
  bool more = true;
  EXPECT_EQ(changes.take(book(3), 0, &more).size(), 3u);
  EXPECT_FALSE(more);
  EXPECT_TRUE(changes.take(book(3), kSecond, &more).empty());
  EXPECT_EQ(changes.take(book(4), kSecond, &more).size(), 1u);
  changes.forget();
  EXPECT_EQ(changes.take(book(4), kSecond, &more).size(), 4u);
}

TEST(BookChanges, WhatALeaseIsOrHoldsIsToldAtOnce) {
  BookChanges changes;
  bool more = false;
  std::vector<wire::BookEntry> entries = book(2);
  (void)changes.take(entries, 0, &more);
  entries[1].processes = 1;
  auto told = changes.take(entries, 1, &more);
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].lease_id, 2u);
  entries[0].slices.resize(1);
  EXPECT_EQ(changes.take(entries, 2, &more).size(), 1u);
  entries[0].slices[0].share_millionths = 5;
  EXPECT_EQ(changes.take(entries, 3, &more).size(), 1u);
  entries[0].paused = true;
  EXPECT_EQ(changes.take(entries, 4, &more).size(), 1u);
  entries[0].phase = wire::LeasePhase::kEnded;
  entries[0].ended_number = 1;
  EXPECT_EQ(changes.take(entries, 5, &more).size(), 1u);
  EXPECT_TRUE(changes.take(entries, 6, &more).empty());
}

TEST(BookChanges, SumsAreToldEveryTenSeconds) {
  BookChanges changes;
  bool more = false;
  std::vector<wire::BookEntry> entries = book(1);
  (void)changes.take(entries, 0, &more);
  size_t told = 0;
  for (uint64_t second = 1; second <= 60; ++second) {
    entries[0].used_ns += kSecond;
    entries[0].age_ns += kSecond;
    told += changes.take(entries, second * kSecond, &more).size();
  }
  EXPECT_EQ(told, 6u);
}

TEST(BookChanges, BeginAndEndOfIdleTimeAreToldAtOnce) {
  BookChanges changes;
  bool more = false;
  std::vector<wire::BookEntry> entries = book(1);
  (void)changes.take(entries, 0, &more);
  entries[0].idle_ns = 3 * kSecond;
  EXPECT_EQ(changes.take(entries, 1, &more).size(), 1u);
  entries[0].idle_ns = 4 * kSecond;
  EXPECT_TRUE(changes.take(entries, 2, &more).empty());
  entries[0].idle_ns = 2 * kSecond;  // it worked in between
  EXPECT_EQ(changes.take(entries, 3, &more).size(), 1u);
  entries[0].idle_ns = 0;
  EXPECT_EQ(changes.take(entries, 4, &more).size(), 1u);
  entries[0].idle_ns = wire::kIdleUnknown;
  EXPECT_EQ(changes.take(entries, 5, &more).size(), 1u);
}

TEST(BookChanges, UsesAreOfLeasesThatLiveAndAreNotTold) {
  std::vector<wire::BookEntry> entries = book(4);
  entries[1].phase = wire::LeasePhase::kEnded;
  entries[2].used_ns = 7;
  entries[2].memory_used_bytes = 8;
  const auto uses = uses_of(entries, {entries[0]});
  ASSERT_EQ(uses.size(), 2u);
  EXPECT_EQ(uses[0].lease_id, 3u);
  EXPECT_EQ(uses[0].used_ns, 7u);
  EXPECT_EQ(uses[0].memory_used_bytes, 8u);
  EXPECT_EQ(uses[0].idle_ns, 0u);
  EXPECT_EQ(uses_of(book(wire::kLeaseUsesMax + 1), {}).size(), wire::kLeaseUsesMax);
}

TEST(BookChanges, ALongBookComesInParts) {
  BookChanges changes;
  bool more = false;
  const auto entries = book(wire::kBookEntriesMax + 10);
  EXPECT_EQ(changes.take(entries, 0, &more).size(), wire::kBookEntriesMax);
  EXPECT_TRUE(more);
  EXPECT_EQ(changes.take(entries, 0, &more).size(), 10u);
  EXPECT_FALSE(more);
}

}  // namespace
}  // namespace tendril::daemon
