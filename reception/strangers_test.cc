// SPDX-License-Identifier: Apache-2.0
// Bounds on strangers, on invented time.
#include "reception/strangers.h"

#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <random>

namespace tendril::reception {
namespace {

constexpr uint64_t kSecond = 1'000'000'000;

TEST(Strangers, TheOldestOfTheCrowdedAddressGoes) {
  Strangers strangers(6, 4);
  for (uint64_t number = 1; number <= 4; ++number) EXPECT_EQ(strangers.arrive(number, "crowd"), 0u);
  EXPECT_EQ(strangers.arrive(5, "crowd"), 1u);  // no address has more than four
  EXPECT_EQ(strangers.arrive(6, "honest"), 0u);
  EXPECT_EQ(strangers.arrive(7, "other"), 0u);
  EXPECT_EQ(strangers.arrive(8, "late"), 2u);  // and all have no more than six
  EXPECT_FALSE(strangers.is_in_crowd(5));
  strangers.leave(6);
  strangers.leave(6);
  EXPECT_EQ(strangers.count(), 5u);
  EXPECT_EQ(strangers.evict(), 3u);
}

TEST(Strangers, ANewcomerOutlivesACrowdOfThousands) {
  Strangers strangers(2048, 256);
  std::mt19937 random(3);
  std::map<uint64_t, bool> here;
  for (uint64_t number = 1; number <= 20'000; ++number) {
    const uint64_t gone = strangers.arrive(number, "crowd " + std::to_string(random() % 20));
    here[number] = true;
    if (gone != 0) here.erase(gone);
    EXPECT_EQ(strangers.count(), here.size());
    EXPECT_LE(here.size(), 2048u);
  }
  EXPECT_TRUE(strangers.is_in_crowd(20'000));
  EXPECT_NE(strangers.arrive(30'000, "honest"), 30'000u);
  EXPECT_FALSE(strangers.is_in_crowd(30'000));
  for (uint64_t number = 40'000; number < 60'000; ++number)
    EXPECT_NE(strangers.arrive(number, "crowd " + std::to_string(random() % 20)), 30'000u);
}

TEST(Guesses, TheFirstFewAreFreeAndThenEachDoubles) {
  Guesses guesses;
  uint64_t now = 50 * kSecond;
  for (int i = 0; i < 4; ++i) {
    guesses.wrong("a", now);
    EXPECT_EQ(guesses.wait_ns("a", now), 0u);
  }
  uint64_t expected = kSecond;
  for (int i = 0; i < 10; ++i) {
    guesses.wrong("a", now);
    EXPECT_EQ(guesses.wait_ns("a", now), expected);
    EXPECT_EQ(guesses.wait_ns("b", now), 0u);
    now += expected;
    EXPECT_EQ(guesses.wait_ns("a", now), 0u);
    expected = std::min(2 * expected, 64 * kSecond);
  }
  now += 600 * kSecond;
  guesses.wrong("a", now);
  EXPECT_EQ(guesses.wait_ns("a", now), 0u);  // forgotten
}

TEST(Guesses, AnHourOfGuessingIsFewGuesses) {
  Guesses guesses;
  int looked_at = 0;
  for (uint64_t now = kSecond; now < 3600 * kSecond; now += kSecond / 100) {
    if (guesses.wait_ns("a", now) != 0) continue;
    ++looked_at;
    guesses.wrong("a", now);
  }
  EXPECT_LT(looked_at, 80);
}

TEST(Repeats, OneLineForMany) {
  Repeats repeats;
  int lines = 0;
  uint64_t counted = 0;
  for (uint64_t now = kSecond; now < 101 * kSecond; now += kSecond / 1000) {
    uint64_t before = 0;
    if (!repeats.due("a", now, &before)) continue;
    ++lines;
    counted += before + 1;
  }
  EXPECT_EQ(lines, 10);
  EXPECT_GT(counted, 90'000u);
  uint64_t before = 7;
  EXPECT_TRUE(repeats.due("b", kSecond, &before));
  EXPECT_EQ(before, 0u);
}

TEST(Repeats, AMillionAddressesTakeBoundedMemory) {
  Repeats repeats;
  Guesses guesses;
  for (int i = 0; i < 100'000; ++i) {
    uint64_t before = 0;
    repeats.due(std::to_string(i), kSecond, &before);
    guesses.wrong(std::to_string(i), kSecond);
  }
  SUCCEED();
}

}  // namespace
}  // namespace tendril::reception
