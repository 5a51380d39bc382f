// SPDX-License-Identifier: Apache-2.0
// Tests of holes.h.
#include "base/holes.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace tendril::base {
namespace {

TEST(Holes, FirstFitAndJoining) {
  Holes<> holes;
  uint64_t a = 0, b = 0, c = 0;
  EXPECT_FALSE(holes.take(1, &a));
  EXPECT_EQ(holes.add(100, 50), 50u);
  ASSERT_TRUE(holes.take(20, &a) && holes.take(20, &b) && holes.take(10, &c));
  EXPECT_EQ(a, 100u);
  EXPECT_EQ(b, 120u);
  EXPECT_EQ(c, 140u);
  EXPECT_TRUE(holes.empty());
  EXPECT_EQ(holes.add(a, 20), 20u);
  EXPECT_EQ(holes.add(c, 10), 10u);
  EXPECT_FALSE(holes.take(21, &a));
  EXPECT_EQ(holes.add(b, 20), 50u);
  EXPECT_EQ(holes.largest(), 50u);
}

TEST(Holes, NotesDecideAndTheLastOneStays) {
  Holes<int> holes;
  uint64_t at = 0;
  int note = 0;
  holes.add(0, 10, 1);
  holes.add(20, 10, 2);
  const auto later = [](int of) { return of >= 2; };
  ASSERT_TRUE(holes.take(4, &at, &note, later));
  EXPECT_EQ(at, 20u);
  EXPECT_EQ(note, 2);
  EXPECT_EQ(holes.add(10, 14, 3), 30u);
  ASSERT_TRUE(holes.take(30, &at, &note, later));
  EXPECT_EQ(at, 0u);
  EXPECT_EQ(note, 3);
}

TEST(Holes, WhatIsCutOutIsNotGivenOut) {
  Holes<> holes;
  uint64_t at = 0;
  holes.add(0, 100);
  holes.cut_out(30, 40);
  EXPECT_FALSE(holes.take(31, &at));
  ASSERT_TRUE(holes.take(30, &at));
  EXPECT_EQ(at, 0u);
  ASSERT_TRUE(holes.take(30, &at));
  EXPECT_EQ(at, 70u);
  holes.cut_out(0, 100);
  EXPECT_TRUE(holes.empty());
}

// Against a table of bytes.
TEST(Holes, RandomTakesAndGives) {
  constexpr uint64_t kBytes = 512;
  std::mt19937 dice(24);
  Holes<> holes;
  holes.add(0, kBytes);
  std::vector<bool> used(kBytes);
  std::vector<std::pair<uint64_t, uint64_t>> parts;
  for (int step = 0; step < 20000; ++step) {
    if (dice() % 2 == 0 || parts.empty()) {
      const uint64_t bytes = 1 + dice() % 60;
      uint64_t first = 0, run = 0;
      while (first + run < kBytes && run < bytes) {
        if (used[first + run])
          first += run + 1, run = 0;
        else
          ++run;
      }
      uint64_t at = 0;
      ASSERT_EQ(holes.take(bytes, &at), run == bytes);
      if (run != bytes) continue;
      ASSERT_EQ(at, first);
      for (uint64_t i = 0; i < bytes; ++i) used[at + i] = true;
      parts.emplace_back(at, bytes);
    } else {
      const size_t i = dice() % parts.size();
      const auto [at, bytes] = parts[i];
      parts[i] = parts.back();
      parts.pop_back();
      for (uint64_t k = 0; k < bytes; ++k) used[at + k] = false;
      holes.add(at, bytes);
    }
  }
}

}  // namespace
}  // namespace tendril::base
