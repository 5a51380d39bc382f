// SPDX-License-Identifier: Apache-2.0
// Rows remember when they changed, so that an update is what has changed and nothing else.
#include "dashboard/model.h"

#include <gtest/gtest.h>

#include "dashboard/test_picture.h"

namespace tendril::dashboard {
namespace {

constexpr uint64_t kSecondNs = 1'000'000'000;

TEST(Model, WhatDoesNotChangeKeepsItsVersion) {
  Model model;
  model.take(small_pool());
  EXPECT_EQ(model.version(), 1u);
  model.take(small_pool(2001));
  EXPECT_EQ(model.version(), 2u);
  EXPECT_EQ(model.at(), 2001);
  EXPECT_EQ(model.head().version, 1u);
  EXPECT_EQ(model.servers().at("gpu1").version, 1u);
  EXPECT_EQ(model.leases().at(7).version, 1u);
  EXPECT_EQ(model.queue().at(9).version, 1u);
  EXPECT_EQ(model.accounts().at("vision").version, 1u);
}

TEST(Model, OneChangeIsOneRow) {
  Model model;
  model.take(small_pool());
  view::Picture next = small_pool();
  next.leases[0].paused = true;
  next.servers[1].draining = true;
  model.take(std::move(next));
  EXPECT_EQ(model.leases().at(7).version, 2u);
  EXPECT_EQ(model.leases().at(8).version, 1u);
  EXPECT_EQ(model.servers().at("gpu1").version, 1u);
  EXPECT_EQ(model.servers().at("gpu2").version, 2u);
}

TEST(Model, WhatGoesIsRememberedAndNumbersAreNotUsedAgain) {
  Model model;
  model.take(small_pool());
  const uint32_t number = model.servers().at("gpu2").number;
  view::Picture next = small_pool();
  next.servers.pop_back();
  next.leases.pop_back();
  next.queue.clear();
  model.take(std::move(next));
  ASSERT_EQ(model.servers_gone().keys.size(), 1u);
  EXPECT_EQ(model.servers_gone().keys[0].second, number);
  EXPECT_EQ(model.leases_gone().keys[0].second, 8u);
  EXPECT_EQ(model.queue_gone().keys[0].second, 9u);
  model.take(small_pool());
  EXPECT_GT(model.servers().at("gpu2").number, number);
  EXPECT_TRUE(model.knows_since(1));
  EXPECT_FALSE(model.knows_since(4)) << "it was never told of that version";
}

// A viewer that was away too long gets everything anew instead of half of what went.
TEST(Model, WhatWentLongAgoIsForgottenAndItSaysSo) {
  Model model;
  for (uint64_t round = 0; round < 60; ++round) {
    view::Picture picture = small_pool();
    for (uint64_t i = 0; i < 1000; ++i)
      picture.leases.push_back(lease_on(100 + round * 1000 + i, "gpu1", "ann"));
    model.take(std::move(picture));
  }
  EXPECT_LE(model.leases_gone().keys.size(), 50'000u);
  EXPECT_FALSE(model.knows_since(1));
  EXPECT_TRUE(model.knows_since(59));
}

TEST(Model, RatesComeFromTwoPictures) {
  Model model;
  model.take(small_pool());
  EXPECT_EQ(model.leases().at(7).pace.had_millionths, -1) << "one picture has no rate";
  view::Picture next = small_pool();
  next.leases[0].use.age_ns += 2 * kSecondNs;
  next.leases[0].use.used_ns += kSecondNs;
  next.leases[0].use.counts_calls = true;
  next.leases[0].use.calls = next.leases[0].use.round_trips = 1'000'000;
  model.take(std::move(next));
  EXPECT_EQ(model.leases().at(7).pace.had_millionths, 500'000);
  EXPECT_EQ(model.leases().at(7).pace.round_trips_s, -1) << "what was before is not known";
  // A counter that ran backwards (a server began anew) is not known, instead of negative.
  next = small_pool();
  next.leases[0].use.age_ns += 6 * kSecondNs;
  next.leases[0].use.used_ns = 0;
  model.take(std::move(next));
  EXPECT_EQ(model.leases().at(7).pace.had_millionths, -1);
}

}  // namespace
}  // namespace tendril::dashboard
