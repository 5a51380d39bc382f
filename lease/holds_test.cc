// SPDX-License-Identifier: Apache-2.0
// Holds: two phases, orders that come twice and late, terms, expiry; and random orders against what
// the book must always keep.
#include "lease/holds.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <random>
#include <set>

#include "wire/assignment.h"

namespace tendril::lease {
namespace {

using base::Code;

constexpr uint64_t kGib = 1ull << 30, kSecond = 1'000'000'000;
constexpr uint32_t kWhole = 1'000'000;

wire::SliceGrant part(uint32_t gpu, uint32_t share) {
  wire::SliceGrant slice;
  slice.gpu_index = gpu;
  slice.share_millionths = share;
  return slice;
}

struct Server {
  LeaseBook book{"box", {{16 * kGib, 0}, {16 * kGib, 0}}};
  Holds holds{&book};
  bool is_new = false;
  uint64_t next_id = 1;

  base::Result<Hold> hold(uint64_t now_ns, uint64_t pool_lease_id, uint32_t gpu, uint32_t share,
                          uint64_t term = 1) {
    return holds.hold(now_ns, term, pool_lease_id, next_id++, {part(gpu, share)}, &is_new);
  }
};

TEST(Holds, TakesRoomFromTheOrderUntilTheEnd) {
  Server server;
  ASSERT_TRUE(server.hold(0, 7, 1, kWhole / 2).ok());
  EXPECT_EQ(server.book.share_used(1), kWhole / 2);
  EXPECT_EQ(server.book.memory_promised(1), 8 * kGib);
  ASSERT_TRUE(server.holds.commit(kSecond, 1, 7).ok());
  auto claimed = server.holds.claim(7);
  ASSERT_TRUE(claimed.ok());
  EXPECT_EQ(claimed->slices[0].memory_bytes, 8 * kGib);
  EXPECT_TRUE(server.holds.expire(1000 * kSecond).empty());
  EXPECT_EQ(server.book.share_used(1), kWhole / 2);
  server.holds.release(7, "it ended");
  EXPECT_EQ(server.book.share_used(1), 0u);
  EXPECT_EQ(server.holds.find(7), nullptr);
}

TEST(Holds, WhatIsNotCommittedInTimeIsFree) {
  Server server;
  ASSERT_TRUE(server.hold(0, 7, 0, kWhole).ok());
  EXPECT_EQ(server.holds.next_expiry_ns(), 10 * kSecond);
  EXPECT_TRUE(server.holds.expire(10 * kSecond - 1).empty());
  const auto expired = server.holds.expire(10 * kSecond);
  ASSERT_EQ(expired.size(), 1u);
  EXPECT_EQ(expired[0].pool_lease_id, 7u);
  EXPECT_EQ(server.book.share_used(0), 0u);
  const base::Status late = server.holds.commit(11 * kSecond, 1, 7);
  EXPECT_EQ(late.code(), Code::kNotFound);
  EXPECT_NE(late.message().find("nobody committed it in time"), std::string::npos)
      << late.message();
}

TEST(Holds, ALateCommitFindsNothingEvenBeforeTheSweep) {
  Server server;
  ASSERT_TRUE(server.hold(0, 7, 0, kWhole).ok());
  EXPECT_EQ(server.holds.commit(10 * kSecond, 1, 7).code(), Code::kNotFound);
  EXPECT_EQ(server.book.share_used(0), 0u);
}

TEST(Holds, WhatNobodyClaimsEnds) {
  Server server;
  ASSERT_TRUE(server.hold(0, 7, 0, kWhole).ok());
  ASSERT_TRUE(server.holds.commit(kSecond, 1, 7).ok());
  EXPECT_TRUE(server.holds.expire(61 * kSecond - 1).empty());
  EXPECT_EQ(server.holds.expire(61 * kSecond).size(), 1u);
  auto late = server.holds.claim(7);
  EXPECT_EQ(late.status().code(), Code::kNotFound);
  EXPECT_NE(late.status().message().find("nobody claimed it in time"), std::string::npos);
}

TEST(Holds, TheSameOrderAgainHasTheSameAnswer) {
  Server server;
  auto first = server.hold(0, 7, 0, kWhole / 2);
  ASSERT_TRUE(first.ok());
  EXPECT_TRUE(server.is_new);
  auto again = server.hold(5 * kSecond, 7, 0, kWhole / 2);
  ASSERT_TRUE(again.ok());
  EXPECT_FALSE(server.is_new);
  EXPECT_EQ(again->lease_id, first->lease_id);
  EXPECT_EQ(again->expires_ns, 15 * kSecond);
  EXPECT_EQ(server.book.share_used(0), kWhole / 2);
  EXPECT_EQ(server.hold(5 * kSecond, 7, 1, kWhole / 2).status().code(), Code::kInvalid);
  EXPECT_TRUE(server.holds.commit(6 * kSecond, 1, 7).ok());
  EXPECT_TRUE(server.holds.commit(7 * kSecond, 1, 7).ok());
  EXPECT_EQ(server.holds.next_expiry_ns(), 66 * kSecond);
  ASSERT_TRUE(server.hold(8 * kSecond, 7, 0, kWhole / 2).ok());
  EXPECT_EQ(server.holds.find(7)->state, HoldState::kCommitted);
  EXPECT_TRUE(server.holds.cancel(1, 7).ok());
  EXPECT_TRUE(server.holds.cancel(1, 7).ok());
  EXPECT_EQ(server.book.share_used(0), 0u);
}

TEST(Holds, AHoldThatComesAfterItsCancelFindsNothing) {
  Server server;
  EXPECT_TRUE(server.holds.cancel(1, 7).ok());
  EXPECT_EQ(server.hold(0, 7, 0, kWhole).status().code(), Code::kNotFound);
  EXPECT_EQ(server.book.share_used(0), 0u);
}

TEST(Holds, AnOrderMaySayHowLongWithinBounds) {
  Server server;
  const std::vector<wire::SliceGrant> slices = {part(0, 10'000)};
  ASSERT_TRUE(server.holds.hold(0, 1, 7, 1, slices, &server.is_new, 3 * kSecond).ok());
  EXPECT_EQ(server.holds.next_expiry_ns(), 3 * kSecond);
  ASSERT_TRUE(server.holds.hold(0, 1, 7, 1, slices, &server.is_new, UINT64_MAX).ok());
  EXPECT_EQ(server.holds.next_expiry_ns(), 60 * kSecond);
  ASSERT_TRUE(server.holds.commit(0, 1, 7, UINT64_MAX).ok());
  EXPECT_EQ(server.holds.next_expiry_ns(), 600 * kSecond);
}

TEST(Holds, ALowerTermIsRefused) {
  Server server;
  ASSERT_TRUE(server.hold(0, 7, 0, kWhole / 2, 4).ok());
  EXPECT_TRUE(server.holds.hear(5).ok());
  EXPECT_EQ(server.hold(0, 8, 1, kWhole, 4).status().code(), Code::kRefused);
  EXPECT_EQ(server.holds.commit(0, 4, 7).code(), Code::kRefused);
  EXPECT_EQ(server.holds.cancel(4, 7).code(), Code::kRefused);
  EXPECT_EQ(server.book.share_used(0), kWhole / 2);
  EXPECT_TRUE(server.holds.commit(0, 5, 7).ok());
  EXPECT_EQ(server.holds.term(), 5u);
}

TEST(Holds, OnlyWhatIsGrantedIsClaimedAndOnlyOnce) {
  Server server;
  ASSERT_TRUE(server.hold(0, 7, 0, kWhole).ok());
  EXPECT_EQ(server.holds.claim(7).status().code(), Code::kUnavailable);
  ASSERT_TRUE(server.holds.commit(0, 1, 7).ok());
  EXPECT_TRUE(server.holds.claim(7).ok());
  EXPECT_EQ(server.holds.claim(7).status().code(), Code::kRefused);
  EXPECT_EQ(server.holds.cancel(1, 7).code(), Code::kRefused);
  EXPECT_EQ(server.book.share_used(0), kWhole);
}

TEST(Holds, AllSlicesOrNone) {
  Server server;
  ASSERT_TRUE(server.hold(0, 6, 1, kWhole / 2).ok());
  const auto both =
      server.holds.hold(0, 1, 7, 100, {part(0, kWhole), part(1, kWhole)}, &server.is_new);
  EXPECT_EQ(both.status().code(), Code::kRefused);
  EXPECT_EQ(server.book.share_used(0), 0u);
  EXPECT_EQ(server.holds.find(7), nullptr);
}

TEST(Holds, OrdersThatCanNeverBeAreInvalid) {
  Server server;
  const auto code = [&](std::vector<wire::SliceGrant> slices) {
    return server.holds.hold(0, 1, 7, server.next_id++, slices, &server.is_new).status().code();
  };
  wire::SliceGrant huge = part(0, kWhole);
  huge.memory_bytes = 17 * kGib;
  EXPECT_EQ(code({}), Code::kInvalid);
  EXPECT_EQ(code({part(2, kWhole)}), Code::kInvalid);
  EXPECT_EQ(code({part(0, kWhole + 1)}), Code::kInvalid);
  EXPECT_EQ(code({part(0, 0)}), Code::kInvalid);
  EXPECT_EQ(code({part(0, 10'000), part(0, 10'000)}), Code::kInvalid);
  EXPECT_EQ(code({huge}), Code::kInvalid);
  EXPECT_EQ(code(std::vector<wire::SliceGrant>(wire::kSlicesMax + 1, part(0, 1))), Code::kInvalid);
  EXPECT_EQ(server.holds.hold(0, 1, 0, 50, {part(0, 10'000)}, &server.is_new).status().code(),
            Code::kInvalid);
}

TEST(Holds, HoldsAndMemoriesOfThemAreBounded) {
  LeaseBook book("box", {{16 * kGib, 0}});
  HoldRules rules;
  rules.holds_max = 2;
  rules.ended_max = 2;
  Holds holds(&book, rules);
  bool is_new = false;
  for (uint64_t id = 1; id <= 3; ++id) {
    const auto held = holds.hold(0, 1, id, id, {part(0, 10'000)}, &is_new);
    EXPECT_EQ(held.status().code(), id <= 2 ? Code::kOk : Code::kExhausted);
  }
  for (uint64_t id = 1; id <= 3; ++id) EXPECT_TRUE(holds.cancel(1, id).ok());
  // The oldest is forgotten, the younger ones are not.
  EXPECT_TRUE(holds.hold(0, 1, 1, 11, {part(0, 10'000)}, &is_new).ok());
  EXPECT_FALSE(holds.hold(0, 1, 3, 12, {part(0, 10'000)}, &is_new).ok());
}

// Random orders of schedulers of several terms, and clients. The book promises exactly what the
// holds say, never too much, and every id that ended stays ended.
TEST(Holds, RandomOrdersKeepTheBook) {
  const char* const given = getenv("TENDRIL_SEED");
  const uint64_t first = given != nullptr ? strtoull(given, nullptr, 10) : 1;
  for (uint64_t seed = first; seed < first + (given != nullptr ? 1 : 20); ++seed) {
    SCOPED_TRACE("TENDRIL_SEED=" + std::to_string(seed));
    std::mt19937_64 random(seed);
    Server server;
    std::set<uint64_t> over;
    uint64_t now_ns = 0;
    for (int step = 0; step < 2000; ++step) {
      now_ns += random() % (2 * kSecond);
      const uint64_t id = 1 + random() % 200, term = 1 + step / 500 + random() % 2;
      const bool was = server.holds.find(id) != nullptr;
      switch (random() % 7) {
        case 0:
        case 1:
          (void)server.hold(now_ns, id, random() % 2, 50'000 * (1 + random() % 20), term).ok();
          break;
        case 2:
          (void)server.holds.commit(now_ns, term, id).ok();
          break;
        case 3:
          (void)server.holds.claim(id).ok();
          break;
        case 4:
          (void)server.holds.cancel(term, id).ok();
          break;
        case 5:
          server.holds.release(id, "over");
          break;
        default:
          for (const Hold& hold : server.holds.expire(now_ns)) over.insert(hold.pool_lease_id);
      }
      if (was && server.holds.find(id) == nullptr) over.insert(id);
      uint64_t shares[2] = {0, 0};
      for (const auto& [held, hold] : server.holds.holds()) {
        EXPECT_EQ(over.count(held), 0u);
        for (const wire::SliceGrant& slice : hold.slices)
          shares[slice.gpu_index] += slice.share_millionths;
      }
      for (uint32_t gpu = 0; gpu < 2; ++gpu) {
        ASSERT_EQ(server.book.share_used(gpu), shares[gpu]);
        ASSERT_LE(shares[gpu], kWhole);
      }
    }
  }
}

}  // namespace
}  // namespace tendril::lease
