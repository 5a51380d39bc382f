// SPDX-License-Identifier: Apache-2.0
// Every fault that a knob makes, seen as the code that a real driver gives. Knobs change while the
// program runs, as with the tool.

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "softgpu/board/board.h"
#include "softgpu/driver/config.h"
#include "softgpu/driver/entry.h"
#include "softgpu/driver/prototypes.h"

namespace tendril::softgpu {
namespace {

#define OK(call) ASSERT_EQ(CUDA_SUCCESS, call)

constexpr char kPtx[] = R"(
  .version 7.0
  .target sm_70
  .address_size 64
  .visible .entry nothing() { ret; }
)";

class Fault : public ::testing::Test {
 protected:
  void SetUp() override {
    OK(cuInit(0));
    OK(cuCtxCreate_v2(&context_, 0, 0));
    OK(cuModuleLoadData(&module_, kPtx));
    OK(cuModuleGetFunction(&nothing_, module_, "nothing"));
    OK(cuMemAlloc_v2(&memory_, 4096));
  }
  void TearDown() override {
    knobs("");
    cuCtxDestroy_v2(context_);
  }
  static void knobs(const char* text) {
    std::string complaint;
    EXPECT_TRUE(board().change_live(text, true, &complaint)) << complaint;
  }
  CUresult launch() {
    return cuLaunchKernel(nothing_, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr);
  }
  static double seconds_of(const std::function<void()>& what) {
    const auto start = std::chrono::steady_clock::now();
    what();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

  CUcontext context_ = nullptr;
  CUmodule module_ = nullptr;
  CUfunction nothing_ = nullptr;
  CUdeviceptr memory_ = 0;
};

TEST_F(Fault, TheNthCallFails) {
  CUdeviceptr address = 0;
  knobs("fail = cuMemAlloc_v2:2:2");
  OK(cuMemAlloc_v2(&address, 16));
  EXPECT_EQ(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2(&address, 16));
  OK(cuMemAlloc_v2(&address, 16));
}

TEST_F(Fault, CallsFailFromTheNthOn) {
  knobs("fail = cuCtxSynchronize:2+:719");
  OK(cuCtxSynchronize());
  EXPECT_EQ(CUDA_ERROR_LAUNCH_FAILED, cuCtxSynchronize());
  EXPECT_EQ(CUDA_ERROR_LAUNCH_FAILED, cuCtxSynchronize());
  knobs("");
  OK(cuCtxSynchronize());  // it was no error of the context
}

TEST_F(Fault, OutOfMemoryAfterSoMuch) {
  knobs("oom_after_mb = 3");
  CUdeviceptr first = 0, second = 0;
  OK(cuMemAlloc_v2(&first, 2 << 20));
  EXPECT_EQ(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2(&second, 2 << 20));
  size_t free_bytes = 0, total = 0;
  OK(cuMemGetInfo_v2(&free_bytes, &total));
  EXPECT_GT(free_bytes, 4u << 20);  // the device does not admit it
}

TEST_F(Fault, ALostDeviceFailsEverything) {
  knobs("device.0.lost = 1");
  EXPECT_EQ(CUDA_ERROR_UNKNOWN, cuCtxSynchronize());
  EXPECT_EQ(CUDA_ERROR_UNKNOWN, launch());
  CUcontext another = nullptr;
  EXPECT_EQ(CUDA_ERROR_UNKNOWN, cuCtxCreate_v2(&another, 0, 0));
  knobs("");
  EXPECT_EQ(CUDA_ERROR_UNKNOWN, cuCtxSynchronize());  // a context does not come back
  // the device does come back, because somebody reset it
  OK(cuCtxCreate_v2(&another, 0, 0));
  OK(cuCtxDestroy_v2(another));
}

TEST_F(Fault, AnUncorrectableErrorSticks) {
  const uint64_t before = board().view(0).ecc_errors;
  knobs("ecc = 1");
  OK(launch());
  EXPECT_EQ(CUDA_ERROR_ECC_UNCORRECTABLE, cuCtxSynchronize());
  EXPECT_EQ(before + 1, board().view(0).ecc_errors);
  knobs("");
  EXPECT_EQ(CUDA_ERROR_ECC_UNCORRECTABLE, launch());
}

TEST_F(Fault, AKernelThatNeverEndsEndsWithItsContext) {
  knobs("hang = nothing");
  OK(launch());
  EXPECT_EQ(CUDA_ERROR_NOT_READY, cuStreamQuery(nullptr));
  usleep(20000);
  EXPECT_EQ(CUDA_ERROR_NOT_READY, cuStreamQuery(nullptr));
  EXPECT_LT(seconds_of([&] { cuCtxDestroy_v2(context_); }), 10);
}

TEST_F(Fault, AKernelThatNeverEndsTimesOutWhereThereIsALimit) {
  knobs("hang = *; steps = 1000");
  OK(launch());
  EXPECT_EQ(CUDA_ERROR_LAUNCH_TIMEOUT, cuCtxSynchronize());
}

TEST_F(Fault, AValueThatNeverComesTimesOutWhereThereIsALimit) {
  knobs("steps = 1000");
  OK(cuMemsetD32_v2(memory_, 0, 1));
  OK(cuStreamWaitValue32_v2(nullptr, memory_, 7, CU_STREAM_WAIT_VALUE_EQ));
  EXPECT_EQ(CUDA_ERROR_LAUNCH_TIMEOUT, cuCtxSynchronize());
}

TEST_F(Fault, AGraphThatRepeatsItselfTimesOutWhereThereIsALimit) {
  knobs("steps = 1000");
  CUgraph graph = nullptr;
  OK(cuGraphCreate(&graph, 0));
  CUgraphNodeParams params = {};
  params.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
  params.conditional.type = CU_GRAPH_COND_TYPE_WHILE;
  params.conditional.size = 1;
  params.conditional.ctx = context_;
  OK(cuGraphConditionalHandleCreate(&params.conditional.handle, graph, context_, 1,
                                    CU_GRAPH_COND_ASSIGN_DEFAULT));
  CUgraphNode node = nullptr;
  OK(cuGraphAddNode_v2(&node, graph, nullptr, nullptr, 0, &params));
  CUgraphExec exec = nullptr;
  OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
  OK(cuGraphLaunch(exec, nullptr));
  EXPECT_EQ(CUDA_ERROR_LAUNCH_TIMEOUT, cuCtxSynchronize());
  OK(cuGraphExecDestroy(exec));
  OK(cuGraphDestroy(graph));
}

TEST_F(Fault, WorkIsLateByAtMostTheDelay) {
  knobs("delay_us = 50000; seed = 3");
  const double ten = seconds_of([&] {
    for (int i = 0; i < 10; ++i) OK(launch());
    OK(cuCtxSynchronize());
  });
  EXPECT_GT(ten, 0.05);  // ten delays of up to 50 ms, 25 on average
  EXPECT_LT(ten, 5);
}

TEST_F(Fault, OneBitOfTheNthCopyIsWrong) {
  std::vector<uint8_t> in(4096, 0x55), out(4096);
  knobs("flip_copy = 2; seed = 9");
  OK(cuMemcpyHtoD_v2(memory_, in.data(), 4096));
  OK(cuMemcpyDtoH_v2(out.data(), memory_, 4096));
  int wrong = 0;
  for (int i = 0; i < 4096; ++i) wrong += __builtin_popcount(in[i] ^ out[i]);
  EXPECT_EQ(1, wrong);
  OK(cuMemcpyDtoH_v2(out.data(), memory_, 4096));
  EXPECT_EQ(in, out);
}

TEST_F(Fault, TheProcessAbortsAtACall) {
  pid_t child = fork();
  if (child == 0) {
    // A child of its own. The call need not get further than its entry.
    std::string complaint;
    board().change_live("abort = cuInit:2", true, &complaint);
    cuInit(0);
    cuInit(0);
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT) << status;
}

TEST_F(Fault, ContextsMayBeSlow) {
  knobs("context_ms = 50");
  CUcontext another = nullptr;
  EXPECT_GE(seconds_of([&] { OK(cuCtxCreate_v2(&another, 0, 0)); }), 0.05);
  OK(cuCtxDestroy_v2(another));
}

TEST_F(Fault, VersionAndAttributesAreClaimed) {
  knobs("version = 12040; attributes = 75:8,76:6");
  int value = 0;
  OK(cuDriverGetVersion(&value));
  EXPECT_EQ(12040, value);
  OK(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 0));
  EXPECT_EQ(8, value);
}

}  // namespace
}  // namespace tendril::softgpu
