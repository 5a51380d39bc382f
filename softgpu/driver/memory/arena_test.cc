// SPDX-License-Identifier: Apache-2.0
// The allocator and the table of addresses.

#include "softgpu/driver/memory/arena.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <random>

#include "softgpu/driver/memory/memory_map.h"

namespace tendril::softgpu {
namespace {

constexpr uint64_t kBase = 0x3'1000'0000'0000;

TEST(Arena, AlignsMergesAndRepeats) {
  Arena arena(kBase, 8 << 20);
  uint64_t a = arena.allocate(100), b = arena.allocate(300), c = arena.allocate(1);
  EXPECT_EQ(kBase, a);
  EXPECT_EQ(kBase + 256, b);
  EXPECT_EQ(kBase + 768, c);
  arena.free(b, 300);
  EXPECT_EQ(b, arena.allocate(512));
  arena.free(b, 512);
  arena.free(a, 100);
  arena.free(c, 1);
  EXPECT_EQ(8u << 20, arena.largest_hole());
  EXPECT_EQ(0u, arena.allocate((8 << 20) + 1));
  EXPECT_EQ(a, arena.allocate(8 << 20));
}

TEST(Arena, PagesAreValidWhileSomethingLivesThere) {
  Arena arena(kBase, 8 << 20);
  uint64_t a = arena.allocate(1 << 20), b = arena.allocate(2 << 20), c = arena.allocate(256);
  const uint8_t* valid = arena.region().valid_pages;
  EXPECT_TRUE(valid[0] && valid[1] && !valid[2]);
  arena.host(b)[0] = 7;
  arena.free(b, 2 << 20);
  EXPECT_TRUE(valid[0] && valid[1]);
  arena.free(c, 256);
  EXPECT_TRUE(valid[0] && !valid[1]);
  arena.free(a, 1 << 20);
  EXPECT_FALSE(valid[0]);
  EXPECT_EQ(0, arena.host(arena.allocate(4 << 20) + (b - a))[0]);  // an empty page was given back
}

#if !defined(__SANITIZE_THREAD__)  // which leaves few addresses to the process itself
TEST(Arena, LeavesAloneWhatTheProcessHas) {
  constexpr uint64_t kPage = 2 << 20, kWithin = kWithinProcesses.end - 16 * kPage;
  ASSERT_TRUE(take_addresses(kWithin + kPage, kPage));
  Arena arena(kWithin, 16 * kPage, true);
  const uint64_t a = arena.allocate(kPage), b = arena.allocate(3 * kPage),
                 c = arena.allocate(kPage / 2);
  EXPECT_EQ(kWithin, a);
  EXPECT_EQ(kWithin + 2 * kPage, b);
  EXPECT_EQ(kWithin + 5 * kPage, c);
  EXPECT_EQ(c + kPage / 2, arena.allocate(kPage / 2));
  EXPECT_FALSE(take_addresses(b, kPage)) << "the process has them while they are in use";
  arena.free(b, 3 * kPage);
  EXPECT_TRUE(take_addresses(b + kPage, kPage));
  EXPECT_EQ(b, arena.allocate(kPage));
  EXPECT_EQ(0u, arena.allocate(11 * kPage));
  EXPECT_EQ(c + kPage, arena.allocate(10 * kPage));
  for (const uint64_t own : {kWithin + kPage, b + kPage})
    munmap(reinterpret_cast<void*>(own), kPage);
}
#endif

TEST(Arena, RandomUseNeverOverlaps) {
  Arena arena(kBase, 16 << 20);
  std::mt19937 random(7);
  std::map<uint64_t, uint64_t> live;
  for (int i = 0; i < 5000; ++i) {
    if (live.size() > 50 || (random() % 3 == 0 && !live.empty())) {
      auto victim = std::next(live.begin(), random() % live.size());
      arena.free(victim->first, victim->second);
      live.erase(victim);
      continue;
    }
    uint64_t bytes = 1 + random() % 200000;
    uint64_t at = arena.allocate(bytes);
    if (at == 0) continue;
    ASSERT_EQ(0u, at % 256);
    auto next = live.lower_bound(at);
    if (next != live.end()) {
      ASSERT_LE(at + bytes, next->first);
    }
    if (next != live.begin()) {
      ASSERT_LE(std::prev(next)->first + std::prev(next)->second, at);
    }
    live[at] = bytes;
  }
  for (auto [at, bytes] : live) arena.free(at, bytes);
  EXPECT_EQ(16u << 20, arena.largest_hole());
}

TEST(MemoryMap, DeviceAddressesAreNotHostAddresses) {
  EXPECT_GE(kBeyondProcesses.devices, 1ull << 47);
  for (const AddressPlan& plan : {kBeyondProcesses, kWithinProcesses})
    EXPECT_LE(plan.devices + 64 * plan.stride, plan.virtual_base);
}

TEST(MemoryMap, ResolvesOnlyWhatLives) {
  MemoryMap& map = MemoryMap::instance();
  uint64_t at = map.allocate_device(0, 1000, MemoryKind::kDevice, nullptr);
  ASSERT_NE(0u, at);
  EXPECT_NE(nullptr, map.resolve(at, 1000));
  EXPECT_NE(nullptr, map.resolve(at + 999, 1));
  EXPECT_EQ(nullptr, map.resolve(at + 999, 2));
  EXPECT_EQ(nullptr, map.resolve(at - 1, 1));
  map.free(*map.remove(at, {MemoryKind::kDevice}));
  EXPECT_EQ(nullptr, map.resolve(at, 1));
}

}  // namespace
}  // namespace tendril::softgpu
