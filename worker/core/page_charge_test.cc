// SPDX-License-Identifier: Apache-2.0
// Allocations with addresses against a driver of the test's own, which cuts small ones from pages.
// At every step the slice is charged at least what that driver holds.
#include "worker/core/page_charge.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <vector>

namespace tendril::worker {
namespace {

constexpr uint64_t kPage = base::kGpuPageBytes;

class Driver {
 public:
  uint64_t allocate(uint64_t bytes) {
    if (!base::shares_a_page(bytes)) {
      taken += base::whole_pages(bytes);
      next_ += base::whole_pages(bytes);
      whole_[next_ - base::whole_pages(bytes)] = base::whole_pages(bytes);
      return next_ - base::whole_pages(bytes);
    }
    bool fresh = false;
    const base::PageBlocks::Place place = blocks_.take(bytes, &fresh);
    if (fresh) {
      taken += kPage;
      pages_[place.page] = next_;
      next_ += kPage;
    }
    const uint64_t address = pages_[place.page] + place.offset;
    small_[address] = place;
    return address;
  }
  void free(uint64_t address) {
    const auto whole = whole_.find(address);
    if (whole != whole_.end()) {
      taken -= whole->second;
      whole_.erase(whole);
      return;
    }
    if (blocks_.give_back(small_[address])) taken -= kPage;
    small_.erase(address);
  }
  uint64_t taken = 0;

 private:
  uint64_t next_ = uint64_t{7} << 40;
  base::PageBlocks blocks_;
  std::map<uint32_t, uint64_t> pages_;
  std::map<uint64_t, base::PageBlocks::Place> small_;
  std::map<uint64_t, uint64_t> whole_;
};

wire::Assignment of_pages(uint64_t pages) {
  wire::Assignment assignment{};
  assignment.slice_count = 1;
  assignment.slices[0].memory_bytes = pages * kPage;
  return assignment;
}

TEST(PageCharge, IsNeverLessThanWhatTheDriverHolds) {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    std::minstd_rand random(seed);
    Charge charge(of_pages(20), nullptr);
    PageCharge pages(&charge);
    Driver driver;
    std::vector<uint64_t> held;
    int contexts[2] = {}, refused = 0;
    for (int i = 0; i < 3000; ++i) {
      if (!held.empty() && random() % 100 < 45) {
        std::swap(held[random() % held.size()], held.back());
        driver.free(held.back());
        pages.freed(held.back());
        held.pop_back();
      } else {
        const uint64_t bytes = random() % (random() % 4 == 0 ? 3 * kPage : kPage / 4);
        uint64_t ahead = 0;
        if (!pages.before(0, bytes, &ahead)) {
          ++refused;
          continue;
        }
        const uint64_t address = driver.allocate(bytes);
        ASSERT_TRUE(pages.after(0, address, bytes, &contexts[i % 2], ahead));
        held.push_back(address);
      }
      ASSERT_EQ(charge.used(0), driver.taken) << "seed " << seed << ", step " << i;
      ASSERT_LE(charge.used(0), charge.quota(0));
    }
    EXPECT_GT(refused, 0);
    pages.release_context(&contexts[0]);
    pages.release_context(&contexts[1]);
    EXPECT_EQ(charge.used(0), 0u);
  }
}

TEST(PageCharge, SmallBlocksFillTheLastPage) {
  Charge charge(of_pages(1), nullptr);
  PageCharge pages(&charge);
  uint64_t ahead = 0;
  for (uint64_t i = 0; i < 4; ++i) {
    ASSERT_TRUE(pages.before(0, kPage / 4, &ahead)) << i;
    ASSERT_TRUE(pages.after(0, 8 * kPage + i * kPage / 4, kPage / 4, nullptr, ahead));
  }
  EXPECT_FALSE(pages.before(0, 1, &ahead));
  EXPECT_EQ(charge.used(0), kPage);
  pages.freed(8 * kPage + kPage / 4);
  ASSERT_TRUE(pages.before(0, 1, &ahead));
  EXPECT_FALSE(pages.after(0, 20 * kPage, 1, nullptr, ahead)) << "the driver put it elsewhere";
  EXPECT_EQ(charge.used(0), kPage);
  EXPECT_EQ(PageCharge::bytes_around(3 * kPage + 5, 10), kPage);
  EXPECT_EQ(PageCharge::bytes_around(3 * kPage + 5, kPage), 2 * kPage);
}

TEST(PageCharge, WhatIsPaidAheadIsSpentAndComesBack) {
  wire::Assignment assignment{};
  assignment.slice_count = 1;
  assignment.slices[0].memory_bytes = 8 * kPage;
  Charge charge(assignment, nullptr);
  PageCharge pages(&charge);
  EXPECT_FALSE(pages.pay_ahead(0, 9 * kPage));
  EXPECT_TRUE(pages.pay_ahead(0, 6 * kPage));
  EXPECT_FALSE(pages.spend(0, 64 * kPage, 7 * kPage, nullptr)) << "that much is not paid";
  EXPECT_TRUE(pages.spend(0, 64 * kPage, 4 * kPage, nullptr));
  EXPECT_FALSE(pages.spend(0, 64 * kPage, kPage, nullptr)) << "something is there";
  EXPECT_EQ(pages.paid_ahead(0), 2 * kPage);
  EXPECT_EQ(charge.used(0), 6 * kPage);
  pages.keep(64 * kPage);
  EXPECT_EQ(pages.paid_ahead(0), 6 * kPage);
  pages.give_up(0, 5 * kPage);
  EXPECT_EQ(charge.used(0), kPage);
  pages.give_up(0, UINT64_MAX);
  EXPECT_EQ(charge.used(0), 0u);
  EXPECT_TRUE(pages.pay_ahead(0, 2 * kPage));
  EXPECT_TRUE(pages.spend(0, 64 * kPage, 2 * kPage, &pages));
  pages.release_context(&pages);
  EXPECT_EQ(charge.used(0), 0u) << "what ends with a context is paid no more";
  EXPECT_FALSE(pages.pay_ahead(wire::kSlicesMax, 1));
  pages.give_up(wire::kSlicesMax, 1);
}

TEST(Charge, BlocksOfOneKindSharePages) {
  Charge charge(of_pages(4), nullptr);
  const uint64_t one = charge.hold_block(0, Charge::Blocks::kArrays, 1000, nullptr),
                 two = charge.hold_block(0, Charge::Blocks::kArrays, 1000, nullptr),
                 code = charge.hold_block(0, Charge::Blocks::kCode, 1000, nullptr);
  EXPECT_EQ(charge.used(0), 2 * kPage);
  const uint64_t large = charge.hold_block(0, Charge::Blocks::kCode, kPage + 1, nullptr);
  EXPECT_NE(large, 0u);
  EXPECT_EQ(charge.used(0), 4 * kPage);
  EXPECT_EQ(charge.hold_block(0, Charge::Blocks::kCode, kPage, nullptr), 0u);
  charge.rename(one, 77);
  EXPECT_FALSE(charge.release(one));
  EXPECT_TRUE(charge.release(77));
  EXPECT_EQ(charge.used(0), 4 * kPage);
  EXPECT_TRUE(charge.release(two));
  EXPECT_EQ(charge.used(0), 3 * kPage);
  EXPECT_TRUE(charge.release(code) && charge.release(large));
  EXPECT_EQ(charge.used(0), 0u);
}

}  // namespace
}  // namespace tendril::worker
