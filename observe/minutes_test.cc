// SPDX-License-Identifier: Apache-2.0
// Looks at GPUs with known sums.
#include "observe/minutes.h"

#include <gtest/gtest.h>

namespace tendril::observe {
namespace {

constexpr uint64_t kGb = 1'000'000'000;

gpu::DeviceUse use_of(double busy_percent, std::vector<gpu::ProcessUse> processes) {
  gpu::DeviceUse use;
  use.uuid = "GPU-1";
  use.utilization_percent = busy_percent;
  use.power_mw = 100'000;
  use.memory_total_bytes = 80 * kGb;
  for (const auto& process : processes) use.memory_used_bytes += process.memory_bytes;
  use.processes = std::move(processes);
  return use;
}

// Processes below 100 are ada's, of one job; each other one is a job of bob's.
const Owner& owner_of(uint32_t pid) {
  static const Owner ada{"ada", "", "train"};
  static std::map<uint32_t, Owner> bobs;
  return pid < 100 ? ada : bobs[pid] = {"bob", "", "job " + std::to_string(pid)};
}

TEST(ObserveMinutes, PartsSumUpToWhatTheGpuWasBusy) {
  EXPECT_EQ(parts_of(use_of(60, {{1, 0, 10}, {2, 0, 30}})), (std::vector<double>{0.15, 0.45}));
  EXPECT_EQ(parts_of(use_of(60, {{1, 0, -1}, {2, 0, 30}})), (std::vector<double>{0.3, 0.3}));
  EXPECT_EQ(parts_of(use_of(60, {{1, 0, 0}, {2, 0, 0}})), (std::vector<double>{0.3, 0.3}));
  EXPECT_EQ(parts_of(use_of(-1, {{1, 0, 20}, {2, 0, 30}})), (std::vector<double>{0.2, 0.3}));
  EXPECT_TRUE(parts_of(use_of(-1, {{1, 0, -1}})).empty());
  EXPECT_TRUE(parts_of(use_of(50, {})).empty());
}

TEST(ObserveMinutes, OneRowForEachProgram) {
  Minutes minutes;
  for (int second = 0; second < 60; ++second) {
    // ada works half of the time with two processes; bob is there for the first half and idle.
    std::vector<gpu::ProcessUse> processes = {{1, 2 * kGb, 40}, {2, 3 * kGb, 40}};
    if (second < 30) processes.push_back({200, 7 * kGb, 0});
    EXPECT_TRUE(
        minutes.add(120 + second, {use_of(second % 2 == 0 ? 80 : 0, processes)}, owner_of).empty());
  }
  const std::vector<GpuMinute> ended = minutes.add(180, {}, owner_of);
  ASSERT_EQ(ended.size(), 1u);
  const GpuMinute& minute = ended[0];
  EXPECT_EQ(minute.at_s, 120);
  EXPECT_EQ(minute.looks, 60u);
  EXPECT_NEAR(minute.busy, 0.4, 1e-9);
  EXPECT_NEAR(minute.power_w, 100, 1e-9);
  EXPECT_EQ(minute.memory_bytes, 12 * kGb);
  ASSERT_EQ(minute.programs.size(), 2u);
  EXPECT_EQ(minute.programs[0].owner.user, "ada");
  EXPECT_EQ(minute.programs[0].looks, 60u);
  EXPECT_NEAR(minute.programs[0].busy, 0.4, 1e-9);
  EXPECT_EQ(minute.programs[0].memory_bytes, 5 * kGb);
  EXPECT_EQ(minute.programs[1].looks, 30u);
  EXPECT_NEAR(minute.programs[1].busy, 0, 1e-9);
  EXPECT_TRUE(minutes.rest().empty());
}

TEST(ObserveMinutes, AClockThatIsSetBackEndsTheMinute) {
  Minutes minutes;
  minutes.add(600, {use_of(10, {{1, kGb, 10}})}, owner_of);
  const std::vector<GpuMinute> ended = minutes.add(540, {use_of(20, {})}, owner_of);
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_EQ(ended[0].at_s, 600);
  EXPECT_EQ(minutes.rest()[0].at_s, 540);
}

TEST(ObserveMinutes, UnknownIsNotIdle) {
  Minutes minutes;
  minutes.add(0, {use_of(-1, {{1, kGb, -1}})}, owner_of);
  const std::vector<GpuMinute> rest = minutes.rest();
  EXPECT_LT(rest[0].busy, 0);
  EXPECT_LT(rest[0].programs[0].busy, 0);
  EXPECT_EQ(rest[0].programs[0].memory_bytes, kGb);
}

TEST(ObserveMinutes, BoundsThePrograms) {
  Minutes minutes;
  for (uint32_t second = 0; second < 3; ++second) {
    std::vector<gpu::ProcessUse> processes;
    for (uint32_t i = 0; i < 200; ++i) processes.push_back({100 + 200 * second + i, 1, 1});
    minutes.add(second, {use_of(90, processes)}, owner_of);
  }
  const std::vector<GpuMinute> rest = minutes.rest();
  EXPECT_LE(rest[0].programs.size(), 2 * kMostPrograms);
  double sum = 0;
  bool others = false;
  for (const ProgramMinute& program : rest[0].programs) {
    sum += program.busy;
    others = others || program.owner.job == kOthers;
  }
  EXPECT_TRUE(others);
  EXPECT_NEAR(sum, 0.9, 1e-9);
}

}  // namespace
}  // namespace tendril::observe
