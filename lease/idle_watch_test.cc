// SPDX-License-Identifier: Apache-2.0
// What counts as idle, and that doubt never does.
#include "lease/idle_watch.h"

#include <gtest/gtest.h>

namespace tendril::lease {
namespace {

constexpr uint64_t kSecond = 1'000'000'000;

TEST(IdleWatch, ALeaseThatNobodyAttachedToIsIdleFromItsBeginning) {
  IdleWatch watch(kSecond);
  for (uint64_t second = 2; second <= 11; ++second) watch.look(second * kSecond, {}, 0, false);
  EXPECT_EQ(watch.idle_ns(11 * kSecond), 10 * kSecond);
  EXPECT_EQ(watch.idle_total_ns(), 10 * kSecond);
  EXPECT_FALSE(watch.was_attached());
}

TEST(IdleWatch, WorkEndsIdleTimeAndTheSumStays) {
  IdleWatch watch(0);
  LeaseTurns::Work work;
  watch.look(1 * kSecond, work, 1, false);
  for (uint64_t second = 2; second <= 5; ++second) watch.look(second * kSecond, work, 1, false);
  EXPECT_EQ(watch.idle_ns(5 * kSecond), 4 * kSecond);
  work.pieces = 1;
  watch.look(6 * kSecond, work, 1, false);
  EXPECT_EQ(watch.idle_ns(6 * kSecond), 0u);
  watch.look(8 * kSecond, work, 1, false);
  EXPECT_EQ(watch.idle_ns(8 * kSecond), 2 * kSecond);
  EXPECT_EQ(watch.idle_total_ns(), 6 * kSecond);
  EXPECT_TRUE(watch.was_attached());
}

TEST(IdleWatch, WhoBeginsIsNotIdleBeforeALookSeesIt) {
  IdleWatch watch(0);
  for (uint64_t second = 1; second <= 5; ++second) watch.look(second * kSecond, {}, 0, false);
  watch.begins(6 * kSecond);
  EXPECT_EQ(watch.idle_ns(6 * kSecond), 0u);
  watch.look(7 * kSecond, {}, 0, false);
  EXPECT_EQ(watch.idle_ns(7 * kSecond), kSecond);
}

TEST(IdleWatch, WhoWaitsForItsWorkIsNotIdle) {
  IdleWatch watch(0);
  LeaseTurns::Work work;
  work.waiting = true;
  work.replies = 7;
  for (uint64_t second = 1; second <= 100; ++second) watch.look(second * kSecond, work, 1, false);
  EXPECT_EQ(watch.idle_ns(100 * kSecond), 0u);
}

TEST(IdleWatch, WhoOnlyAsksIsIdle) {
  IdleWatch watch(0);
  LeaseTurns::Work work;
  work.waiting = true;  // each look falls into a question
  for (uint64_t second = 1; second <= 100; ++second) {
    work.replies += 1000;
    watch.look(second * kSecond, work, 1, false);
  }
  EXPECT_EQ(watch.idle_ns(100 * kSecond), 99 * kSecond);
}

TEST(IdleWatch, WhatIsUnknownOrPausedIsNotIdle) {
  IdleWatch watch(0);
  LeaseTurns::Work unknown;
  unknown.known = false;
  watch.look(10 * kSecond, unknown, 1, false);
  EXPECT_EQ(watch.idle_ns(10 * kSecond), 0u);
  EXPECT_FALSE(watch.known());
  watch.look(20 * kSecond, {}, 1, true);
  EXPECT_EQ(watch.idle_ns(20 * kSecond), 0u);
  EXPECT_TRUE(watch.known());
  EXPECT_EQ(watch.idle_total_ns(), 0u);
}

}  // namespace
}  // namespace tendril::lease
