// SPDX-License-Identifier: Apache-2.0
// Blocks in pages: what was measured on an H100, and random blocks that never overlap.
#include "base/page_blocks.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace tendril::base {
namespace {

uint64_t pages_of(uint64_t bytes, int count) {
  PageBlocks blocks;
  uint64_t pages = 0;
  for (int i = 0; i < count; ++i) {
    bool fresh = false;
    blocks.take(bytes, &fresh);
    pages += fresh;
  }
  return pages;
}

TEST(PageBlocks, TakeThePagesThatACardTakes) {
  EXPECT_EQ(pages_of(1, 20'000), 5u);
  EXPECT_EQ(pages_of(65'536, 40), 2u);
  EXPECT_EQ(pages_of(600'000, 20), 7u);
  EXPECT_EQ(pages_of(1u << 20, 40), 20u);
  EXPECT_FALSE(shares_a_page((1u << 20) + 1));
  EXPECT_EQ(whole_pages((1u << 20) + 1), 2u << 20);
  EXPECT_EQ(whole_pages((2u << 20) + 1), 4u << 20);
}

TEST(PageBlocks, AtRandom) {
  std::minstd_rand random(7);
  PageBlocks blocks;
  std::vector<PageBlocks::Place> held;
  int pages = 0;
  for (int i = 0; i < 20'000; ++i) {
    if (!held.empty() && random() % 100 < 48) {
      std::swap(held[random() % held.size()], held.back());
      pages -= blocks.give_back(held.back());
      held.pop_back();
      continue;
    }
    const uint64_t bytes = 1 + random() % (random() % 2 == 0 ? 4096 : kGpuSmallBytesMax);
    const bool fits = blocks.fits(bytes);
    bool fresh = false;
    const PageBlocks::Place made = blocks.take(bytes, &fresh);
    EXPECT_EQ(fresh, !fits);
    EXPECT_GE(made.bytes, bytes);
    EXPECT_LE(made.offset + made.bytes, kGpuPageBytes);
    pages += fresh;
    for (const PageBlocks::Place& other : held) {
      const bool apart = other.page != made.page || other.offset + other.bytes <= made.offset ||
                         made.offset + made.bytes <= other.offset;
      ASSERT_TRUE(apart);
    }
    held.push_back(made);
  }
  for (const PageBlocks::Place& place : held) pages -= blocks.give_back(place);
  EXPECT_EQ(pages, 0);
}

}  // namespace
}  // namespace tendril::base
