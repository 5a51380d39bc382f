// SPDX-License-Identifier: Apache-2.0
// Green contexts: parts of a device's multiprocessors, and events of whole contexts.
#include "tests/conformance/harness.h"

namespace tendril::conformance {
namespace {

class GreenContextTest : public CudaTest {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    int version = 0;
    ASSERT_EQ(cuDriverGetVersion(&version), CUDA_SUCCESS);
    if (version < 12040) GTEST_SKIP() << "the driver's green contexts are older than CUDA 12.4";
    ASSERT_EQ(cuDeviceGetDevResource(device(), &all_, CU_DEV_RESOURCE_TYPE_SM), CUDA_SUCCESS);
  }
  // One group of the smallest size.
  CUgreenCtx create() {
    CUdevResource part = {};
    unsigned groups = 1;
    CUdevResourceDesc description = nullptr;
    CUgreenCtx green = nullptr;
    EXPECT_EQ(cuDevSmResourceSplitByCount(&part, &groups, &all_, nullptr, 0, 1), CUDA_SUCCESS);
    EXPECT_EQ(groups, 1u);
    EXPECT_EQ(cuDevResourceGenerateDesc(&description, &part, 1), CUDA_SUCCESS);
    EXPECT_EQ(cuGreenCtxCreate(&green, description, device(), CU_GREEN_CTX_DEFAULT_STREAM),
              CUDA_SUCCESS);
    return green;
  }
  CUdevResource all_ = {};
};

TEST_F(GreenContextTest, DeviceHasMultiprocessors) {
  EXPECT_EQ(all_.type, CU_DEV_RESOURCE_TYPE_SM);
  EXPECT_EQ(static_cast<int>(all_.sm.smCount), attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT));
  CUdevResource of_context = {};
  OK(cuCtxGetDevResource(context_, &of_context, CU_DEV_RESOURCE_TYPE_SM));
  EXPECT_EQ(of_context.sm.smCount, all_.sm.smCount);
  INVALID(cuDeviceGetDevResource(device(), nullptr, CU_DEV_RESOURCE_TYPE_SM));
}

TEST_F(GreenContextTest, Split) {
  unsigned possible = 0;
  OK(cuDevSmResourceSplitByCount(nullptr, &possible, &all_, nullptr, 0, 1));
  ASSERT_GE(possible, 1u);
  std::vector<CUdevResource> parts(possible);
  CUdevResource rest = {};
  unsigned made = possible;
  OK(cuDevSmResourceSplitByCount(parts.data(), &made, &all_, &rest, 0, 1));
  EXPECT_EQ(made, possible);
  unsigned sum = rest.sm.smCount;
  for (unsigned i = 0; i < made; i++) sum += parts[i].sm.smCount;
  EXPECT_EQ(sum, all_.sm.smCount);
  INVALID(cuDevSmResourceSplitByCount(nullptr, nullptr, &all_, nullptr, 0, 1));
}

TEST_F(GreenContextTest, WorkInAStream) {
  CUgreenCtx green = create(), of_stream = nullptr;
  ASSERT_NE(green, nullptr);
  CUdevResource mine = {};
  OK(cuGreenCtxGetDevResource(green, &mine, CU_DEV_RESOURCE_TYPE_SM));
  EXPECT_LE(mine.sm.smCount, all_.sm.smCount);
  CUcontext context = nullptr;
  OK(cuCtxFromGreenCtx(&context, green));
  ASSERT_NE(context, nullptr);
  CUstream stream = nullptr;
  MUST(cuGreenCtxStreamCreate(&stream, green, CU_STREAM_NON_BLOCKING, 0));
  OK(cuStreamGetGreenCtx(stream, &of_stream));
  EXPECT_EQ(of_stream, green);
  {
    Buffer data(1024);
    OK(cuMemsetD32Async(data, 6, 256, stream));
    OK(cuStreamSynchronize(stream));
    EXPECT_EQ(read_words(data, 256), std::vector<uint32_t>(256, 6));
  }
  OK(cuStreamDestroy_v2(stream));
  OK(cuGreenCtxDestroy(green));
}

TEST_F(GreenContextTest, ItsContextCanBeCurrent) {
  CUgreenCtx green = create();
  ASSERT_NE(green, nullptr);
  CUcontext context = nullptr, now = nullptr;
  OK(cuCtxFromGreenCtx(&context, green));
  OK(cuCtxPushCurrent_v2(context));
  OK(cuCtxGetCurrent(&now));
  EXPECT_EQ(now, context);
  CUdeviceptr memory = 0;
  OK(cuMemAlloc_v2(&memory, 4096));
  OK(cuMemsetD8_v2(memory, 1, 4096));
  OK(cuCtxSynchronize());
  OK(cuMemFree_v2(memory));
  OK(cuCtxPopCurrent_v2(&now));
  OK(cuGreenCtxDestroy(green));
}

TEST_F(GreenContextTest, EventsOfContexts) {
  Event event;
  Stream stream, later;
  Gate gate;
  gate.block(stream);
  OK(cuCtxRecordEvent(context_, event));
  EXPECT_CU(cuEventQuery(event), CUDA_ERROR_NOT_READY);
  gate.open();
  OK(cuEventSynchronize(event));
  OK(cuCtxWaitEvent(context_, event));
  OK(cuStreamSynchronize(later));
  BAD_HANDLE(cuCtxRecordEvent(context_, nullptr));
}

TEST_F(GreenContextTest, Errors) {
  CUcontext context = nullptr;
  CUdevResourceDesc description = nullptr;
  INVALID(cuDevResourceGenerateDesc(nullptr, &all_, 1));
  INVALID(cuDevResourceGenerateDesc(&description, nullptr, 1));
  EXPECT_CU(cuCtxFromGreenCtx(&context, nullptr), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_CU(cuGreenCtxDestroy(nullptr), CUDA_ERROR_INVALID_CONTEXT);
}

}  // namespace
}  // namespace tendril::conformance
