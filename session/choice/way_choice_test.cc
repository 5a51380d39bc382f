// SPDX-License-Identifier: Apache-2.0
// The arithmetic of the choice, and what is remembered of a way.
#include "session/choice/way_choice.h"

#include <gtest/gtest.h>

#include <random>

#include "session/choice/ways.h"

namespace tendril::session {
namespace {

WayChoice of(transport::Measured fabric, transport::Measured connections) {
  return choose_way("rdma", fabric, "tcp", connections);
}

TEST(WayChoice, CallsAndBulkDataAreChosenApart) {
  const struct {
    transport::Measured fabric, connections;
    bool calls, bulk;
  } cases[] = {
      {{4, 11}, {21, 6}, true, true},     {{4, 1}, {21, 6}, true, false},
      {{40, 11}, {21, 6}, false, true},   {{40, 1}, {21, 6}, false, false},
      {{23, 5.5}, {21, 6}, true, true},    // noise
      {{24, 5.4}, {21, 6}, false, false},  // no noise any more
      {{0, 0}, {21, 6}, false, false},     // nothing was measured
      {{4, 11}, {0, 0}, true, true},
  };
  for (const auto& each : cases) {
    const WayChoice choice = of(each.fabric, each.connections);
    EXPECT_EQ(choice.calls, each.calls) << choice.text;
    EXPECT_EQ(choice.bulk, each.bulk) << choice.text;
  }
}

TEST(WayChoice, SaysWhatElseWasThereAndByWhatMargin) {
  EXPECT_EQ(of({4.1, 1.1}, {20.5, 3.3}).text,
            "calls over rdma (4.1 us; tcp 20.5 us: 5.0 times), bulk data over tcp (3.3 GB/s; rdma "
            "1.1 GB/s: 3.0 times)");
  EXPECT_EQ(of({4.1, 1.1}, {20.5, 3.3}).brief, "rdma (calls 5.0x) + tcp (bulk 3.0x)");
  EXPECT_EQ(of({4.1, 9.9}, {20.5, 3.3}).brief, "rdma (5.0x, 3.0x)");
  EXPECT_EQ(of({41, 1.1}, {20.5, 3.3}).brief, "tcp (2.0x, 3.0x)");
}

TEST(WayChoice, BetterNumbersNeverLoseWhatWorseOnesWon) {
  std::mt19937 random(28);
  std::uniform_real_distribution<double> any(0.01, 100);
  for (int i = 0; i < 10'000; ++i) {
    const transport::Measured fabric{any(random), any(random)}, other{any(random), any(random)};
    const WayChoice choice = of(fabric, other);
    const WayChoice better = of({fabric.round_trip_us / 2, fabric.gigabytes_per_second * 2}, other);
    EXPECT_GE(better.calls, choice.calls);
    EXPECT_GE(better.bulk, choice.bulk);
    EXPECT_LT(choice.brief.size(), 64u);
  }
}

TEST(WayRecord, IsReadAsWritten) {
  const WayRecord record{
      "mlx5_0:1 fe80, peer fe81", 1'000'000, {21.5, 6.25}, "", {4.5, 11}, "a:1>b:2", "c:1>d:1"};
  WayRecord read;
  ASSERT_TRUE(read_record(written(record), record.way, 1'000'001, &read));
  EXPECT_EQ(read.connections.round_trip_us, 21.5);
  EXPECT_EQ(read.connections.gigabytes_per_second, 6.25);
  EXPECT_EQ(read.failure, "");
  EXPECT_EQ(read.fabric.round_trip_us, 4.5);
  EXPECT_EQ(read.fabric.gigabytes_per_second, 11);
  EXPECT_EQ(read.best, "a:1>b:2");
  EXPECT_EQ(read.beside, "c:1>d:1");
}

TEST(WayRecord, HoldsForADayAndForThatWayOnly) {
  WayRecord record{"here, there", 1'000'000, {21.5, 6.25}, "", {}}, read;
  const std::string works = written(record);
  record.failure = "nothing came back";
  const std::string fails = written(record);
  EXPECT_TRUE(read_record(works, "here, there", 1'000'000 + kRememberedS - 1, &read));
  EXPECT_FALSE(read_record(works, "here, there", 1'000'000 + kRememberedS, &read));
  EXPECT_FALSE(read_record(works, "here, there", 999'999, &read)) << "of the future";
  EXPECT_FALSE(read_record(works, "here, elsewhere", 1'000'001, &read));
  EXPECT_TRUE(read_record(fails, "here, there", 1'000'000 + kFailureRememberedS - 1, &read));
  EXPECT_EQ(read.failure, "nothing came back");
  EXPECT_FALSE(read_record(fails, "here, there", 1'000'000 + kFailureRememberedS, &read));
}

TEST(WayRecord, NonsenseIsNotRead) {
  const std::string good = written({"way", 1'000'000, {21.5, 6.25}, "", {4.5, 11}});
  WayRecord read;
  for (size_t bytes = 0; bytes < good.size(); ++bytes)
    EXPECT_FALSE(read_record(good.substr(0, bytes), "way", 1'000'001, &read)) << bytes;
  EXPECT_FALSE(read_record(good + "x", "way", 1'000'001, &read));
  EXPECT_FALSE(
      read_record("tendril-way-3 1000000 nan 1 1 1\nway\n\n\n\n", "way", 1'000'001, &read));
  EXPECT_FALSE(read_record("tendril-way-3 1000000 1 1 1 -1\nway\n\n\n\n", "way", 1'000'001, &read));
  EXPECT_FALSE(read_record("tendril-way-2 1000000 1 1 1 1\nway\n\n\n\n", "way", 1'000'001, &read));
}

// Copies between servers have no calls that could go another way.
TEST(WayChoice, OfBulkDataOnlyTheRateCounts) {
  const WayChoice better = choose_bulk("rdma", {100, 10}, "tcp", {1, 4});
  EXPECT_TRUE(better.bulk && !better.calls);
  EXPECT_EQ(better.brief, "rdma (2.5x)");
  EXPECT_EQ(better.text, "copies over rdma (10 GB/s; tcp 4 GB/s: 2.5 times)");
  EXPECT_TRUE(choose_bulk("rdma", {100, 3.7}, "tcp", {1, 4}).bulk) << "within noise";
  const WayChoice worse = choose_bulk("rdma", {1, 3}, "tcp", {100, 4});
  EXPECT_FALSE(worse.bulk || worse.calls);
  EXPECT_EQ(worse.brief, "tcp (1.3x)");
  EXPECT_FALSE(choose_bulk("rdma", {1, 0}, "tcp", {0, 0}).bulk) << "unknown";
}

TEST(WayChoice, SomebodyElseMayKeepWhatIsRemembered) {
  OneWay known("");
  WayRecord record;
  EXPECT_FALSE(known.find("here, there", &record));
  record.way = "here, there";
  record.fabric = {2, 9};
  known.keep(&record);
  OneWay later(known.text());
  WayRecord found;
  ASSERT_TRUE(later.find("here, there", &found));
  EXPECT_EQ(found.fabric.gigabytes_per_second, 9);
  EXPECT_FALSE(later.find("here, elsewhere", &found));
  later.forget("here, there");
  EXPECT_TRUE(later.text().empty());
}

}  // namespace
}  // namespace tendril::session
