// SPDX-License-Identifier: Apache-2.0
// Few bytes of a client must not make its worker large: the experiments of the audit with ids that
// the client chooses, and with waits that never end.
#include <dirent.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <string>
#include <thread>

#include "worker/cuda/testing/random_calls.h"
#include "worker/cuda/testing/session.h"

namespace tendril::worker::cuda {
namespace {

constexpr uint64_t kMemory = 0x10'0000'0000;

uint64_t resident_bytes() {
  uint64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages >> pages;
  return pages * 4096;
}

unsigned thread_count() {
  unsigned count = 0;
  DIR* const tasks = opendir("/proc/self/task");
  while (readdir(tasks) != nullptr) ++count;
  closedir(tasks);
  return count - 2;  // . and ..
}

std::unique_ptr<gpu::Driver> driver() {
  setenv("TENDRIL_SOFTGPU_DEVICES", "2", 1);
  setenv("TENDRIL_SOFTGPU_STEPS", "100000", 1);  // an endless wait ends after a while
  setenv("TENDRIL_WAIT_SPIN_US", "0", 1);        // waits go to threads at once
  auto driver = gpu::Driver::open(TENDRIL_TEST_DRIVER);
  if (!driver.ok() || (*driver)->cuInit(0) != CUDA_SUCCESS) return nullptr;
  return driver.take();
}

std::vector<uint8_t> lane_with_context() {
  std::vector<uint8_t> lane;
  wire::cuda::primary_retain_request retain;
  retain.context = api::make_id(Kind::kContext, 0, 1, 1);
  append_call(&lane, retain, 0, 1);
  return lane;
}

TEST(Bounds, IdsThatAClientChoosesTakeNoMemory) {
  const auto gpu = driver();
  ASSERT_NE(gpu, nullptr);
  const std::vector<uint8_t> first = lane_with_context();
  run_lane(gpu.get(), first.data(), first.size());
  std::vector<uint8_t> lane = lane_with_context();
  wire::cuda::cuGraphCreate_request graph;
  wire::cuda::event_create_request event;
  wire::cuda::stream_create_request stream;
  for (uint32_t index = api::kIndexMax - 1; index > api::kIndexMax / 2; index -= 1u << 20) {
    graph.phGraph = api::make_id(Kind::kGraph, 0, 1, index);
    event.event = api::make_id(Kind::kEvent, 0, 1, index);
    stream.stream = api::make_id(Kind::kStream, 0, 1, index);
    append_call(&lane, graph, 1, 1);
    append_call(&lane, event, 1, 0);
    append_call(&lane, stream, 1, 0);
  }
  const uint64_t before = resident_bytes();
  run_lane(gpu.get(), lane.data(), lane.size());
  const uint64_t after = resident_bytes();
  EXPECT_LT(after, before + (64u << 20)) << lane.size() << " bytes";
}

TEST(Bounds, WaitsTakeAFixedNumberOfThreads) {
  const auto gpu = driver();
  ASSERT_NE(gpu, nullptr);
  std::vector<uint8_t> lane = lane_with_context();
  wire::cuda::mirror_create_request mirror;
  mirror.address = kMemory;
  mirror.bytes = 4096;
  append_call(&lane, mirror, 1, 1);
  wire::cuda::stream_create_request stream;
  stream.stream = api::make_id(Kind::kStream, 0, 1, 1);
  stream.flags = CU_STREAM_NON_BLOCKING;
  append_call(&lane, stream, 1, 0);
  wire::cuda::cuStreamWaitValue32_v2_request never;
  never.stream = stream.stream;
  never.addr = kMemory;
  never.value = 1;
  append_call(&lane, never, 1, 0);
  wire::cuda::stream_synchronize_request wait;
  wait.stream = stream.stream;
  for (uint32_t i = 0; i < 2500; ++i) append_call(&lane, wait, 1, 2 + i);
  std::atomic<bool> over{false};
  unsigned most = 0;
  const unsigned before = thread_count();
  std::thread sampler([&] {
    while (!over) most = std::max(most, thread_count());
  });
  run_lane(gpu.get(), lane.data(), lane.size());
  over = true;
  sampler.join();
  EXPECT_LT(most, before + 80) << "the software GPU has threads of its own, too";
}

}  // namespace
}  // namespace tendril::worker::cuda
