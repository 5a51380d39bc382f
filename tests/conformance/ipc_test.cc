// SPDX-License-Identifier: Apache-2.0
// Memory and events shared between two processes by 64-byte handles. The consumer is a process of
// its own that gets the handle in its environment.
#include <stdlib.h>

#include "tests/conformance/harness.h"

namespace tendril::conformance {
namespace {

constexpr char kHandleVariable[] = "TENDRIL_CONFORMANCE_HANDLE";

template <typename Handle>
std::string to_hex(const Handle& handle) {
  std::string text;
  char digits[3];
  for (char c : handle.reserved) {
    snprintf(digits, sizeof digits, "%02x", static_cast<unsigned char>(c));
    text += digits;
  }
  return text;
}

template <typename Handle>
Handle from_environment() {
  Handle handle = {};
  const std::string text = getenv(kHandleVariable) ? getenv(kHandleVariable) : "";
  for (size_t i = 0; i < sizeof handle.reserved && 2 * i + 1 < text.size(); i++) {
    handle.reserved[i] = static_cast<char>(strtol(text.substr(2 * i, 2).c_str(), nullptr, 16));
  }
  return handle;
}

class IpcTest : public CudaTest {};

TEST_F(IpcTest, HandleErrors) {
  Buffer data(1 << 21);
  CUipcMemHandle handle = {};
  INVALID(cuIpcGetMemHandle(nullptr, data));
  int local = 0;
  EXPECT_CU(cuIpcGetMemHandle(&handle, reinterpret_cast<CUdeviceptr>(&local)),
            CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_INVALID_HANDLE);
}

TEST(IpcProcess, ChildReadsAndWritesTheMemory) {
  attach();
  if (in_child()) {
    const auto handle = from_environment<CUipcMemHandle>();
    CUdeviceptr shared = 0;
    MUST(cuIpcOpenMemHandle_v2(&shared, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    EXPECT_EQ(read_words(shared, 256), std::vector<uint32_t>(256, 0x1234));
    OK(cuMemsetD32_v2(shared, 0x4321, 256));
    OK(cuCtxSynchronize());
    OK(cuIpcCloseMemHandle(shared));
    return;
  }
  Buffer data(1 << 21);
  OK(cuMemsetD32_v2(data, 0x1234, 256));
  OK(cuCtxSynchronize());
  CUipcMemHandle handle = {};
  const CUresult result = cuIpcGetMemHandle(&handle, data);
  EXPECT_TRUE(check("cuIpcGetMemHandle", result, {CUDA_SUCCESS, CUDA_ERROR_NOT_SUPPORTED}));
  if (result != CUDA_SUCCESS) GTEST_SKIP() << "the driver shares no memory between processes";
  const ChildResult child = run_child("IpcProcess.ChildReadsAndWritesTheMemory",
                                      {kHandleVariable + ("=" + to_hex(handle))});
  EXPECT_EQ(child.exit_code, 0) << child.output;
  EXPECT_EQ(read_words(data, 256), std::vector<uint32_t>(256, 0x4321));
}

TEST(IpcProcess, ChildWaitsForTheEvent) {
  attach();
  if (in_child()) {
    const auto handle = from_environment<CUipcEventHandle>();
    CUevent event = nullptr;
    MUST(cuIpcOpenEventHandle(&event, handle));
    OK(cuEventSynchronize(event));
    OK(cuEventDestroy_v2(event));
    return;
  }
  REQUIRE_ATTRIBUTE(CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED);
  Event event(CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING);
  OK(cuEventRecord(event, nullptr));
  CUipcEventHandle handle = {};
  const CUresult result = cuIpcGetEventHandle(&handle, event);
  EXPECT_TRUE(check("cuIpcGetEventHandle", result, {CUDA_SUCCESS, CUDA_ERROR_NOT_SUPPORTED}));
  if (result != CUDA_SUCCESS) GTEST_SKIP() << "the driver shares no events between processes";
  const ChildResult child =
      run_child("IpcProcess.ChildWaitsForTheEvent", {kHandleVariable + ("=" + to_hex(handle))});
  EXPECT_EQ(child.exit_code, 0) << child.output;
}

}  // namespace
}  // namespace tendril::conformance
