// SPDX-License-Identifier: Apache-2.0
// What 1,000 servers with ten leases each cost one Scheduler: memory, and time for each report.
#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include "pool/scheduler/scheduler.h"

namespace tendril::pool::simulation {
namespace {

constexpr size_t kServers = 1'000, kGpus = 8, kLeases = 10;
constexpr uint64_t kStart = 1'000'000'000'000;

size_t bytes_allocated() {
  const struct mallinfo2 info = mallinfo2();
  return info.uordblks + info.hblkhd;
}

wire::PoolReport full_report(size_t server) {
  wire::PoolReport report;
  report.boot = server + 1;
  report.number = 1;
  report.full = true;
  wire::ServerFacts facts;
  facts.name = "gpu" + std::to_string(server);
  facts.endpoint = facts.name + ".example.org:7433";
  facts.server_id = std::string(16, static_cast<char>(server));
  facts.boot = server + 1;
  facts.product_version = wire::product_version();
  facts.apis = {{"cuda", 77}};
  facts.transports = {"tcp"};
  for (uint32_t i = 0; i < kGpus; ++i) {
    wire::GpuRecord gpu;
    gpu.index = i;
    gpu.name = "NVIDIA H200";
    gpu.uuid = std::string(16, static_cast<char>(i));
    gpu.memory_total_bytes = gpu.memory_usable_bytes = 140ull << 30;
    gpu.compute_capability = 90;
    facts.gpus.push_back(std::move(gpu));
  }
  report.facts.push_back(std::move(facts));
  for (size_t i = 0; i < kLeases; ++i) {
    wire::BookEntry entry;
    entry.lease_id = i + 1;
    entry.phase = wire::LeasePhase::kClaimed;
    entry.owner_id = "spiffe://lab/user/user" + std::to_string((server * kLeases + i) % 500);
    entry.owner_name = "user" + std::to_string((server * kLeases + i) % 500);
    entry.client.program = "python";
    entry.slices = {{static_cast<uint32_t>(i % kGpus), 500'000, 70ull << 30, false}};
    entry.was_attached = true;
    entry.idle_ns = 0;
    report.entries.push_back(std::move(entry));
  }
  return report;
}

class Scale : public testing::Test {
 protected:
  Scale() : scheduler_(SchedulerOptions{}) {
    scheduler_.recover({}, now());
    for (size_t i = 0; i < kServers; ++i) {
      scheduler_.reported(i + 1, "gpu" + std::to_string(i), full_report(i), now());
    }
    settle();
  }

  Now now() const { return {now_ns_, static_cast<int64_t>(1'790'000'000 + now_ns_ / kSecondNs)}; }
  // The store takes everything at once.
  void settle() {
    for (int i = 0; i < 100; ++i) {
      const Effects effects = scheduler_.tick(now());
      answers_ += effects.to_servers.size();
      for (const Batch& batch : effects.writes) {
        scheduler_.stored(batch.number, base::Status(), now());
      }
      if (effects.writes.empty()) return;
    }
  }

  static constexpr uint64_t kSecondNs = 1'000'000'000;
  uint64_t now_ns_ = kStart;
  size_t answers_ = 0;
  const size_t before_bytes_ = bytes_allocated();
  Scheduler scheduler_;
};

TEST_F(Scale, StateAndReportsOfAThousandServers) {
  const size_t state_bytes = bytes_allocated() - before_bytes_;
  EXPECT_EQ(scheduler_.counts().servers, kServers);
  EXPECT_EQ(scheduler_.counts().leases, kServers * kLeases);
  EXPECT_LT(state_bytes, 50u << 20);

  // Each server reports every two seconds, at times of its own. Each fifth report has the use of
  // its leases.
  constexpr size_t kRounds = 10;
  const auto start = std::chrono::steady_clock::now();
  const clock_t processor = clock();
  for (size_t round = 0; round < kRounds; ++round) {
    for (size_t i = 0; i < kServers; ++i) {
      now_ns_ += 2 * kSecondNs / kServers;
      wire::PoolReport report;
      if (round % 5 == 0) {
        report = full_report(i);
        report.facts.clear();
        report.full = false;
      }
      report.boot = i + 1;
      report.number = round + 2;
      settle();  // answers the last report
      scheduler_.reported(i + 1, "gpu" + std::to_string(i), report, now());
      settle();
    }
  }
  const double seconds = static_cast<double>(clock() - processor) / CLOCKS_PER_SEC;
  const double wall =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  printf(
      "1,000 servers with ten leases each: %.1f MB, %.1f us of processor for each report, %.1f %% "
      "of "
      "a processor (%.2f s passed); %zu answers\n",
      static_cast<double>(state_bytes) / 1e6, seconds * 1e6 / (kRounds * kServers),
      seconds / (2.0 * kRounds) * 100, wall, answers_);
  EXPECT_GE(answers_, kServers * (kRounds - 2));
  EXPECT_EQ(scheduler_.counts().leases, kServers * kLeases);
}

}  // namespace
}  // namespace tendril::pool::simulation
