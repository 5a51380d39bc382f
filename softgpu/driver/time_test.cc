// SPDX-License-Identifier: Apache-2.0
// Simulated time through the exported calls. A program of its own, because the mode is fixed when a
// process starts.

#include <gtest/gtest.h>
#include <stdlib.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "softgpu/board/board.h"
#include "softgpu/driver/config.h"
#include "softgpu/driver/prototypes.h"
#include "softgpu/driver/stream/clock.h"

namespace tendril::softgpu {
namespace {

#define OK(call) ASSERT_EQ(CUDA_SUCCESS, call)

constexpr char kPtx[] = R"(
  .version 7.0
  .target sm_70
  .address_size 64
  .visible .entry spin(.param .u32 n)
  {
    .reg .b32 %r<3>; .reg .pred %p<2>;
    ld.param.u32 %r1, [n];
    mov.u32 %r2, 0;
  AGAIN: add.u32 %r2, %r2, 1;
    setp.lt.u32 %p1, %r2, %r1; @%p1 bra AGAIN;
    ret;
  }
  .visible .entry hour() { ret; }
  .visible .entry timers(.param .u64 out)
  {
    .reg .b64 %rd<4>; .reg .b32 %r<2>; .reg .pred %p<2>;
    ld.param.u64 %rd1, [out];
    mov.u64 %rd2, %globaltimer; st.global.u64 [%rd1], %rd2;
    mov.u32 %r1, 0;
  AGAIN: add.u32 %r1, %r1, 1;
    setp.lt.u32 %p1, %r1, 1000; @%p1 bra AGAIN;
    mov.u64 %rd3, %globaltimer; st.global.u64 [%rd1+8], %rd3;
    ret;
  }
)";

double host_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

class Simulated : public ::testing::Test {
 protected:
  void SetUp() override {
    OK(cuInit(0));
    OK(cuCtxCreate_v2(&context_, 0, 0));
    OK(cuModuleLoadData(&module_, kPtx));
    OK(cuModuleGetFunction(&spin_, module_, "spin"));
    OK(cuModuleGetFunction(&hour_, module_, "hour"));
    for (CUevent& event : events_) OK(cuEventCreate(&event, 0));
    OK(spin(1));  // changing to this context costs time, once
    OK(cuCtxSynchronize());
  }
  void TearDown() override {
    std::string complaint;
    board().change_live("", true, &complaint);
    cuCtxDestroy_v2(context_);
  }
  CUresult spin(unsigned turns, CUstream stream = nullptr, unsigned blocks = 4) {
    void* params[] = {&turns};
    return cuLaunchKernel(spin_, blocks, 1, 1, 32, 1, 1, 0, stream, params, nullptr);
  }
  CUresult hour(CUstream stream = nullptr) {
    return cuLaunchKernel(hour_, 1, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr);
  }
  // Simulated milliseconds that `work` takes in the legacy stream.
  template <typename Work>
  double timed_ms(Work work) {
    float ms = -1;
    EXPECT_EQ(CUDA_SUCCESS, cuEventRecord(events_[0], nullptr));
    work();
    EXPECT_EQ(CUDA_SUCCESS, cuEventRecord(events_[1], nullptr));
    EXPECT_EQ(CUDA_SUCCESS, cuEventSynchronize(events_[1]));
    EXPECT_EQ(CUDA_SUCCESS, cuEventElapsedTime_v2(&ms, events_[0], events_[1]));
    return ms;
  }
  static void knobs(const char* text) {
    std::string complaint;
    EXPECT_TRUE(board().change_live(text, true, &complaint)) << complaint;
  }

  CUcontext context_ = nullptr;
  CUmodule module_ = nullptr;
  CUfunction spin_ = nullptr, hour_ = nullptr;
  CUevent events_[2] = {};
};

TEST_F(Simulated, AKernelTakesWhatItsInstructionsTake) {
  const double one = timed_ms([&] { OK(spin(100'000)); });
  const double four = timed_ms([&] { OK(spin(400'000)); });
  const double launch = static_cast<double>(config().device[0].launch_ns) * 1e-6;
  EXPECT_NEAR((four - launch) / (one - launch), 4, 0.01);
  // Three instructions a turn, one warp per block, as many blocks as processors, `rate`
  // instructions per ns each.
  const double expected = 3 * 100'000 / config().device[0].rate * 1e-6;
  EXPECT_NEAR(one - launch, expected, expected * 0.01);
  EXPECT_EQ(one, timed_ms([&] { OK(spin(100'000)); }));
}

TEST_F(Simulated, AnHourPassesAtOnce) {
  knobs("kernel_us = hour:3600e6");
  const double start = host_seconds();
  EXPECT_NEAR(3600e3, timed_ms([&] { OK(hour()); }), 1);
  EXPECT_LT(host_seconds() - start, 60);
  EXPECT_EQ(100u, board().view(0).utilization_percent);
}

TEST_F(Simulated, CopiesTakeLatencyAndBandwidth) {
  CUdeviceptr memory = 0;
  OK(cuMemAlloc_v2(&memory, 50'000'000));
  void* host = nullptr;
  OK(cuMemHostAlloc(&host, 50'000'000, 0));
  const DeviceSettings& device = config().device[0];
  const double expected =
      static_cast<double>(device.copy_ns) * 1e-6 + 50'000'000 / device.link * 1e-6;
  EXPECT_NEAR(expected,
              timed_ms([&] { OK(cuMemcpyHtoDAsync_v2(memory, host, 50'000'000, nullptr)); }),
              0.001);
  EXPECT_NEAR(expected,
              timed_ms([&] { OK(cuMemcpyDtoHAsync_v2(host, memory, 50'000'000, nullptr)); }),
              0.001);
}

TEST_F(Simulated, StreamsOfOneContextShareTheDevice) {
  CUstream streams[2];
  for (CUstream& stream : streams) OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  const double alone = timed_ms([&] { OK(spin(200'000)); });
  CUevent ends[2];
  OK(cuEventRecord(events_[0], nullptr));
  OK(cuEventSynchronize(events_[0]));
  for (int i = 0; i < 2; ++i) {
    OK(cuEventCreate(&ends[i], 0));
    OK(spin(200'000, streams[i]));
    OK(cuEventRecord(ends[i], streams[i]));
  }
  OK(cuCtxSynchronize());
  float first = 0, second = 0;
  OK(cuEventElapsedTime_v2(&first, events_[0], ends[0]));
  OK(cuEventElapsedTime_v2(&second, events_[0], ends[1]));
  if (second < first)
    // each stream has its own thread of the host, and either may come first
    std::swap(first, second);
  EXPECT_NEAR(alone, first, alone * 0.01);
  EXPECT_NEAR(2 * alone, second, alone * 0.01);
}

TEST_F(Simulated, ContextsAreTimeSliced) {
  knobs("kernel_us = hour:20000");
  CUcontext other = nullptr;
  OK(cuCtxCreate_v2(&other, 0, 0));
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  OK(cuModuleLoadData(&module, kPtx));
  OK(cuModuleGetFunction(&function, module, "hour"));
  OK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
  OK(cuCtxSetCurrent(context_));
  const double shared = timed_ms([&] { OK(hour()); });
  EXPECT_GT(shared, 38);  // two share 20 ms of work
  EXPECT_LT(shared, 48);  // plus the cost of changing
  const double alone = timed_ms([&] { OK(hour()); });
  EXPECT_NEAR(20, alone, 0.5);
  OK(cuCtxDestroy_v2(other));
}

TEST_F(Simulated, PollingGetsThere) {
  knobs("kernel_us = hour:3600e6");
  OK(hour());
  OK(cuEventRecord(events_[0], nullptr));
  CUresult state;
  uint64_t questions = 0;
  while ((state = cuEventQuery(events_[0])) == CUDA_ERROR_NOT_READY && ++questions < 100'000'000) {
  }
  OK(state);
}

TEST_F(Simulated, SlownessAndDelaysAreTheSameEachTime) {
  const double plain = timed_ms([&] { OK(spin(100'000)); });
  knobs("slow = 3");
  EXPECT_NEAR(3 * plain, timed_ms([&] { OK(spin(100'000)); }), plain * 0.01);
  std::vector<double> first, second;
  knobs("delay_us = 1000; seed = 5");
  for (int i = 0; i < 8; ++i) first.push_back(timed_ms([&] { OK(spin(1000)); }));
  for (double one : first) EXPECT_LT(one, 1.1);
  EXPECT_NE(first[0], first[1]);
}

TEST_F(Simulated, KernelsReadTheClock) {
  CUfunction timers = nullptr;
  CUdeviceptr memory = 0;
  uint64_t seen[2] = {};
  OK(cuModuleGetFunction(&timers, module_, "timers"));
  OK(cuMemAlloc_v2(&memory, sizeof seen));
  Clock::instance().sleep(1'000'000'000);
  const int64_t now = Clock::instance().now_ns();
  void* params[] = {&memory};
  OK(cuLaunchKernel(timers, 1, 1, 1, 1, 1, 1, 0, nullptr, params, nullptr));
  OK(cuMemcpyDtoH_v2(seen, memory, sizeof seen));
  EXPECT_GE(seen[0], static_cast<uint64_t>(now));
  EXPECT_LT(seen[0], static_cast<uint64_t>(now) + 1000);
  EXPECT_NEAR(3000, static_cast<double>(seen[1] - seen[0]), 30);
}

TEST_F(Simulated, HostsWaitOnTheClock) {
  const int64_t start = Clock::instance().now_ns();
  Clock::instance().sleep(86'400'000'000'000);
  EXPECT_EQ(start + 86'400'000'000'000, Clock::instance().now_ns());
  knobs("context_ms = 7000");
  CUcontext another = nullptr;
  OK(cuCtxCreate_v2(&another, 0, 0));
  EXPECT_EQ(start + 86'407'000'000'000, Clock::instance().now_ns());
  OK(cuCtxDestroy_v2(another));
}

TEST_F(Simulated, AKernelThatNeverEndsLeavesOthersTheirShare) {
  knobs("hang = spin; kernel_us = hour:20000");
  CUcontext other = nullptr;
  OK(spin(1));
  OK(cuCtxCreate_v2(&other, 0, 0));
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  OK(cuModuleLoadData(&module, kPtx));
  OK(cuModuleGetFunction(&function, module, "hour"));
  const int64_t start = Clock::instance().now_ns();
  OK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
  OK(cuCtxSynchronize());
  EXPECT_NEAR(43, static_cast<double>(Clock::instance().now_ns() - start) * 1e-6, 5);
  OK(cuCtxDestroy_v2(other));
}

}  // namespace
}  // namespace tendril::softgpu

int main(int argc, char** argv) {
  setenv("TENDRIL_SOFTGPU_MODE", "virtual", 1);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
