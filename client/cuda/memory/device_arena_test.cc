// SPDX-License-Identifier: Apache-2.0
// The arena by itself: what is paid, which addresses are free, and what is told to the worker.
#include "client/cuda/memory/device_arena.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <vector>

namespace tendril::client::cuda {
namespace {

constexpr uint64_t kBase = uint64_t{2} << 44, kPage = base::kGpuPageBytes;
const auto* const kContext = reinterpret_cast<const Context*>(0x10);
const auto* const kOther = reinterpret_cast<const Context*>(0x20);

// The worker's side: what is made, and what it holds paid.
struct ArenaWorld {
  DeviceArena arena;
  std::map<uint64_t, uint64_t> made;
  std::map<uint64_t, const Context*> of;
  uint64_t paid = 0;

  explicit ArenaWorld(uint64_t own = 64 * kPage) { arena.open(kBase, 2 * own, own); }
  void pay(uint64_t bytes, uint64_t left = 1u << 30) {
    paid += bytes;
    arena.paid(bytes, left);
  }
  DeviceArena::Taken take(uint64_t bytes, uint64_t* at, const Context* context = kContext) {
    return arena.take(context, bytes, at, [&](uint64_t address) {
      const auto after = made.lower_bound(address + bytes);
      if (after != made.begin()) {
        EXPECT_LE(std::prev(after)->first + std::prev(after)->second, address) << "taken already";
      }
      EXPECT_GE(paid, bytes);
      paid -= bytes;
      made[address] = bytes;
      of[address] = context;
    });
  }
  bool give(uint64_t address, bool shared = false) {
    return arena.give(
        address,
        [&] {
          if (!shared) paid += made[address];
          made.erase(address);
        },
        [&](uint64_t bytes) {
          EXPECT_GE(paid, bytes);
          paid -= bytes;
        });
  }
};

TEST(DeviceArena, NothingIsTakenUnpaid) {
  ArenaWorld world;
  uint64_t at = 0;
  EXPECT_EQ(world.take(kPage, &at), DeviceArena::Taken::kNotPaid);
  world.pay(3 * kPage);
  EXPECT_EQ(world.take(2 * kPage, &at), DeviceArena::Taken::kYes);
  EXPECT_EQ(at, kBase);
  EXPECT_EQ(world.take(2 * kPage, &at), DeviceArena::Taken::kNotPaid);
  EXPECT_EQ(world.take(kPage, &at), DeviceArena::Taken::kYes);
  EXPECT_EQ(at, kBase + 2 * kPage);
}

TEST(DeviceArena, TheWorkersPartIsNotGivenOut) {
  ArenaWorld world(2 * kPage);
  world.pay(16 * kPage);
  uint64_t at = 0;
  EXPECT_EQ(world.take(3 * kPage, &at), DeviceArena::Taken::kNoAddresses);
  EXPECT_TRUE(world.arena.contains(kBase + 3 * kPage, kPage)) << "but both hold it";
  EXPECT_FALSE(world.arena.contains(kBase + 3 * kPage, 2 * kPage));
  EXPECT_FALSE(world.give(kBase + 3 * kPage));
}

TEST(DeviceArena, WhatIsGivenBackIsPaidForTheNext) {
  ArenaWorld world;
  world.pay(4 * kPage);
  uint64_t one = 0, two = 0;
  ASSERT_EQ(world.take(4 * kPage, &one), DeviceArena::Taken::kYes);
  EXPECT_TRUE(world.give(one));
  EXPECT_FALSE(world.give(one)) << "twice";
  ASSERT_EQ(world.take(3 * kPage, &two), DeviceArena::Taken::kYes) << "another size";
  EXPECT_EQ(two, one);
  EXPECT_TRUE(world.arena.give_up([&](uint64_t bytes) { world.paid -= bytes; }));
  EXPECT_EQ(world.paid, 0u);
  EXPECT_FALSE(world.arena.give_up([](uint64_t) {}));
}

TEST(DeviceArena, KeepsNoMoreThanAnEighthOfWhatIsLeft) {
  ArenaWorld world;
  world.pay(32 * kPage, 16 * kPage);
  uint64_t at = 0;
  ASSERT_EQ(world.take(32 * kPage, &at), DeviceArena::Taken::kYes);
  EXPECT_TRUE(world.give(at));
  EXPECT_EQ(world.paid, 2 * kPage);
}

TEST(DeviceArena, WhatIsWantedMayBePaidAhead) {
  ArenaWorld world;
  world.pay(16 * kPage, 8 * kPage);
  uint64_t one = 0, two = 0, three = 0;
  ASSERT_EQ(world.take(8 * kPage, &one), DeviceArena::Taken::kYes);
  ASSERT_EQ(world.take(7 * kPage, &two), DeviceArena::Taken::kYes);
  EXPECT_EQ(world.arena.want(15 * kPage), 14 * kPage);
  EXPECT_TRUE(world.give(one));
  EXPECT_TRUE(world.give(two));
  EXPECT_EQ(world.paid, 15 * kPage);
  ASSERT_EQ(world.take(15 * kPage, &three), DeviceArena::Taken::kYes);
  EXPECT_TRUE(world.give(three));
  EXPECT_EQ(world.paid, kPage) << "an eighth, as before";
}

TEST(DeviceArena, SharedBlocksAreNotPaidAfterwards) {
  ArenaWorld world;
  world.pay(2 * kPage);
  uint64_t at = 0;
  ASSERT_EQ(world.take(2 * kPage, &at), DeviceArena::Taken::kYes);
  world.arena.share(at);
  EXPECT_TRUE(world.give(at, true));
  EXPECT_EQ(world.take(kPage, &at), DeviceArena::Taken::kNotPaid);
}

TEST(DeviceArena, AContextTakesItsBlocksWithIt) {
  ArenaWorld world;
  world.pay(3 * kPage);
  uint64_t one = 0, two = 0, three = 0;
  ASSERT_EQ(world.take(kPage, &one), DeviceArena::Taken::kYes);
  ASSERT_EQ(world.take(kPage, &two, kOther), DeviceArena::Taken::kYes);
  world.arena.forget(kContext);
  world.made.erase(one);
  EXPECT_FALSE(world.give(one));
  ASSERT_EQ(world.take(kPage, &three), DeviceArena::Taken::kYes);
  EXPECT_EQ(three, one);
  EXPECT_TRUE(world.give(two));
}

TEST(DeviceArena, BothEndsCountAlike) {
  std::mt19937 dice(24);
  ArenaWorld world(512 * kPage);
  std::vector<uint64_t> live;
  for (int step = 0; step < 20'000; ++step) {
    uint64_t at = 0;
    const uint64_t bytes = (1 + dice() % 16) * kPage;
    if (dice() % 2 == 0 && !live.empty()) {
      const size_t which = dice() % live.size();
      EXPECT_TRUE(world.give(live[which]));
      live[which] = live.back();
      live.pop_back();
    } else if (const auto taken = world.take(bytes, &at); taken == DeviceArena::Taken::kYes) {
      live.push_back(at);
    } else if (taken == DeviceArena::Taken::kNotPaid) {
      world.pay(bytes + world.arena.ahead() % (64 * kPage), dice());
    }
  }
  for (const uint64_t at : live) EXPECT_TRUE(world.give(at));
  world.arena.give_up([&](uint64_t bytes) { world.paid -= bytes; });
  EXPECT_EQ(world.paid, 0u);
}

}  // namespace
}  // namespace tendril::client::cuda
