// SPDX-License-Identifier: Apache-2.0
// Where slices go: on which GPUs of a server, and how they are spread over servers.
// lease_book_test.cc tests what the lease book makes of it.
#include "lease/placement.h"

#include <gtest/gtest.h>

namespace tendril::lease {
namespace {

using base::Code;
using base::Status;

constexpr uint64_t kGib = 1ull << 30;

GpuRoom room(uint32_t index, uint32_t share_promised, uint64_t memory_promised_bytes = 0) {
  GpuRoom room;
  room.index = index;
  room.memory_usable_bytes = 16 * kGib;
  room.memory_promised_bytes = memory_promised_bytes;
  room.share_promised_millionths = share_promised;
  return room;
}

std::vector<uint32_t> indices(const Placement& placement) {
  std::vector<uint32_t> found;
  for (const wire::SliceGrant& slice : placement.chosen) found.push_back(slice.gpu_index);
  return found;
}

TEST(Place, TheFullestGpusWithRoomInOrderOfIndex) {
  const std::vector<GpuRoom> gpus = {room(0, 0), room(1, 900'000), room(2, 0), room(3, 400'000),
                                     room(4, 500'000, 15 * kGib)};
  const wire::SliceSpec half{500'000, 0, false};
  EXPECT_EQ(indices(place(gpus, half, 1, "box")), std::vector<uint32_t>({3}));
  EXPECT_EQ(indices(place(gpus, half, 2, "box")), std::vector<uint32_t>({0, 3}));
  const Placement all = place(gpus, half, 9, "box");
  EXPECT_EQ(indices(all), std::vector<uint32_t>({0, 2, 3}));
  EXPECT_EQ(all.room, 3u);
  EXPECT_EQ(all.possible, 5u);
  EXPECT_TRUE(all.nearest.ok());
}

TEST(Place, WhatCanNeverBeIsToldApartFromWhatIsNotNow) {
  std::vector<GpuRoom> gpus = {room(0, 0), room(1, 0)};
  gpus[1].memory_usable_bytes = 8 * kGib;
  const Placement placement = place(gpus, {100'000, 12 * kGib, false}, 2, "box");
  EXPECT_EQ(placement.possible, 1u);
  EXPECT_EQ(placement.nearest.code(), Code::kRefused);
  EXPECT_NE(placement.nearest.message().find("0.10 GPU with 12.0 GiB does not fit on GPU 1 of host "
                                             "box even when nobody uses it"),
            std::string::npos)
      << placement.nearest.message();
}

TEST(Place, StrangeNumbersDoNoHarm) {
  wire::GpuRecord gpu;
  gpu.share_used_millionths = UINT32_MAX;
  gpu.memory_promised_bytes = UINT64_MAX;
  gpu.process_bytes = UINT64_MAX;
  EXPECT_TRUE(place({room_of(gpu)}, {1, 0, false}, 1, "box").chosen.empty());
  gpu.memory_usable_bytes = UINT64_MAX;
  gpu.process_bytes = 0;
  EXPECT_TRUE(place({room_of(gpu)}, {0, UINT64_MAX, false}, 1, "box").chosen.empty());
}

TEST(Place, AListSaysWhatTheBookKnows) {
  GpuRoom before = room(3, 250'000, kGib);
  before.process_bytes = 77;
  before.packed = true;
  wire::GpuRecord gpu;
  gpu.index = 3;
  describe(before, &gpu);
  const GpuRoom after = room_of(gpu);
  EXPECT_EQ(after.index, 3u);
  EXPECT_EQ(after.share_promised_millionths, 250'000u);
  EXPECT_EQ(after.memory_usable_bytes, 16 * kGib);
  EXPECT_EQ(after.memory_promised_bytes, kGib);
  EXPECT_EQ(after.process_bytes, 77u);
  EXPECT_TRUE(after.packed);
}

// Servers with this much room each, and what they were asked.
struct Servers {
  std::vector<uint32_t> room;
  std::vector<std::pair<size_t, uint32_t>> asked;
  Status operator()(size_t server, uint32_t count) {
    asked.emplace_back(server, count);
    if (count > room[server])
      return Status(Code::kRefused, "server " + std::to_string(server) + " is full");
    room[server] -= count;
    return Status();
  }
};

TEST(FillServers, TheFirstGivesWhatItCanThenTheNext) {
  Servers servers{{2, 0, 4, 9}, {}};
  const Filling filling = fill_servers(servers.room.size(), 5, servers);
  EXPECT_EQ(filling.missing, 0u);
  ASSERT_EQ(filling.refusals.size(), 1u);
  EXPECT_EQ(filling.refusals[0].message(), "server 1 is full");
}

TEST(FillServers, AsksForOneLessUntilItIsGranted) {
  Servers servers{{1, 7}, {}};
  fill_servers(2, 3, [&](size_t server, uint32_t count) { return servers(server, count); });
  const std::vector<std::pair<size_t, uint32_t>> expected = {{0, 3}, {0, 2}, {0, 1}, {1, 2}};
  EXPECT_EQ(servers.asked, expected);
}

TEST(FillServers, OnlyARefusalMayBeAboutTheNumber) {
  int asked = 0;
  const Filling filling = fill_servers(1, 8, [&](size_t, uint32_t) {
    ++asked;
    return Status(Code::kUnavailable, "nobody listens");
  });
  EXPECT_EQ(asked, 1);
  EXPECT_EQ(filling.missing, 8u);
}

TEST(FillServers, AShortageSaysHowManyWereFoundAndWhyNotMore) {
  Servers one{{0}, {}};
  EXPECT_EQ(shortage(fill_servers(1, 2, one), 1, 2).message(), "server 0 is full");
  Servers some{{1}, {}};
  const Status few = shortage(fill_servers(1, 2, some), 1, 2);
  EXPECT_EQ(few.code(), Code::kRefused);
  EXPECT_EQ(few.message(), "1 of 2 slices found: the servers named have no more GPUs with room");
  Servers two{{1, 0}, {}};
  EXPECT_EQ(shortage(fill_servers(2, 2, two), 2, 2).message(),
            "1 of 2 slices found: server 1 is full");
}

}  // namespace
}  // namespace tendril::lease
