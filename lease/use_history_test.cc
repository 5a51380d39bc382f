// SPDX-License-Identifier: Apache-2.0
// What was used over the last ten seconds, from few points.
#include "lease/use_history.h"

#include <gtest/gtest.h>

namespace tendril::lease {
namespace {

constexpr uint64_t kMs = 1'000'000, kSecond = 1'000'000'000;

TEST(UseHistory, AYoungOneIsMeasuredOverItsAge) {
  UseHistory history;
  EXPECT_EQ(history.recent_millionths(kSecond, 0), 0u);
  history.record(5 * kSecond, 0);
  EXPECT_EQ(history.recent_millionths(7 * kSecond, kSecond), 500'000u);
}

TEST(UseHistory, OldUseIsForgotten) {
  UseHistory history;
  history.record(0, 0);
  history.record(20 * kSecond, 20 * kSecond);  // all of it
  EXPECT_EQ(history.recent_millionths(20 * kSecond, 20 * kSecond), 1'000'000u);
  EXPECT_EQ(history.recent_millionths(25 * kSecond, 20 * kSecond), 500'000u);
  EXPECT_EQ(history.recent_millionths(60 * kSecond, 20 * kSecond), 0u);
}

// Turns of 10 ms, one in four, for a minute. These are many more points than are kept.
TEST(UseHistory, ManyShortTurns) {
  UseHistory history;
  uint64_t used_ns = 0;
  for (uint64_t now_ns = 0; now_ns < 60 * kSecond; now_ns += 40 * kMs) {
    history.record(now_ns, used_ns);
    used_ns += 10 * kMs;
    history.record(now_ns + 10 * kMs, used_ns);
    const double share = history.recent_millionths(now_ns + 40 * kMs, used_ns) / 1e6;
    if (now_ns > kSecond) {
      ASSERT_NEAR(share, 0.25, 0.005) << now_ns;
    }
  }
}

// A short turn, then a long pause whose end nobody recorded.
TEST(UseHistory, APauseIsNotTakenForUse) {
  UseHistory history;
  history.record(0, 0);
  history.record(50 * kMs, 0);
  history.record(60 * kMs, 10 * kMs);
  history.record(60 * kSecond, 10 * kMs);
  EXPECT_EQ(history.recent_millionths(60 * kSecond, 10 * kMs), 0u);
}

}  // namespace
}  // namespace tendril::lease
