// SPDX-License-Identifier: Apache-2.0
// Device printf must reach the program's own stdout by the next synchronisation, in the format that
// C prescribes.
#include <stdio.h>

#include <functional>

#include "tests/conformance/harness.h"

namespace tendril::conformance {
namespace {

size_t occurrences(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) count++;
  return count;
}

TEST(PrintfProcess, ReachesStdout) {
  if (in_child()) {
    attach();
    Module module(faults_ptx());
    OK(launch(module.function("print_hello"), {1}, {1}, 0, nullptr, 42u));
    OK(cuCtxSynchronize());
    return;
  }
  const ChildResult child = run_child("PrintfProcess.ReachesStdout");
  EXPECT_EQ(child.exit_code, 0) << child.output;
  EXPECT_EQ(occurrences(child.output, "hello from the device, number 42\n"), 1u) << child.output;
}

TEST(PrintfProcess, Formats) {
  if (in_child()) {
    attach();
    Module module(faults_ptx());
    OK(launch(module.function("print_formats"), {1}, {1}, 0, nullptr, 3.14159,
              static_cast<long long>(-1234567890123), CUdeviceptr{0}));
    OK(cuCtxSynchronize());
    return;
  }
  const ChildResult child = run_child("PrintfProcess.Formats");
  EXPECT_EQ(child.exit_code, 0) << child.output;
  EXPECT_NE(child.output.find("int -42 unsigned 42 hex beef char z string text percent %\n"),
            std::string::npos)
      << child.output;
  EXPECT_NE(child.output.find("long -1234567890123 double 3.142 wide [    17] left [17    ]\n"),
            std::string::npos)
      << child.output;
}

TEST(PrintfProcess, EveryThreadPrintsOnce) {
  if (in_child()) {
    attach();
    Module module(faults_ptx());
    OK(launch(module.function("print_threads"), {4}, {8}, 0, nullptr));
    OK(cuCtxSynchronize());
    return;
  }
  const ChildResult child = run_child("PrintfProcess.EveryThreadPrintsOnce");
  EXPECT_EQ(child.exit_code, 0) << child.output;
  for (int block = 0; block < 4; block++) {
    for (int thread = 0; thread < 8; thread++) {
      const std::string line =
          "thread " + std::to_string(thread) + " of block " + std::to_string(block) + "\n";
      EXPECT_EQ(occurrences(child.output, line), 1u) << line;
    }
  }
}

TEST(PrintfProcess, PrintedBeforeWhatTheHostPrintsAfterSynchronize) {
  if (in_child()) {
    attach();
    Module module(faults_ptx());
    setvbuf(stdout, nullptr, _IONBF, 0);
    for (unsigned i = 0; i < 3; i++) {
      OK(launch(module.function("print_hello"), {1}, {1}, 0, nullptr, i));
      OK(cuCtxSynchronize());
      printf("host saw %u\n", i);
    }
    return;
  }
  const ChildResult child =
      run_child("PrintfProcess.PrintedBeforeWhatTheHostPrintsAfterSynchronize");
  EXPECT_EQ(child.exit_code, 0) << child.output;
  size_t last = 0;
  for (int i = 0; i < 3; i++) {
    const size_t device_line = child.output.find("number " + std::to_string(i) + "\n");
    const size_t host_line = child.output.find("host saw " + std::to_string(i) + "\n");
    ASSERT_NE(device_line, std::string::npos) << child.output;
    ASSERT_NE(host_line, std::string::npos) << child.output;
    EXPECT_LE(last, device_line) << child.output;
    EXPECT_LT(device_line, host_line) << child.output;
    last = host_line;
  }
}

// Device text goes through the program's buffer, so it keeps its place even if nobody flushes.
TEST(PrintfProcess, KeepsItsPlaceInTheBuffer) {
  if (in_child()) {
    static char buffer[1 << 16];
    attach();
    Module module(faults_ptx());
    fflush(stdout);
    setvbuf(stdout, buffer, _IOFBF, sizeof buffer);
    printf("host speaks first\n");
    OK(launch(module.function("print_hello"), {1}, {1}, 0, nullptr, 5u));
    OK(cuCtxSynchronize());
    printf("host speaks last\n");
    fflush(stdout);
    setvbuf(stdout, nullptr, _IONBF, 0);
    return;
  }
  const ChildResult child = run_child("PrintfProcess.KeepsItsPlaceInTheBuffer");
  EXPECT_EQ(child.exit_code, 0) << child.output;
  const size_t first = child.output.find("host speaks first"),
               last = child.output.find("host speaks last");
  const size_t device_line = child.output.find("number 5\n");
  EXPECT_LT(first, device_line) << child.output;
  EXPECT_LT(device_line, last) << child.output;
  ASSERT_NE(last, std::string::npos) << child.output;
}

TEST(PrintfProcess, StreamSynchronizeFlushesToo) {
  if (in_child()) {
    attach();
    Module module(faults_ptx());
    Stream stream;
    OK(launch(module.function("print_hello"), {1}, {1}, 0, stream, 7u));
    OK(cuStreamSynchronize(stream));
    OK(cuCtxSynchronize());
    return;
  }
  const ChildResult child = run_child("PrintfProcess.StreamSynchronizeFlushesToo");
  EXPECT_EQ(child.exit_code, 0) << child.output;
  EXPECT_EQ(occurrences(child.output, "number 7\n"), 1u) << child.output;
}

// The room for what kernels print cannot be changed once a kernel that prints has been launched.
// Tendril asks for that before it answers a wait.
TEST(PrintfProcess, ItsRoomIsFixedOnceAKernelPrints) {
  if (in_child()) {
    attach();
    size_t bytes = 0;
    OK(cuCtxGetLimit(&bytes, CU_LIMIT_PRINTF_FIFO_SIZE));
    OK(cuCtxSetLimit(CU_LIMIT_PRINTF_FIFO_SIZE, bytes));
    Module module(faults_ptx());
    OK(cuCtxSetLimit(CU_LIMIT_PRINTF_FIFO_SIZE, bytes));
    OK(launch(module.function("print_hello"), {1}, {1}, 0, nullptr, 1u));
    EXPECT_EQ(cuCtxSetLimit(CU_LIMIT_PRINTF_FIFO_SIZE, bytes), CUDA_ERROR_INVALID_VALUE);
    OK(cuCtxSynchronize());
    EXPECT_EQ(cuCtxSetLimit(CU_LIMIT_PRINTF_FIFO_SIZE, bytes), CUDA_ERROR_INVALID_VALUE);
    return;
  }
  const ChildResult child = run_child("PrintfProcess.ItsRoomIsFixedOnceAKernelPrints");
  EXPECT_EQ(child.exit_code, 0) << child.output;
}

// By a graph, after many waits for kernels that print nothing, and with each kind of wait.
TEST(PrintfProcess, AGraphPrintsBeforeTheHostToo) {
  if (in_child()) {
    attach();
    setvbuf(stdout, nullptr, _IONBF, 0);
    Module module(faults_ptx());
    Buffer memory(256);
    for (int i = 0; i < 100; i++) {
      OK(launch(basic("fill"), {1}, {64}, 0, nullptr, CUdeviceptr{memory}, 1u, 64u));
      OK(cuCtxSynchronize());
    }
    Stream stream;
    Event event;
    CUgraph graph = nullptr;
    CUgraphExec exec = nullptr;
    OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(launch(module.function("print_hello"), {1}, {1}, 0, stream, 3u));
    OK(cuStreamEndCapture(stream, &graph));
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    uint32_t value = 0;
    const std::function<CUresult()> waits[] = {[] { return cuCtxSynchronize(); },
                                               [&] { return cuStreamSynchronize(stream); },
                                               [&] { return cuEventSynchronize(event); }};
    for (const auto& wait : waits) {
      OK(cuGraphLaunch(exec, stream));
      OK(cuEventRecord(event, stream));
      OK(wait());
      printf("host saw %u\n", ++value);
    }
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    return;
  }
  const ChildResult child = run_child("PrintfProcess.AGraphPrintsBeforeTheHostToo");
  EXPECT_EQ(child.exit_code, 0) << child.output;
  size_t at = 0;
  for (int i = 1; i <= 3; i++) {
    const size_t device_line = child.output.find("number 3\n", at);
    const size_t host_line = child.output.find("host saw " + std::to_string(i) + "\n", at);
    ASSERT_NE(device_line, std::string::npos) << child.output;
    ASSERT_NE(host_line, std::string::npos) << child.output;
    EXPECT_LT(device_line, host_line) << child.output;
    at = host_line;
  }
}

// More text than fits a page, a little before each wait.
TEST(PrintfProcess, ALittleAtATime) {
  constexpr unsigned kTimes = 600;
  if (in_child()) {
    attach();
    Module module(faults_ptx());
    for (unsigned i = 0; i < kTimes; i++) {
      ASSERT_EQ(launch(module.function("print_hello"), {1}, {1}, 0, nullptr, i), CUDA_SUCCESS);
      ASSERT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
      if (i % 100 == 99) printf("%u of the program\n", i);
    }
    return;
  }
  const ChildResult child = run_child("PrintfProcess.ALittleAtATime");
  EXPECT_EQ(child.exit_code, 0) << child.output;
  size_t at = 0;
  for (unsigned i = 0; i < kTimes && at != std::string::npos; i++) {
    at = child.output.find("hello from the device, number " + std::to_string(i) + "\n", at);
    EXPECT_NE(at, std::string::npos) << i;
    if (i % 100 == 99 && at != std::string::npos)
      at = child.output.find(std::to_string(i) + " of the program\n", at);
  }
  EXPECT_NE(at, std::string::npos) << "what the program wrote is among it, in its place";
}

}  // namespace
}  // namespace tendril::conformance
