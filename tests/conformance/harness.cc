// SPDX-License-Identifier: Apache-2.0
// Fixture, owners and transcript of the suite. See harness.h.
#include "tests/conformance/harness.h"

#include <condition_variable>
#include <cstdio>
#include <map>
#include <mutex>
#include <thread>

#include "basic.ptx.gen.h"
#include "faults.ptx.gen.h"

namespace tendril::conformance {
namespace {

const std::thread::id main_thread = std::this_thread::get_id();

std::FILE* transcript() {
  static std::FILE* const file = [] {
    const char* path = std::getenv("TENDRIL_CONFORMANCE_TRANSCRIPT");
    return path && *path ? std::fopen(path, "a") : nullptr;
  }();
  return file;
}

}  // namespace

void note(const std::string& line) {
  std::FILE* file = transcript();
  if (!file || std::this_thread::get_id() != main_thread) return;
  std::fprintf(file, "%s\n", line.c_str());
  std::fflush(file);
}

::testing::AssertionResult check(const char* call, CUresult result,
                                 std::initializer_list<CUresult> accepted) {
  note(std::string("  ") + call + " -> " + result_name(result));
  for (CUresult code : accepted) {
    if (code == result) return ::testing::AssertionSuccess();
  }
  auto failure = ::testing::AssertionFailure()
                 << call << " returned " << result_name(result) << " (" << result << "), expected ";
  const char* separator = "";
  for (CUresult code : accepted) {
    failure << separator << result_name(code);
    separator = " or ";
  }
  return failure;
}

CUdevice device() {
  static const CUdevice dev = [] {
    CUdevice first = -1;
    EXPECT_EQ(cuInit(0), CUDA_SUCCESS);
    EXPECT_EQ(cuDeviceGet(&first, 0), CUDA_SUCCESS);
    return first;
  }();
  return dev;
}

CUcontext attach() {
  static const CUcontext primary = [] {
    CUcontext context = nullptr;
    EXPECT_EQ(cuDevicePrimaryCtxRetain(&context, device()), CUDA_SUCCESS);
    return context;
  }();
  if (primary) {
    EXPECT_EQ(cuCtxSetCurrent(primary), CUDA_SUCCESS);
  }
  return primary;
}

bool on_software() {
  char name[256] = "";
  EXPECT_EQ(cuDeviceGetName(name, sizeof name, device()), CUDA_SUCCESS);
  return std::string(name).find("(software)") != std::string::npos;
}

int attribute(CUdevice_attribute which, CUdevice dev) {
  int value = 0;
  EXPECT_EQ(cuDeviceGetAttribute(&value, which, dev), CUDA_SUCCESS) << "attribute " << which;
  return value;
}

void CudaTest::SetUp() {
  context_ = attach();
  ASSERT_NE(context_, nullptr) << "no context on device 0";
  ASSERT_EQ(cuCtxSynchronize(), CUDA_SUCCESS) << "an earlier test broke the context";
  basic("nothing");
}

void CudaTest::TearDown() {
  if (!context_) return;
  EXPECT_EQ(cuCtxSetCurrent(context_), CUDA_SUCCESS);
  EXPECT_EQ(cuCtxSynchronize(), CUDA_SUCCESS) << "this test left a broken context behind";
}

Buffer::Buffer(size_t bytes) : bytes_(bytes) {
  EXPECT_EQ(cuMemAlloc_v2(&address_, bytes), CUDA_SUCCESS) << bytes << " bytes";
}

Pinned::Pinned(size_t bytes, unsigned flags) {
  EXPECT_EQ(cuMemHostAlloc(&memory_, bytes, flags), CUDA_SUCCESS) << bytes << " bytes";
}

Stream::Stream(unsigned flags) { EXPECT_EQ(cuStreamCreate(&stream_, flags), CUDA_SUCCESS); }

Event::Event(unsigned flags) { EXPECT_EQ(cuEventCreate(&event_, flags), CUDA_SUCCESS); }

Module::Module(const char* ptx) { EXPECT_EQ(cuModuleLoadData(&module_, ptx), CUDA_SUCCESS); }

CUfunction Module::function(const char* name) {
  CUfunction found = nullptr;
  EXPECT_EQ(cuModuleGetFunction(&found, module_, name), CUDA_SUCCESS) << name;
  return found;
}

const char* basic_ptx() { return kBasicPtx; }
const char* faults_ptx() { return kFaultsPtx; }

namespace {

// Loads every kernel at once. A driver that loads lazily may wait for the whole context at a
// kernel's first launch, which would hang behind a closed Gate.
CUmodule load_eagerly() {
  CUmodule module = nullptr;
  EXPECT_EQ(cuModuleLoadData(&module, kBasicPtx), CUDA_SUCCESS);
  unsigned count = 0;
  if (!module || cuModuleGetFunctionCount(&count, module) != CUDA_SUCCESS) return module;
  std::vector<CUfunction> functions(count);
  if (cuModuleEnumerateFunctions(functions.data(), count, module) != CUDA_SUCCESS) return module;
  for (CUfunction function : functions) cuFuncLoad(function);
  return module;
}

}  // namespace

CUfunction basic(const char* kernel) {
  static std::mutex mutex;
  static CUmodule module = nullptr;
  static std::map<std::string, CUfunction> functions;
  std::lock_guard<std::mutex> lock(mutex);
  if (!module) module = load_eagerly();
  CUfunction& function = functions[kernel];
  if (!function) {
    EXPECT_EQ(cuModuleGetFunction(&function, module, kernel), CUDA_SUCCESS) << kernel;
  }
  return function;
}

struct Gate::State {
  std::mutex mutex;
  std::condition_variable changed;
  bool open = false;
};

Gate::Gate() : state_(std::make_shared<State>()) {}

void Gate::wait(void* held) {
  // The host function may outlive the Gate object, so it shares the state.
  std::unique_ptr<std::shared_ptr<State>> state(static_cast<std::shared_ptr<State>*>(held));
  std::unique_lock<std::mutex> lock((*state)->mutex);
  (*state)->changed.wait(lock, [&] { return (*state)->open; });
}

void Gate::block(CUstream stream) {
  EXPECT_EQ(cuLaunchHostFunc(stream, &Gate::wait, new std::shared_ptr<State>(state_)),
            CUDA_SUCCESS);
}

void Gate::open() {
  std::lock_guard<std::mutex> lock(state_->mutex);
  state_->open = true;
  state_->changed.notify_all();
}

std::vector<uint8_t> pattern_bytes(size_t bytes, unsigned seed) {
  std::vector<uint8_t> data(bytes);
  for (size_t i = 0; i < bytes; i++) data[i] = pattern(i, seed);
  return data;
}

std::vector<uint32_t> read_words(CUdeviceptr from, size_t words) {
  std::vector<uint32_t> data(words, 0xdeadbeef);
  EXPECT_EQ(cuMemcpyDtoH_v2(data.data(), from, words * sizeof(uint32_t)), CUDA_SUCCESS);
  return data;
}

std::vector<uint8_t> read_bytes(CUdeviceptr from, size_t bytes) {
  std::vector<uint8_t> data(bytes, 0xee);
  EXPECT_EQ(cuMemcpyDtoH_v2(data.data(), from, bytes), CUDA_SUCCESS);
  return data;
}

}  // namespace tendril::conformance
