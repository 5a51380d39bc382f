// SPDX-License-Identifier: Apache-2.0
// What every file of the suite uses: checks that name driver codes and write the transcript, a
// fixture with device 0's primary context current, small owners of driver objects, and cases that
// run in a process of their own. Main thread, except where a comment says otherwise.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "tests/conformance/driver.h"

namespace tendril::conformance {

// Compares, and writes "call -> CODE" to the transcript if it runs on the main thread. `accepted`
// has more than one code where the documentation leaves the choice to the driver. The transcript
// still shows a difference between a direct run and a remote one.
::testing::AssertionResult check(const char* call, CUresult result,
                                 std::initializer_list<CUresult> accepted);
// One more transcript line, for observed values that must agree between a direct and a remote run.
void note(const std::string& line);

// The variadic part is the expected code, or the set of acceptable codes.
#define EXPECT_CU(call, ...) \
  EXPECT_TRUE(::tendril::conformance::check(#call, (call), {__VA_ARGS__}))
#define ASSERT_CU(call, ...) \
  ASSERT_TRUE(::tendril::conformance::check(#call, (call), {__VA_ARGS__}))
#define OK(call) EXPECT_CU(call, CUDA_SUCCESS)
#define MUST(call) ASSERT_CU(call, CUDA_SUCCESS)
#define INVALID(call) EXPECT_CU(call, CUDA_ERROR_INVALID_VALUE)
// A NULL or destroyed handle. The documentation lists both codes, and drivers have used either.
#define BAD_HANDLE(call) EXPECT_CU(call, CUDA_ERROR_INVALID_HANDLE, CUDA_ERROR_INVALID_VALUE)

// cuInit and the primary context of device 0, retained once per process and made current on this
// thread. Null after a failure.
CUcontext attach();
CUdevice device();
// Whether that device is the software GPU, directly or through Tendril.
bool on_software();
int attribute(CUdevice_attribute which, CUdevice dev = device());

#define REQUIRE_ATTRIBUTE(which)                       \
  if (::tendril::conformance::attribute(which) == 0) { \
    GTEST_SKIP() << "the device says " #which " = 0";  \
  }

// A fixture whose tests run with the primary context current. The test that poisons the context
// reports it.
class CudaTest : public ::testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;
  CUcontext context_ = nullptr;
};

// ---- Owners. Each fails the test if creation fails. Destruction ignores errors. ----
class Buffer {
 public:
  explicit Buffer(size_t bytes);
  ~Buffer() { cuMemFree_v2(address_); }
  Buffer(const Buffer&) = delete;
  operator CUdeviceptr() const { return address_; }
  CUdeviceptr* param() { return &address_; }
  size_t bytes() const { return bytes_; }

 private:
  CUdeviceptr address_ = 0;
  size_t bytes_;
};

// Pinned host memory.
class Pinned {
 public:
  explicit Pinned(size_t bytes, unsigned flags = 0);
  ~Pinned() { cuMemFreeHost(memory_); }
  Pinned(const Pinned&) = delete;
  uint8_t* data() { return static_cast<uint8_t*>(memory_); }
  uint32_t* words() { return static_cast<uint32_t*>(memory_); }
  CUdeviceptr device_address() { return reinterpret_cast<CUdeviceptr>(memory_); }

 private:
  void* memory_ = nullptr;
};

class Stream {
 public:
  explicit Stream(unsigned flags = CU_STREAM_NON_BLOCKING);
  ~Stream() { cuStreamDestroy_v2(stream_); }
  Stream(const Stream&) = delete;
  operator CUstream() const { return stream_; }

 private:
  CUstream stream_ = nullptr;
};

class Event {
 public:
  explicit Event(unsigned flags = CU_EVENT_DEFAULT);
  ~Event() { cuEventDestroy_v2(event_); }
  Event(const Event&) = delete;
  operator CUevent() const { return event_; }

 private:
  CUevent event_ = nullptr;
};

class Module {
 public:
  explicit Module(const char* ptx);
  ~Module() { cuModuleUnload(module_); }
  Module(const Module&) = delete;
  operator CUmodule() const { return module_; }
  CUfunction function(const char* name);

 private:
  CUmodule module_ = nullptr;
};

// Kernels of the suite, loaded once into the primary context and kept. Tests that load for
// themselves use Module.
CUfunction basic(const char* kernel);
const char* basic_ptx();
const char* faults_ptx();

// Holds up a stream without a spinning kernel and without sleeping: a host function that waits
// until `open` is called.
class Gate {
 public:
  Gate();
  ~Gate() { open(); }
  void block(CUstream stream);
  void open();

 private:
  struct State;
  static void wait(void* held);
  std::shared_ptr<State> state_;
};

struct Shape {
  unsigned x = 1, y = 1, z = 1;
};

// cuLaunchKernel with arguments by value. Each must have exactly the kernel's parameter type.
template <typename... Arguments>
CUresult launch(CUfunction function, Shape grid, Shape block, unsigned shared_bytes,
                CUstream stream, Arguments... arguments) {
  void* pointers[] = {static_cast<void*>(&arguments)..., nullptr};
  return cuLaunchKernel(function, grid.x, grid.y, grid.z, block.x, block.y, block.z, shared_bytes,
                        stream, pointers, nullptr);
}

// A repeatable byte for position i of sequence `seed`.
inline uint8_t pattern(size_t i, unsigned seed) {
  return static_cast<uint8_t>((i * 2654435761u + seed * 40503u) >> 7);
}
std::vector<uint8_t> pattern_bytes(size_t bytes, unsigned seed);
// Synchronous read-back of device memory.
std::vector<uint32_t> read_words(CUdeviceptr from, size_t words);
std::vector<uint8_t> read_bytes(CUdeviceptr from, size_t bytes);

// ---- A process of its own ----
struct ChildResult {
  int exit_code = -1;  // 128 + signal when killed by one
  bool timed_out = false;
  bool skipped = false;
  std::string output;  // stdout and stderr
  std::string
      transcript;  // already in ours, unless the child ran on another thread than the main one
};
// True inside a process started by run_child.
bool in_child();
// Runs this program again for one test, with extra "NAME=value". By exec, so that nothing of the
// parent's driver state is inherited.
ChildResult run_child(const std::string& test, const std::vector<std::string>& environment = {});
void expect_child_passes(const std::string& test);

// A test whose body runs in a process of its own, for cases that poison the context or must make
// the first driver call.
#define PROCESS_TEST(suite, name)                                    \
  static void suite##_##name##_body();                               \
  TEST(suite, name) {                                                \
    if (::tendril::conformance::in_child())                          \
      suite##_##name##_body();                                       \
    else                                                             \
      ::tendril::conformance::expect_child_passes(#suite "." #name); \
  }                                                                  \
  static void suite##_##name##_body()

// A test that passes NULL where a driver may follow it. It is known to be harmless only for the
// entry points of other tests. It runs in a process of its own. If a vendor's driver dies of it,
// that is excused and reported. Ours must answer.
void expect_child_passes_or_followed_null(const std::string& test);
#define NULL_TEST(suite, name)                                                        \
  static void suite##_##name##_body();                                                \
  TEST(suite, name) {                                                                 \
    if (::tendril::conformance::in_child())                                           \
      suite##_##name##_body();                                                        \
    else                                                                              \
      ::tendril::conformance::expect_child_passes_or_followed_null(#suite "." #name); \
  }                                                                                   \
  static void suite##_##name##_body()

}  // namespace tendril::conformance
