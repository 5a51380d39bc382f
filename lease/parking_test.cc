// SPDX-License-Identifier: Apache-2.0
// Parked leases: what they hold, who wakes first, what newcomers may take meanwhile, and random
// sequences on simulated time against a simple model.
#include "lease/parking.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "config/quantity.h"

namespace tendril::lease {
namespace {

constexpr uint64_t kGib = 1ull << 30;
constexpr uint64_t kSecondNs = 1'000'000'000;

wire::LeaseRequest ask(uint32_t count, uint32_t share, uint64_t memory, int32_t priority = 0) {
  wire::LeaseRequest request;
  request.count = count;
  request.slice.share_millionths = share;
  request.slice.memory_bytes = memory;
  request.terms.priority = priority;
  return request;
}

struct Server {
  explicit Server(uint64_t budget = 1000 * kGib, uint32_t gpus = 1)
      : book("box", std::vector<GpuCapacity>(gpus, GpuCapacity{16 * kGib, 0, 0, 0})),
        parking(&book) {
    parking.allow(budget);
  }
  void park(uint64_t lease, uint64_t bytes, std::vector<uint64_t> stays) {
    ASSERT_TRUE(parking.begin(now_ns, lease, bytes).ok());
    parking.parked(now_ns, lease, bytes, stays);
  }
  LeaseBook book;
  Parking parking;
  uint64_t now_ns = kSecondNs;
};

TEST(Parking, AParkedLeaseHoldsOnlyWhatStays) {
  Server server;
  ASSERT_TRUE(server.book.grant(1, ask(1, 600'000, 12 * kGib)).ok());
  EXPECT_EQ(server.parking.host_coming_bytes(), 0u);
  ASSERT_TRUE(server.parking.begin(1, 1, 10 * kGib).ok());
  EXPECT_EQ(server.parking.host_coming_bytes(), 10 * kGib) << "the next one must leave room for it";
  EXPECT_EQ(server.book.memory_promised(0), 12 * kGib) << "until the copy is there";
  EXPECT_EQ(server.book.share_used(0), 600'000u);
  server.parking.parked(2, 1, 10 * kGib, {kGib});
  EXPECT_EQ(server.parking.host_coming_bytes(), 0u) << "it is no free memory any more";
  EXPECT_EQ(server.parking.standing(1), Standing::kParked);
  EXPECT_EQ(server.book.memory_promised(0), kGib);
  EXPECT_EQ(server.book.share_used(0), 0u);
  EXPECT_TRUE(server.book.grant(2, ask(1, 900'000, 15 * kGib)).ok());
  EXPECT_FALSE(server.book.change(1, 100'000, 0).ok()) << "it holds nothing that could change";
  server.parking.end(1);
  server.book.release(1);
  server.book.release(2);
  EXPECT_EQ(server.book.memory_promised(0) + server.book.share_used(0), 0u);
  EXPECT_EQ(server.parking.host_used_bytes(), 0u);
}

TEST(Parking, WakesGoBeforeNewcomersOfTheirPriority) {
  Server server;
  ASSERT_TRUE(server.book.grant(1, ask(1, 500'000, 8 * kGib)).ok());
  server.park(1, 8 * kGib, {0});
  ASSERT_TRUE(server.book.grant(2, ask(1, 800'000, 12 * kGib)).ok());
  server.parking.ask(5, 1, 0);
  EXPECT_TRUE(server.parking.grant(6).empty()) << "there is no room";
  EXPECT_EQ(server.parking.standing(1), Standing::kWaking);
  const auto refused = server.book.grant(3, ask(1, 100'000, kGib));
  ASSERT_FALSE(refused.ok()) << "it is kept";
  EXPECT_NE(refused.status().message().find("parked leases"), std::string::npos)
      << refused.status().message();
  EXPECT_FALSE(server.book.grant_these(3, {{0, 100'000, kGib, false}}).ok());
  EXPECT_TRUE(server.book.grant(4, ask(1, 100'000, kGib, 5)).ok()) << "a higher class may";
  server.book.release(2);
  EXPECT_EQ(server.parking.grant(9), std::vector<uint64_t>{1});
  EXPECT_EQ(server.book.memory_promised(0), 9 * kGib);
  server.parking.returned(11, 1);
  EXPECT_EQ(server.parking.find(1)->waited_ns, 6u);
}

TEST(Parking, WhoIsBackKeepsItsCopiesUntilOthersWantTheRoom) {
  Server server(10 * kGib, 3);
  for (const uint64_t lease : {1, 2, 3})
    ASSERT_TRUE(server.book.grant(lease, ask(1, 500'000, 8 * kGib)).ok());
  const auto park_and_wake = [&](uint64_t lease, uint64_t bytes, uint64_t now_ns) {
    ASSERT_TRUE(server.parking.begin(now_ns, lease, bytes).ok());
    server.parking.parked(now_ns, lease, bytes, {0});
    server.parking.ask(now_ns, lease, 0);
    ASSERT_EQ(server.parking.grant(now_ns), std::vector<uint64_t>{lease});
    server.parking.returned(now_ns, lease);
  };
  park_and_wake(1, 4 * kGib, 10);
  EXPECT_EQ(server.parking.kept_bytes(1), 4 * kGib);
  EXPECT_EQ(server.parking.host_used_bytes(), 4 * kGib);
  ASSERT_TRUE(server.parking.begin(20, 1, 5 * kGib).ok());
  EXPECT_EQ(server.parking.host_coming_bytes(), kGib) << "the rest is taken already";
  EXPECT_EQ(server.parking.host_used_bytes(), 5 * kGib);
  server.parking.failed(21, 1);
  EXPECT_EQ(server.parking.kept_bytes(1) + server.parking.host_used_bytes(), 0u);

  park_and_wake(1, 4 * kGib, 30);
  park_and_wake(2, 3 * kGib, 40);
  EXPECT_TRUE(server.parking.to_forget(3, 3 * kGib).empty()) << "there is room";
  EXPECT_EQ(server.parking.to_forget(3, 4 * kGib), std::vector<uint64_t>{1}) << "kept longest";
  EXPECT_EQ(server.parking.to_forget(3, 8 * kGib), (std::vector<uint64_t>{1, 2}));
  EXPECT_EQ(server.parking.to_forget(3, 0, kGib), std::vector<uint64_t>{1});
  EXPECT_EQ(server.parking.to_forget(1, 7 * kGib), std::vector<uint64_t>{}) << "its own serve it";
  EXPECT_FALSE(server.parking.begin(50, 3, 4 * kGib).ok());
  EXPECT_EQ(server.parking.forget(1), 4 * kGib);
  EXPECT_EQ(server.parking.forget(1), 0u);
  ASSERT_TRUE(server.parking.begin(50, 3, 4 * kGib).ok());
  EXPECT_EQ(server.parking.host_used_bytes(), 7 * kGib);

  EXPECT_FALSE(server.parking.copy_ahead(60, 3, kGib)) << "it is parking";
  EXPECT_FALSE(server.parking.copy_ahead(60, 1, 4 * kGib)) << "nobody gives room for that";
  EXPECT_TRUE(server.parking.copy_ahead(60, 1, 3 * kGib));
  EXPECT_TRUE(server.parking.copy_ahead(61, 1, 2 * kGib)) << "again, and less";
  EXPECT_EQ(server.parking.host_used_bytes(), 9 * kGib);
  for (const uint64_t lease : {1, 2, 3}) server.parking.end(lease);
  EXPECT_EQ(server.parking.host_used_bytes(), 0u);
}

TEST(Parking, HigherPrioritiesWakeFirstThenWhoAskedFirst) {
  Server server;
  for (const uint64_t lease : {1, 2, 3}) {
    ASSERT_TRUE(server.book.grant(lease, ask(1, 500'000, 8 * kGib)).ok());
    server.park(lease, kGib, {0});
  }
  ASSERT_TRUE(server.book.grant(9, ask(1, 1'000'000, 16 * kGib)).ok());
  server.parking.ask(1, 1, 0);
  server.parking.ask(2, 2, 0);
  server.parking.ask(3, 3, 7);
  server.book.release(9);
  ASSERT_TRUE(server.book.grant(8, ask(1, 100'000, kGib, 50)).ok());
  EXPECT_EQ(server.parking.grant(4), std::vector<uint64_t>{3});
  server.book.release(8);
  EXPECT_EQ(server.parking.grant(5), std::vector<uint64_t>{1});
  server.book.release(3);
  server.parking.end(3);
  EXPECT_EQ(server.parking.grant(6), std::vector<uint64_t>{2});
}

TEST(Parking, AFullBudgetAndPackedLeasesAreRefusedAloud) {
  Server server(10 * kGib, 2);
  ASSERT_TRUE(server.book.grant(1, ask(1, 500'000, 8 * kGib)).ok());
  ASSERT_TRUE(server.book.grant(2, ask(1, 500'000, 8 * kGib)).ok());
  ASSERT_TRUE(server.parking.begin(1, 1, 8 * kGib).ok());
  base::Status refused = server.parking.begin(1, 2, 3 * kGib);
  EXPECT_EQ(refused.code(), base::Code::kRefused);
  EXPECT_NE(refused.message().find("--park-memory"), std::string::npos) << refused.message();
  EXPECT_EQ(server.parking.standing(2), Standing::kGranted);
  refused = server.parking.begin(1, 1, 0);
  EXPECT_NE(refused.message().find("is parking already"), std::string::npos) << refused.message();
  server.parking.failed(2, 1);
  EXPECT_EQ(server.parking.standing(1), Standing::kGranted);
  EXPECT_TRUE(server.parking.begin(3, 2, 10 * kGib).ok()) << "a failed park keeps nothing";
  wire::LeaseRequest packed = ask(1, 100'000, kGib);
  packed.slice.packed = true;
  ASSERT_TRUE(server.book.grant(3, packed).ok());
  refused = server.parking.begin(4, 3, 0);
  EXPECT_NE(refused.message().find("packed"), std::string::npos) << refused.message();
}

TEST(Parking, AWishThatComesWhileParkingIsRemembered) {
  Server server;
  ASSERT_TRUE(server.book.grant(1, ask(1, 500'000, 8 * kGib)).ok());
  ASSERT_TRUE(server.parking.begin(10, 1, kGib).ok());
  server.parking.ask(12, 1, 0);
  EXPECT_EQ(server.parking.standing(1), Standing::kParking);
  server.parking.parked(15, 1, kGib, {0});
  EXPECT_EQ(server.parking.standing(1), Standing::kWaking);
  EXPECT_EQ(server.parking.grant(15), std::vector<uint64_t>{1});
  server.parking.returned(20, 1);
  EXPECT_EQ(server.parking.find(1)->waited_ns, 8u) << "from the wish";
}

TEST(Parking, RoomIsMadeByThoseThatAreIdleLongest) {
  Server server;
  for (const uint64_t lease : {1, 2, 3, 4})
    ASSERT_TRUE(server.book.grant(lease, ask(1, 250'000, 4 * kGib)).ok());
  server.park(1, 4 * kGib, {0});
  ASSERT_TRUE(server.book.grant(5, ask(1, 250'000, 4 * kGib)).ok());
  const auto idle = [](uint64_t lease, uint64_t idle_s) {
    return Parking::Idle{lease, idle_s * kSecondNs, 0, {{0, 250'000, 4 * kGib, false}}, {4 * kGib}};
  };
  const std::vector<Parking::Idle> all = {idle(2, 10), idle(3, 60), idle(4, 30)};
  EXPECT_TRUE(server.parking.make_room_for(1, all).empty()) << "it does not want to wake";
  server.parking.ask(5, 1, 0);
  EXPECT_EQ(server.parking.make_room_for(1, all), std::vector<uint64_t>{3});
  Parking::Idle little = idle(2, 90);
  little.leaves_bytes = {kGib};
  EXPECT_EQ(server.parking.make_room_for(1, {little, all[2]}), (std::vector<uint64_t>{2, 4}));
  EXPECT_TRUE(server.parking.make_room_for(1, {little}).empty()) << "it would not be enough";
}

TEST(Parking, FilesHaveABudgetOfTheirOwn) {
  Server server(4 * kGib, 2);
  server.parking.allow(4 * kGib, 10 * kGib);
  ASSERT_TRUE(server.book.grant(1, ask(1, 500'000, 8 * kGib)).ok());
  ASSERT_TRUE(server.book.grant(2, ask(1, 500'000, 8 * kGib)).ok());
  EXPECT_FALSE(server.parking.begin(1, 1, 8 * kGib).ok());
  ASSERT_TRUE(server.parking.begin(1, 1, 8 * kGib, true).ok());
  EXPECT_EQ(server.parking.host_coming_bytes() + server.parking.host_used_bytes(), 0u);
  server.parking.parked(2, 1, 7 * kGib, {0});
  EXPECT_EQ(server.parking.file_used_bytes(), 7 * kGib);
  const base::Status refused = server.parking.begin(3, 2, 4 * kGib, true);
  EXPECT_NE(refused.message().find("--park-file-size"), std::string::npos) << refused.message();
  server.parking.ask(4, 1, 0);
  ASSERT_EQ(server.parking.grant(4), std::vector<uint64_t>{1});
  server.parking.returned(5, 1);
  EXPECT_EQ(server.parking.file_used_bytes() + server.parking.kept_bytes(1), 0u) << "none is kept";
  ASSERT_TRUE(server.parking.begin(6, 1, 3 * kGib, true).ok());
  server.parking.failed(7, 1);
  ASSERT_TRUE(server.parking.begin(8, 1, 3 * kGib, true).ok());
  ASSERT_TRUE(server.parking.begin(8, 2, 3 * kGib).ok());
  server.parking.end(1);
  server.parking.end(2);
  EXPECT_EQ(server.parking.file_used_bytes() + server.parking.host_used_bytes(), 0u);
}

// ---- random sequences ----

class Model {
 public:
  explicit Model(uint32_t seed)
      : random_(seed), gpus_(1 + seed % 4), server_((seed % 3 == 0 ? 20 : 200) * kGib, gpus_) {}

  void step() {
    now_ns_ += random_() % (5 * kSecondNs);
    switch (random_() % 10) {
      case 0:
      case 1:
        newcomer();
        break;
      case 2:
        begin_park();
        break;
      case 3:
        finish_park();
        break;
      case 4:
        if (const uint64_t lease = some(); lease != 0)
          server_.parking.ask(now_ns_, lease, priority_[lease]);
        break;
      case 5:
        finish_wake();
        break;
      case 6:
        if (random_() % 3 == 0) end(some());
        break;
      case 7:
        server_.parking.forget(some());
        break;
      case 8:
        if (const uint64_t lease = some(); lease != 0)
          server_.parking.copy_ahead(now_ns_, lease, random_() % (16 * kGib));
        break;
      default:
        wake();
    }
    check();
  }

  // Everybody that has slices ends, so that everybody else must get theirs. Exception: what all of
  // them keep on a GPU while they are parked can leave no room for any; then one has to end.
  void finish() {
    for (int round = 0; round < 2000 && !held_.empty(); ++round) {
      const size_t held = held_.size();
      const uint64_t woken = wakes_;
      finish_park();
      finish_wake();
      for (const auto& [lease, slices] : std::map(held_)) {
        server_.parking.ask(now_ns_, lease, priority_[lease]);
        if (server_.parking.standing(lease) == Standing::kGranted) end(lease);
      }
      wake();
      check();
      const bool all_wait = std::all_of(held_.begin(), held_.end(), [this](const auto& one) {
        return server_.parking.standing(one.first) == Standing::kWaking;
      });
      if (all_wait && held_.size() == held && wakes_ == woken && held != 0)
        end(held_.begin()->first);
    }
    EXPECT_TRUE(held_.empty()) << "a lease never woke";
    EXPECT_EQ(server_.parking.host_used_bytes(), 0u);
    for (uint32_t gpu = 0; gpu < gpus_; ++gpu)
      EXPECT_EQ(server_.book.share_used(gpu) + server_.book.memory_promised(gpu), 0u);
  }
  uint64_t wakes() const { return wakes_; }

 private:
  uint64_t some() {
    if (held_.empty()) return 0;
    return std::next(held_.begin(), static_cast<long>(random_() % held_.size()))->first;
  }
  void newcomer() {
    const auto priority = static_cast<int32_t>(random_() % 3);
    std::map<uint64_t, std::vector<LeaseBook::Lack>> before = lacks(priority);
    const uint64_t lease = next_++;
    const uint32_t count = 1 + random_() % gpus_;  // one after the other, as in every compiler
    const uint32_t share = 1 + random_() % 700'000;
    const uint64_t memory = (1 + random_() % 12) * kGib;
    auto granted = server_.book.grant(lease, ask(count, share, memory, priority));
    if (!granted.ok()) return;
    held_[lease] = granted.take();
    priority_[lease] = priority;
    for (const auto& [waiting, was] : before) {
      for (uint32_t gpu = 0; gpu < gpus_; ++gpu) {
        const LeaseBook::Lack is = server_.book.lack(waiting, gpu);
        ASSERT_EQ(is.share_millionths, was[gpu].share_millionths) << "a newcomer took its room";
        ASSERT_EQ(is.memory_bytes, was[gpu].memory_bytes) << "a newcomer took its room";
      }
    }
  }
  std::map<uint64_t, std::vector<LeaseBook::Lack>> lacks(int32_t least) {
    std::map<uint64_t, std::vector<LeaseBook::Lack>> all;
    for (const auto& [lease, slices] : held_) {
      if (!server_.book.awaits(lease) || priority_[lease] < least) continue;
      for (uint32_t gpu = 0; gpu < gpus_; ++gpu)
        all[lease].push_back(server_.book.lack(lease, gpu));
    }
    return all;
  }
  void begin_park() {
    const uint64_t lease = some();
    if (lease == 0) return;
    const Standing before = server_.parking.standing(lease);
    const base::Status begun = server_.parking.begin(now_ns_, lease, random_() % (16 * kGib));
    ASSERT_EQ(server_.parking.standing(lease), begun.ok() ? Standing::kParking : before);
    ASSERT_TRUE(before == Standing::kGranted || !begun.ok());
  }
  void finish_park() {
    for (const auto& [lease, slices] : held_) {
      if (server_.parking.standing(lease) != Standing::kParking) continue;
      if (random_() % 4 == 0) return server_.parking.failed(now_ns_, lease);
      std::vector<uint64_t> stays;
      for (size_t i = 0; i < slices.size(); ++i) stays.push_back(random_() % (2 * kGib));
      stays_[lease] = stays;
      return server_.parking.parked(now_ns_, lease, random_() % (20 * kGib), stays);
    }
  }
  void wake() {
    for (const uint64_t lease : server_.parking.grant(now_ns_)) {
      ASSERT_EQ(server_.parking.standing(lease), Standing::kReturning);
      ++wakes_;
    }
  }
  void finish_wake() {
    for (const auto& [lease, slices] : held_) {
      if (server_.parking.standing(lease) == Standing::kReturning)
        return server_.parking.returned(now_ns_, lease);
    }
  }
  void end(uint64_t lease) {
    if (lease == 0) return;
    server_.parking.end(lease);
    server_.book.release(lease);
    held_.erase(lease);
  }
  void check() {
    std::vector<uint64_t> share(gpus_), memory(gpus_);
    uint64_t host = 0;
    for (const auto& [lease, slices] : held_) {
      const bool away = server_.book.is_parked(lease);
      const Standing standing = server_.parking.standing(lease);
      ASSERT_EQ(away, standing == Standing::kParked || standing == Standing::kWaking);
      ASSERT_EQ(server_.book.awaits(lease), standing == Standing::kWaking);
      for (size_t i = 0; i < slices.size(); ++i) {
        share[slices[i].gpu_index] += away ? 0 : slices[i].share_millionths;
        memory[slices[i].gpu_index] +=
            away ? std::min(stays_[lease][i], slices[i].memory_bytes) : slices[i].memory_bytes;
      }
      if (const Parking::Parked* parked = server_.parking.find(lease))
        host += parked->host_bytes + parked->kept_bytes;
    }
    ASSERT_EQ(server_.parking.host_used_bytes(), host);
    ASSERT_LE(host, server_.parking.host_budget_bytes());
    for (uint32_t gpu = 0; gpu < gpus_; ++gpu) {
      ASSERT_LE(share[gpu], config::kWholeGpu);
      ASSERT_LE(memory[gpu], 16 * kGib);
      ASSERT_EQ(server_.book.share_used(gpu), share[gpu]);
      ASSERT_EQ(server_.book.memory_promised(gpu), memory[gpu]);
    }
  }

  std::mt19937 random_;
  const uint32_t gpus_;
  Server server_;
  uint64_t now_ns_ = kSecondNs, next_ = 1, wakes_ = 0;
  std::map<uint64_t, std::vector<wire::SliceGrant>> held_;
  std::map<uint64_t, std::vector<uint64_t>> stays_;
  std::map<uint64_t, int32_t> priority_;
};

TEST(Parking, RandomSequencesAgainstAModel) {
  uint64_t wakes = 0;
  for (uint32_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Model model(seed);
    for (int step = 0; step < 400; ++step) {
      model.step();
      if (testing::Test::HasFatalFailure()) return;
    }
    model.finish();
    wakes += model.wakes();
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GT(wakes, 1000u) << "the test wakes too few to show anything";
}

}  // namespace
}  // namespace tendril::lease
