// SPDX-License-Identifier: Apache-2.0
// What the heap decides, against a server that counts and a program at random.
#include "client/cuda/memory/device_heap.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace tendril::client::cuda {
namespace {

constexpr uint64_t kPage = DeviceHeap::kPageBytes;
const Context* const kContext = reinterpret_cast<const Context*>(0x1000);
const Context* const kOther = reinterpret_cast<const Context*>(0x2000);

// A server with a quota, and a program in front of it. `orders`: how often new work was put behind
// old work.
struct HeapWorld {
  DeviceHeap heap;
  uint64_t quota = 1ull << 30, taken = 0, next = 1ull << 40;
  std::map<uint64_t, uint64_t> blocks;  // that the server has given
  int asked = 0, orders = 0;

  uint64_t server_gives(uint64_t bytes) {
    ++asked;
    const uint64_t pages = base::whole_pages(bytes);
    if (pages > quota - taken) return 0;
    taken += pages;
    const uint64_t address = next;
    next += pages;
    blocks[address] = bytes;
    heap.left(quota - taken);
    return address;
  }
  auto to_server() {
    return [this](const Context*, uint64_t address) {
      const auto block = blocks.find(address);
      ASSERT_NE(block, blocks.end()) << "given back twice, or never given";
      taken -= base::whole_pages(block->second);
      blocks.erase(block);
    };
  }
  HeapPlace allocate(uint64_t bytes, const Context* context = kContext, bool may_order = true) {
    HeapPlace place = heap.take(context, bytes, may_order, [this] { ++orders; });
    if (place.address != 0) return place;
    const bool part = base::shares_a_page(bytes);
    const uint64_t got = server_gives(part ? kPage : bytes);
    if (got == 0) return {};
    return part ? heap.add_page(context, got, bytes) : HeapPlace{got, bytes, false};
  }
  void free(const HeapPlace& place, const Context* context = kContext) {
    heap.give(context, place, to_server());
  }
  void forget(const Context* context) {
    heap.forget(context, [this](uint64_t page) { blocks.erase(page); });
  }
};

TEST(DeviceHeap, SmallAllocationsShareAPage) {
  HeapWorld world;
  const HeapPlace a = world.allocate(1), b = world.allocate(513), c = world.allocate(1 << 20);
  EXPECT_EQ(world.asked, 1);
  EXPECT_EQ(b.address, a.address + 512);
  EXPECT_EQ(b.capacity, 1024u);
  EXPECT_EQ(c.address, b.address + 1024);
  world.allocate(1 << 20);  // no longer fits
  EXPECT_EQ(world.asked, 2);
  EXPECT_EQ(world.taken, 2 * kPage);
}

TEST(DeviceHeap, APageIsUsedAgainWithoutAsking) {
  HeapWorld world;
  for (int i = 0; i < 1000; ++i) world.free(world.allocate(100'000));
  EXPECT_EQ(world.asked, 1);
  EXPECT_EQ(world.orders, 999) << "each may overtake work that uses the one before";
}

TEST(DeviceHeap, ABlockServesItsSizeOnly) {
  HeapWorld world;
  const HeapPlace block = world.allocate(5 << 20);
  world.free(block);
  EXPECT_NE(world.allocate(3 << 20).address, block.address);
  EXPECT_NE(world.allocate((5 << 20) + 1).address, block.address) << "larger than it is";
  const HeapPlace again = world.allocate((4 << 20) + 1);
  EXPECT_EQ(again.address, block.address);
  EXPECT_EQ(again.capacity, 5u << 20);
}

TEST(DeviceHeap, OneOrderServesAllThatWasFreedBefore) {
  HeapWorld world;
  const HeapPlace a = world.allocate(3 << 20), b = world.allocate(3 << 20);
  world.free(a);
  world.free(b);
  world.allocate(3 << 20);
  EXPECT_EQ(world.orders, 1);
  const HeapPlace second = world.allocate(3 << 20);
  EXPECT_EQ(world.orders, 1);
  world.free(second);
  world.allocate(3 << 20);
  EXPECT_EQ(world.orders, 2);
}

TEST(DeviceHeap, AWaitCoversWhatWasFreedBeforeIt) {
  HeapWorld world;
  const HeapPlace a = world.allocate(3 << 20), b = world.allocate(3 << 20);
  world.free(a);
  const uint64_t mark = world.heap.mark();
  world.free(b);  // by another thread, after the wait's message
  world.heap.waited(mark);
  EXPECT_EQ(world.allocate(3 << 20, kContext, false).address, a.address);
  EXPECT_EQ(world.orders, 0);
  EXPECT_NE(world.allocate(3 << 20, kContext, false).address, b.address);
  EXPECT_EQ(world.allocate(3 << 20).address, b.address);
  EXPECT_EQ(world.orders, 1);
}

TEST(DeviceHeap, NothingIsOrderedWhereThatIsNotAllowed) {
  HeapWorld world;
  const HeapPlace small = world.allocate(4096);
  world.free(small);
  EXPECT_NE(world.allocate(4096, kContext, false).address, small.address);
  EXPECT_EQ(world.orders, 0);
}

TEST(DeviceHeap, ContextsShareNothing) {
  HeapWorld world;
  const HeapPlace small = world.allocate(10), large = world.allocate(4 << 20);
  world.free(small);
  world.free(large);
  EXPECT_NE(world.allocate(10, kOther).address / kPage, small.address / kPage);
  EXPECT_NE(world.allocate(4 << 20, kOther).address, large.address);
  const HeapPlace mine = world.allocate(10, kOther);
  world.forget(kContext);
  EXPECT_EQ(world.allocate(10, kOther).address / kPage, mine.address / kPage);
  EXPECT_FALSE(world.heap.keeps());
}

TEST(DeviceHeap, KeepsAtMostHalfOfWhatIsLeft) {
  HeapWorld world;
  world.quota = 40 << 20;
  const HeapPlace large = world.allocate(30 << 20);  // 10 MiB are left
  const HeapPlace small = world.allocate(3 << 20), page = world.allocate(10);
  world.free(large);
  EXPECT_EQ(world.taken, (4u << 20) + kPage) << "the large one has gone back";
  world.free(page);
  EXPECT_EQ(world.taken, (4u << 20) + kPage) << "4 MiB were left: 2 may be kept";
  world.free(small);
  EXPECT_EQ(world.taken, kPage);
}

TEST(DeviceHeap, GivesUpAll) {
  HeapWorld world;
  for (int i = 0; i < 3; ++i) world.free(world.allocate((3 << 20) + (i << 22)));
  world.free(world.allocate(10));
  const HeapPlace stays = world.allocate(20);
  EXPECT_TRUE(world.heap.keeps());
  world.heap.give_up(world.to_server());
  EXPECT_FALSE(world.heap.keeps());
  EXPECT_EQ(world.taken, kPage);
  world.free(stays);
  world.heap.give_up(world.to_server());
  EXPECT_EQ(world.taken, 0u);
}

TEST(DeviceHeap, GivesUpSomeOfOneContext) {
  HeapWorld world;
  const HeapPlace a = world.allocate(2 * kPage), b = world.allocate(3 * kPage),
                  c = world.allocate(100), d = world.allocate(4 * kPage, kOther);
  world.free(a);
  world.free(c);
  world.free(d, kOther);
  EXPECT_FALSE(world.heap.give_up_some(kContext, 4 * kPage, world.to_server()));
  EXPECT_EQ(world.blocks.size(), 4u) << "it has less, and keeps it";
  EXPECT_TRUE(world.heap.give_up_some(kContext, kPage, world.to_server()));
  EXPECT_EQ(world.blocks.size(), 3u) << "the oldest block, though it is larger";
  EXPECT_TRUE(world.heap.give_up_some(kContext, kPage, world.to_server()));
  EXPECT_EQ(world.blocks.size(), 2u) << "the page";
  world.free(b);
  EXPECT_TRUE(world.heap.keeps());
}

TEST(DeviceHeap, WhatOthersMayLookAtIsNotUsedAgain) {
  HeapWorld world;
  const HeapPlace a = world.allocate(4096), b = world.allocate(4096), c = world.allocate(5 << 20);
  EXPECT_EQ(world.heap.pin(a, kContext), a.address / kPage * kPage);
  EXPECT_EQ(world.heap.pin(c, kContext), c.address);
  world.free(a);
  EXPECT_NE(world.allocate(4096).address / kPage, a.address / kPage);
  const uint64_t before = world.taken;
  world.free(b);
  EXPECT_EQ(world.taken, before - kPage) << "the page goes back with its last part";
  world.free(c);
  EXPECT_NE(world.allocate(5 << 20).address, c.address);
}

// Against a plain list of what is in use: nothing overlaps, the server's account is exact, and
// nothing stays when all is given up.
TEST(DeviceHeap, RandomTracesKeepTheAccount) {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 dice(seed);
    HeapWorld world;
    world.quota = 200 << 20;
    std::map<uint64_t, std::pair<HeapPlace, const Context*>> used;
    for (int step = 0; step < 3000; ++step) {
      const Context* context = dice() % 4 != 0 ? kContext : kOther;
      if (dice() % 100 == 0) world.heap.give_up(world.to_server());
      if (dice() % 50 == 0) world.heap.waited(world.heap.mark());
      if (used.empty() || dice() % 2 != 0) {
        const uint64_t most = dice() % 3 == 0 ? 12 << 20 : 70'000, bytes = 1 + dice() % most;
        const HeapPlace place = world.allocate(bytes, context, dice() % 8 != 0);
        if (place.address == 0) continue;
        ASSERT_GE(place.capacity, bytes);
        const auto after = used.lower_bound(place.address);
        ASSERT_TRUE(after == used.end() || after->first >= place.address + place.capacity);
        ASSERT_TRUE(after == used.begin() ||
                    std::prev(after)->first + std::prev(after)->second.first.capacity <=
                        place.address);
        used[place.address] = {place, context};
      } else {
        auto victim = std::next(used.begin(), static_cast<long>(dice() % used.size()));
        world.free(victim->second.first, victim->second.second);
        used.erase(victim);
      }
      ASSERT_LE(world.taken, world.quota);
    }
    for (const auto& [address, use] : used) world.free(use.first, use.second);
    world.heap.give_up(world.to_server());
    ASSERT_EQ(world.taken, 0u);
    ASSERT_TRUE(world.blocks.empty());
  }
}

}  // namespace
}  // namespace tendril::client::cuda
