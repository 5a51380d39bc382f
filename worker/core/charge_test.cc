// SPDX-License-Identifier: Apache-2.0
// The account of a slice by itself: quotas, remembered charges, and workers that charge at the same
// time.
#include "worker/core/charge.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "worker/core/pinned_charge.h"

namespace tendril::worker {
namespace {

wire::Assignment of_two_slices(uint32_t tally) {
  wire::Assignment assignment{};
  assignment.slice_count = 2;
  assignment.tally = tally;
  assignment.slices[0].memory_bytes = 1000;
  assignment.slices[1].memory_bytes = 10;
  return assignment;
}

TEST(Charge, KeepsToTheQuotaOfEachSlice) {
  Charge charge(of_two_slices(0), nullptr);
  EXPECT_TRUE(charge.take(0, 600));
  EXPECT_FALSE(charge.take(0, 401));
  EXPECT_TRUE(charge.take(0, 400));
  EXPECT_FALSE(charge.take(1, 11));
  EXPECT_FALSE(charge.take(0, UINT64_MAX));
  EXPECT_FALSE(charge.take(2, 1)) << "no such slice";
  charge.give_back(0, 2000);  // more than was taken: ignored
  EXPECT_EQ(charge.used(0), 1000u);
  EXPECT_EQ(charge.used(1), 0u);
}

TEST(Charge, RemembersWhatToGiveBack) {
  Charge charge(of_two_slices(0), nullptr);
  const int context = 0, other = 0;
  ASSERT_TRUE(charge.take(0, 100) && charge.take(0, 20) && charge.take(0, 3));
  charge.remember(0x7000, 0, 100, &context);
  charge.remember(0x8000, 0, 20, &other);
  charge.remember(0x9000, 0, 3, &context);
  EXPECT_TRUE(charge.release(0x9000));
  EXPECT_FALSE(charge.release(0x9000));
  EXPECT_EQ(charge.used(0), 120u);
  charge.release_context(&context);
  EXPECT_EQ(charge.used(0), 20u);
  const uint64_t first = charge.hold(0, 500, nullptr), second = charge.hold(0, 400, nullptr);
  EXPECT_NE(first, 0u);
  EXPECT_NE(first, second);
  EXPECT_EQ(charge.hold(0, 200, nullptr), 0u);
  EXPECT_TRUE(charge.release(first));
  EXPECT_EQ(charge.used(0), 420u);
}

TEST(PinnedCharge, EachSlicePaysForEachWholeGib) {
  constexpr uint64_t kGib = uint64_t{1} << 30, kTable = base::kGpuPageBytes;
  wire::Assignment assignment = of_two_slices(0);
  assignment.slices[0].memory_bytes = 3 * kTable;
  assignment.slices[1].memory_bytes = 2 * kTable;
  assignment.slices[0].context_bytes = assignment.slices[1].context_bytes = 1;
  Charge charge(assignment, nullptr);
  PinnedCharge pinned(&charge, 2);
  EXPECT_TRUE(pinned.take(kGib / 2));
  EXPECT_EQ(charge.used(0), 0u);
  EXPECT_TRUE(pinned.take(kGib));
  EXPECT_TRUE(pinned.take(kGib / 2));
  EXPECT_EQ(charge.used(0), 2 * kTable);
  EXPECT_EQ(charge.used(1), 2 * kTable);
  EXPECT_FALSE(pinned.take(kGib)) << "the second slice is full";
  EXPECT_EQ(charge.used(0), 2 * kTable);
  pinned.give_back(kGib);
  EXPECT_EQ(charge.used(0), kTable);
  pinned.give_back(kGib);
  EXPECT_EQ(charge.used(1), 0u);
}

TEST(Charge, AsksForWhatIsKeptBeforeItRefuses) {
  Charge charge(of_two_slices(0), nullptr);
  uint64_t kept = 300;
  int asked = 0;
  ASSERT_TRUE(charge.take(0, 900));
  charge.on_shortage([&](uint32_t slot) {
    ++asked;
    EXPECT_FALSE(charge.take(slot, 500)) << "whoever gives up is not asked again";
    charge.give_back(slot, kept);
    kept = 0;
  });
  EXPECT_FALSE(charge.try_take(0, 200));
  EXPECT_EQ(asked, 0);
  EXPECT_TRUE(charge.take(0, 200));
  EXPECT_EQ(asked, 1);
  EXPECT_FALSE(charge.take(0, 201));
  EXPECT_EQ(asked, 2);
  EXPECT_FALSE(charge.take(0, 1001)) << "which nobody can give up";
  EXPECT_EQ(asked, 2);
}

// As eight workers of one lease do it. The test counts what each worker holds, and does not rely on
// the page for it.
TEST(Charge, WorkersOfOneLeaseTogetherNeverPassTheQuota) {
  const auto page = std::make_unique<wire::AccountingPage>();
  std::atomic<int64_t> held{0}, most{0};
  std::vector<std::thread> workers;
  for (uint32_t tally = 0; tally < 8; ++tally) {
    workers.emplace_back([&, tally] {
      Charge charge(of_two_slices(tally), page.get());
      std::minstd_rand random(tally + 1);
      std::vector<int64_t> mine;
      for (int i = 0; i < 20000; ++i) {
        const int64_t bytes = 1 + static_cast<int64_t>(random() % 200);
        if (!mine.empty() && random() % 2 == 0) {
          held -= mine.back();
          charge.give_back(0, static_cast<uint64_t>(mine.back()));
          mine.pop_back();
        } else if (charge.take(0, static_cast<uint64_t>(bytes))) {
          const int64_t now = held += bytes;
          mine.push_back(bytes);
          for (int64_t seen = most; now > seen && !most.compare_exchange_weak(seen, now);) {
          }
        }
      }
      for (const int64_t bytes : mine) {
        held -= bytes;
        charge.give_back(0, static_cast<uint64_t>(bytes));
      }
    });
  }
  for (std::thread& worker : workers) worker.join();
  EXPECT_LE(most, 1000);
  EXPECT_GT(most, 800) << "it was not tight";
  EXPECT_EQ(Charge(of_two_slices(9), page.get()).used(0), 0u);
}

// What one gives back, another one takes at once, and sometimes two want it.
TEST(Charge, WhoLooksSeesNoMoreThanTheQuota) {
  const auto page = std::make_unique<wire::AccountingPage>();
  std::atomic<int> running{4};
  const auto work = [&](uint32_t tally) {
    Charge charge(of_two_slices(tally), page.get());
    std::mt19937 dice(tally);
    for (int i = 0; i < 100'000; ++i) {
      const uint64_t bytes = 250 + dice() % 500;
      if (charge.take(0, bytes)) charge.give_back(0, bytes);
    }
    --running;
  };
  std::vector<std::thread> workers;
  for (uint32_t i = 0; i < 4; ++i) workers.emplace_back(work, i * 7);
  uint64_t most = 0;
  while (running != 0) most = std::max(most, wire::bytes_in_use(*page, 0));
  for (std::thread& worker : workers) worker.join();
  EXPECT_LE(most, 1000u);
  EXPECT_EQ(wire::bytes_in_use(*page, 0), 0u);
}

TEST(Charge, AsksOthersForWhatTheyKeep) {
  const auto page = std::make_unique<wire::AccountingPage>();
  Charge one(of_two_slices(0), page.get()), two(of_two_slices(1), page.get());
  EXPECT_FALSE(one.ask_others(10)) << "nobody keeps anything";
  one.note_keeps(true);
  EXPECT_FALSE(one.ask_others(10)) << "it asks only others";
  two.note_keeps(true);
  EXPECT_FALSE(two.is_short(20));
  EXPECT_TRUE(one.ask_others(20));
  EXPECT_TRUE(two.is_short(21));
  EXPECT_FALSE(two.is_short(1'000'000'020));
  EXPECT_TRUE(two.is_asked());
  EXPECT_FALSE(one.is_asked());
  two.note_keeps(false);
  EXPECT_FALSE(two.is_asked());
  EXPECT_FALSE(one.ask_others(30));
  two.note_keeps(true);
  EXPECT_TRUE(one.ask_others(40));
  EXPECT_TRUE(one.ask_others(39 + Charge::kAnswerNs));
  EXPECT_FALSE(one.ask_others(40 + Charge::kAnswerNs)) << "it does not answer";
  EXPECT_TRUE(two.is_asked());
  EXPECT_FALSE(Charge(of_two_slices(0), nullptr).ask_others(1));
}

}  // namespace
}  // namespace tendril::worker
