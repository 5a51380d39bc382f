// SPDX-License-Identifier: Apache-2.0
// Error names and texts, and errors that stick. Each sticky one has a process of its own, because
// it costs the context.
#include "tests/conformance/harness.h"

namespace tendril::conformance {
namespace {

TEST(ErrorTest, Names){
#define TENDRIL_NAME(name)                                \
  {                                                       \
    const char* text = nullptr;                           \
    EXPECT_EQ(cuGetErrorName(name, &text), CUDA_SUCCESS); \
    EXPECT_STREQ(text, #name);                            \
  }
#include "tests/conformance/result_names.inc"
#undef TENDRIL_NAME
}

TEST(ErrorTest, EveryCodeHasAText){
#define TENDRIL_NAME(name)                                           \
  {                                                                  \
    const char* text = nullptr;                                      \
    EXPECT_EQ(cuGetErrorString(name, &text), CUDA_SUCCESS) << #name; \
    EXPECT_TRUE(text&&* text) << #name;                              \
  }
#include "tests/conformance/result_names.inc"
#undef TENDRIL_NAME
}

TEST(ErrorTest, WellKnownTexts) {
  const struct {
    CUresult code;
    const char* text;
  } known[] = {
      {CUDA_SUCCESS, "no error"},
      {CUDA_ERROR_INVALID_VALUE, "invalid argument"},
      {CUDA_ERROR_OUT_OF_MEMORY, "out of memory"},
      {CUDA_ERROR_NOT_INITIALIZED, "initialization error"},
      {CUDA_ERROR_NO_DEVICE, "no CUDA-capable device is detected"},
      {CUDA_ERROR_INVALID_DEVICE, "invalid device ordinal"},
      {CUDA_ERROR_INVALID_CONTEXT, "invalid device context"},
      {CUDA_ERROR_INVALID_PTX, "a PTX JIT compilation failed"},
      {CUDA_ERROR_FILE_NOT_FOUND, "file not found"},
      {CUDA_ERROR_INVALID_HANDLE, "invalid resource handle"},
      {CUDA_ERROR_NOT_FOUND, "named symbol not found"},
      {CUDA_ERROR_NOT_READY, "device not ready"},
      {CUDA_ERROR_ILLEGAL_ADDRESS, "an illegal memory access was encountered"},
      {CUDA_ERROR_MISALIGNED_ADDRESS, "misaligned address"},
      {CUDA_ERROR_LAUNCH_FAILED, "unspecified launch failure"},
      {CUDA_ERROR_NOT_SUPPORTED, "operation not supported"},
      {CUDA_ERROR_UNKNOWN, "unknown error"},
  };
  for (const auto& entry : known) {
    const char* text = nullptr;
    OK(cuGetErrorString(entry.code, &text));
    EXPECT_STREQ(text, entry.text);
  }
}

TEST(ErrorTest, UnknownCodes) {
  const char* text = "untouched";
  INVALID(cuGetErrorName(static_cast<CUresult>(9999), &text));
  EXPECT_EQ(text, nullptr);
  text = "untouched";
  INVALID(cuGetErrorString(static_cast<CUresult>(9999), &text));
  EXPECT_EQ(text, nullptr);
}

NULL_TEST(ErrorProcess, NameIntoNull) { INVALID(cuGetErrorName(CUDA_SUCCESS, nullptr)); }
NULL_TEST(ErrorProcess, TextIntoNull) { INVALID(cuGetErrorString(CUDA_SUCCESS, nullptr)); }

// ---- Sticky errors. All of these run in a child process. ----

// The address of nothing on any device: the null page.
constexpr CUdeviceptr kNowhere = 0;

// Every call that reaches the context must now answer `code`. Calls that only describe the machine
// still work.
void expect_poisoned(CUresult code) {
  CUdeviceptr pointer = 0;
  CUstream stream = nullptr;
  CUevent event = nullptr;
  CUmodule module = nullptr;
  EXPECT_CU(cuCtxSynchronize(), code);
  EXPECT_CU(cuStreamSynchronize(nullptr), code);
  EXPECT_CU(cuStreamQuery(nullptr), code);
  EXPECT_CU(cuMemAlloc_v2(&pointer, 1024), code);
  EXPECT_CU(cuStreamCreate(&stream, 0), code);
  EXPECT_CU(cuEventCreate(&event, 0), code);
  EXPECT_CU(cuModuleLoadData(&module, basic_ptx()), code);
  EXPECT_CU(cuCtxSynchronize(), code);
  CUcontext current = nullptr;
  int count = 0;
  const char* text = nullptr;
  OK(cuCtxGetCurrent(&current));
  OK(cuDeviceGetCount(&count));
  OK(cuGetErrorName(code, &text));
}

void expect_fault(const char* kernel, CUdeviceptr address, CUresult code) {
  attach();
  Module module(faults_ptx());
  if (strcmp(kernel, "write_at") == 0) {
    OK(launch(module.function(kernel), {1}, {1}, 0, nullptr, address, 1u));
  } else {
    OK(launch(module.function(kernel), {1}, {4}, 0, nullptr, 2u));
  }
  EXPECT_CU(cuCtxSynchronize(), code);
  expect_poisoned(code);
}

PROCESS_TEST(ErrorProcess, IllegalAddressSticks) {
  expect_fault("write_at", kNowhere, CUDA_ERROR_ILLEGAL_ADDRESS);
}

PROCESS_TEST(ErrorProcess, IllegalFarAddressSticks) {
  expect_fault("write_at", CUdeviceptr{1} << 45, CUDA_ERROR_ILLEGAL_ADDRESS);
}

PROCESS_TEST(ErrorProcess, MisalignedAddressSticks) {
  attach();
  Buffer buffer(64);
  expect_fault("write_at", buffer + 2, CUDA_ERROR_MISALIGNED_ADDRESS);
}

PROCESS_TEST(ErrorProcess, TrapSticks) {
  attach();
  Module module(faults_ptx());
  OK(cuLaunchKernel(module.function("fault_trap"), 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
  EXPECT_CU(cuCtxSynchronize(), CUDA_ERROR_LAUNCH_FAILED);
  expect_poisoned(CUDA_ERROR_LAUNCH_FAILED);
}

TEST(ErrorProcess, AssertSticksAndIsPrinted) {
  if (in_child()) {
    expect_fault("fault_assert", 0, CUDA_ERROR_ASSERT);
    return;
  }
  const ChildResult child = run_child("ErrorProcess.AssertSticksAndIsPrinted");
  EXPECT_EQ(child.exit_code, 0) << child.output;
  EXPECT_NE(child.output.find("Assertion `tid_x() < limit` failed"), std::string::npos)
      << child.output;
  EXPECT_NE(child.output.find("fault_assert"), std::string::npos) << child.output;
}

// With CUDA_LAUNCH_BLOCKING the launch that faults returns the error itself.
TEST(ErrorProcess, BlockingLaunchReportsItsOwnFault) {
  if (in_child()) {
    attach();
    Module module(faults_ptx());
    Buffer out(128);
    OK(launch(module.function("healthy"), {1}, {32}, 0, nullptr, CUdeviceptr{out}));
    OK(cuStreamQuery(nullptr));
    EXPECT_CU(launch(module.function("write_at"), {1}, {1}, 0, nullptr, kNowhere, 1u),
              CUDA_ERROR_ILLEGAL_ADDRESS);
    expect_poisoned(CUDA_ERROR_ILLEGAL_ADDRESS);
    return;
  }
  const ChildResult child =
      run_child("ErrorProcess.BlockingLaunchReportsItsOwnFault", {"CUDA_LAUNCH_BLOCKING=1"});
  EXPECT_EQ(child.exit_code, 0) << child.output;
}

PROCESS_TEST(ErrorProcess, ReportedByStreamSynchronize) {
  attach();
  Module module(faults_ptx());
  Stream stream;
  OK(launch(module.function("write_at"), {1}, {1}, 0, stream, kNowhere, 1u));
  EXPECT_CU(cuStreamSynchronize(stream), CUDA_ERROR_ILLEGAL_ADDRESS);
}

PROCESS_TEST(ErrorProcess, ReportedByEventSynchronize) {
  attach();
  Module module(faults_ptx());
  Stream stream;
  Event event;
  OK(launch(module.function("write_at"), {1}, {1}, 0, stream, kNowhere, 1u));
  // The record may already see the failure.
  EXPECT_CU(cuEventRecord(event, stream), CUDA_SUCCESS, CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_CU(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_CU(cuEventSynchronize(event), CUDA_ERROR_ILLEGAL_ADDRESS);
}

PROCESS_TEST(ErrorProcess, ReportedByACopyBack) {
  attach();
  Module module(faults_ptx());
  Buffer buffer(64);
  OK(launch(module.function("write_at"), {1}, {1}, 0, nullptr, kNowhere, 1u));
  uint32_t word = 0;
  EXPECT_CU(cuMemcpyDtoH_v2(&word, buffer, 4), CUDA_ERROR_ILLEGAL_ADDRESS);
}

PROCESS_TEST(ErrorProcess, ReportedByAnotherStream) {
  attach();
  Module module(faults_ptx());
  Stream faulty, healthy;
  OK(launch(module.function("write_at"), {1}, {1}, 0, faulty, kNowhere, 1u));
  EXPECT_CU(cuStreamSynchronize(faulty), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_CU(cuStreamSynchronize(healthy), CUDA_ERROR_ILLEGAL_ADDRESS);
}

PROCESS_TEST(ErrorProcess, ReadFaultsToo) {
  attach();
  Module module(faults_ptx());
  Buffer out(64);
  OK(launch(module.function("read_at"), {1}, {1}, 0, nullptr, kNowhere, CUdeviceptr{out}));
  EXPECT_CU(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
}

PROCESS_TEST(ErrorProcess, LaterLaunchesReturnTheError) {
  attach();
  Module module(faults_ptx());
  Buffer out(1024);
  CUfunction healthy = module.function("healthy");
  OK(launch(module.function("write_at"), {1}, {1}, 0, nullptr, kNowhere, 1u));
  EXPECT_CU(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_CU(launch(healthy, {1}, {32}, 0, nullptr, CUdeviceptr{out}), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_CU(cuMemsetD32_v2(out, 0, 4), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_CU(cuMemFree_v2(out), CUDA_ERROR_ILLEGAL_ADDRESS);
}

PROCESS_TEST(ErrorProcess, WorkBeforeTheFaultIsNotBlamed) {
  attach();
  Module module(faults_ptx());
  Buffer out(128);
  OK(launch(module.function("healthy"), {1}, {32}, 0, nullptr, CUdeviceptr{out}));
  OK(cuCtxSynchronize());
  EXPECT_EQ(read_words(out, 32)[31], 32u);
  OK(launch(module.function("write_at"), {1}, {1}, 0, nullptr, kNowhere, 1u));
  EXPECT_CU(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
}

PROCESS_TEST(ErrorProcess, ANewContextAfterTheFault) {
  const CUdevice dev = device();
  CUcontext broken = nullptr, fresh = nullptr;
  MUST(cuCtxCreate_v2(&broken, 0, dev));
  CUmodule module = nullptr;
  CUfunction write_at = nullptr;
  MUST(cuModuleLoadData(&module, faults_ptx()));
  MUST(cuModuleGetFunction(&write_at, module, "write_at"));
  OK(launch(write_at, {1}, {1}, 0, nullptr, kNowhere, 1u));
  EXPECT_CU(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_CU(cuCtxDestroy_v2(broken), CUDA_SUCCESS, CUDA_ERROR_ILLEGAL_ADDRESS);
  // The documentation asks for a new process. Drivers let a destroyed context be replaced.
  EXPECT_CU(cuCtxCreate_v2(&fresh, 0, dev), CUDA_SUCCESS, CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST(ErrorTest, AnotherProcessIsUnaffected) {
  attach();
  Buffer data(1024);
  OK(cuMemsetD32_v2(data, 6, 256));
  const ChildResult child = run_child("ErrorProcess.IllegalAddressSticks");
  EXPECT_EQ(child.exit_code, 0) << child.output;
  OK(launch(basic("affine"), {1}, {256}, 0, nullptr, CUdeviceptr{data}, 7u, 0u, 256u));
  OK(cuCtxSynchronize());
  EXPECT_EQ(read_words(data, 256), std::vector<uint32_t>(256, 42));
}

}  // namespace
}  // namespace tendril::conformance
