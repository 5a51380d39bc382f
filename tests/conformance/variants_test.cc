// SPDX-License-Identifier: Apache-2.0
// The other names of the same calls: per-thread default stream variants (_ptsz, _ptds) and old ABI
// versions that libraries still look up. Each must do what its plain form does.
#include "tests/conformance/harness.h"

namespace tendril::conformance {
namespace {

class VariantsTest : public CudaTest {};

TEST_F(VariantsTest, PerThreadSynchronousCopies) {
  const std::vector<uint8_t> source = pattern_bytes(5000, 1);
  std::vector<uint8_t> target(5000);
  Buffer a(5000), b(5000), c(5000);
  OK(cuMemcpyHtoD_v2_ptds(a, source.data(), 5000));
  OK(cuMemcpyDtoD_v2_ptds(b, a, 5000));
  OK(cuMemcpy_ptds(c, b, 5000));
  OK(cuMemcpyDtoH_v2_ptds(target.data(), c, 5000));
  EXPECT_EQ(target, source);
}

TEST_F(VariantsTest, PerThreadSynchronousMemsets) {
  Buffer data(64 * 4);
  OK(cuMemsetD8_v2_ptds(data, 1, 256));
  OK(cuMemsetD16_v2_ptds(data, 0x0202, 4));
  OK(cuMemsetD32_v2_ptds(data + 16, 3, 2));
  OK(cuMemsetD2D8_v2_ptds(data + 32, 64, 4, 4, 2));
  OK(cuMemsetD2D32_v2_ptds(data + 40, 64, 5, 1, 2));
  OK(cuStreamSynchronize(CU_STREAM_PER_THREAD));
  const std::vector<uint32_t> words = read_words(data, 64);
  EXPECT_EQ(words[0], 0x02020202u);
  EXPECT_EQ(words[2], 0x01010101u);
  EXPECT_EQ(words[5], 3u);
  EXPECT_EQ(words[8], 0x04040404u);
  EXPECT_EQ(words[24], 0x04040404u);
  EXPECT_EQ(words[26], 5u);
}

TEST_F(VariantsTest, PerThreadAsyncForms) {
  Buffer data(1024), copy(1024);
  Pinned host(1024);
  OK(cuMemsetD32Async_ptsz(data, 7, 256, nullptr));
  OK(cuMemsetD8Async_ptsz(data, 1, 4, nullptr));
  OK(cuMemsetD16Async_ptsz(data + 4, 2, 2, nullptr));
  OK(cuMemcpyDtoDAsync_v2_ptsz(copy, data, 1024, nullptr));
  OK(cuMemcpyDtoHAsync_v2_ptsz(host.data(), copy, 1024, nullptr));
  OK(cuStreamSynchronize_ptsz(nullptr));
  EXPECT_EQ(host.words()[0], 0x01010101u);
  EXPECT_EQ(host.words()[1], 0x00020002u);
  EXPECT_EQ(host.words()[255], 7u);
}

TEST_F(VariantsTest, PerThreadTwoDimensions) {
  const std::vector<uint8_t> source = pattern_bytes(64 * 4, 2);
  std::vector<uint8_t> target(64 * 4);
  Buffer data(64 * 4);
  CUDA_MEMCPY2D copy = {};
  copy.srcMemoryType = CU_MEMORYTYPE_HOST;
  copy.srcHost = source.data();
  copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.dstDevice = data;
  copy.srcPitch = copy.dstPitch = copy.WidthInBytes = 64;
  copy.Height = 4;
  OK(cuMemcpy2D_v2_ptds(&copy));
  copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = data;
  copy.dstMemoryType = CU_MEMORYTYPE_HOST;
  copy.dstHost = target.data();
  OK(cuMemcpy2DAsync_v2_ptsz(&copy, nullptr));
  OK(cuStreamSynchronize_ptsz(nullptr));
  EXPECT_EQ(target, source);
}

TEST_F(VariantsTest, PerThreadEventsAndWaits) {
  Event event;
  Stream stream;
  OK(cuEventRecord_ptsz(event, nullptr));
  OK(cuStreamWaitEvent_ptsz(nullptr, event, 0));
  OK(cuStreamWaitEvent_ptsz(stream, event, 0));
  OK(cuEventRecordWithFlags_ptsz(event, nullptr, 0));
  OK(cuEventSynchronize(event));
}

TEST_F(VariantsTest, PerThreadStreamProperties) {
  unsigned flags = 99;
  int priority = 99;
  CUcontext context = nullptr;
  unsigned long long id = 0, legacy_id = 0;
  auto status = static_cast<CUstreamCaptureStatus>(77);
  OK(cuStreamGetFlags_ptsz(nullptr, &flags));
  OK(cuStreamGetPriority_ptsz(nullptr, &priority));
  OK(cuStreamGetCtx_ptsz(nullptr, &context));
  OK(cuStreamGetId_ptsz(nullptr, &id));
  OK(cuStreamGetId(nullptr, &legacy_id));
  OK(cuStreamIsCapturing_ptsz(nullptr, &status));
  EXPECT_EQ(flags, unsigned{CU_STREAM_DEFAULT});
  EXPECT_EQ(priority, 0);
  EXPECT_EQ(context, context_);
  EXPECT_NE(id, legacy_id);
  EXPECT_EQ(status, CU_STREAM_CAPTURE_STATUS_NONE);
}

TEST_F(VariantsTest, PerThreadLaunchForms) {
  Buffer data(1024);
  CUdeviceptr where = data;
  uint32_t start = 3, n = 256;
  void* params[] = {&where, &start, &n};
  CUlaunchConfig config = {};
  config.gridDimX = config.gridDimY = config.gridDimZ = 1;
  config.blockDimX = 256;
  config.blockDimY = config.blockDimZ = 1;
  OK(cuLaunchKernelEx_ptsz(&config, basic("iota"), params, nullptr));
  int runs = 0;
  OK(cuLaunchHostFunc_ptsz(
      nullptr, [](void* count) { ++*static_cast<int*>(count); }, &runs));
  OK(cuStreamSynchronize_ptsz(nullptr));
  EXPECT_EQ(runs, 1);
  EXPECT_EQ(read_words(data, 256)[255], 258u);
}

TEST_F(VariantsTest, PerThreadAllocation) {
  REQUIRE_ATTRIBUTE(CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED);
  CUdeviceptr pointer = 0;
  OK(cuMemAllocAsync_ptsz(&pointer, 4096, nullptr));
  OK(cuMemsetD32Async_ptsz(pointer, 1, 1024, nullptr));
  OK(cuMemFreeAsync_ptsz(pointer, nullptr));
  OK(cuStreamSynchronize_ptsz(nullptr));
}

TEST_F(VariantsTest, PerThreadCaptureAndGraphLaunch) {
  Buffer data(1024);
  OK(cuMemsetD32_v2(data, 2, 256));
  OK(cuCtxSynchronize());
  OK(cuStreamBeginCapture_v2_ptsz(nullptr, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  OK(launch(basic("affine"), {1}, {256}, 0, CU_STREAM_PER_THREAD, CUdeviceptr{data}, 10u, 1u,
            256u));
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  OK(cuStreamEndCapture_ptsz(nullptr, &graph));
  OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
  OK(cuGraphUpload_ptsz(exec, nullptr));
  OK(cuGraphLaunch_ptsz(exec, nullptr));
  OK(cuStreamSynchronize_ptsz(nullptr));
  EXPECT_EQ(read_words(data, 256)[0], 21u);
  OK(cuGraphExecDestroy(exec));
  OK(cuGraphDestroy(graph));
}

TEST_F(VariantsTest, OldNamesWithUnchangedArguments) {
  CUstream stream = nullptr;
  CUevent event = nullptr;
  OK(cuStreamCreate(&stream, 0));
  OK(cuEventCreate(&event, 0));
  OK(cuEventDestroy(event));
  OK(cuStreamDestroy(stream));
  CUuuid old_form = {}, new_form = {};
  OK(cuDeviceGetUuid(&old_form, device()));
  OK(cuDeviceGetUuid_v2(&new_form, device()));
  EXPECT_EQ(memcmp(&old_form, &new_form, sizeof old_form), 0);
}

TEST_F(VariantsTest, OldGraphInstantiate) {
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  CUgraphNode node = nullptr, error_node = nullptr;
  char log[64] = {};
  OK(cuGraphCreate(&graph, 0));
  OK(cuGraphAddEmptyNode(&node, graph, nullptr, 0));
  OK(cuGraphInstantiate_v2(&exec, graph, &error_node, log, sizeof log));
  OK(cuGraphExecDestroy(exec));
  OK(cuGraphDestroy(graph));
}

TEST_F(VariantsTest, ExportTables) {
  const void* table = &table;
  CUuuid unknown;
  memset(&unknown, 0x5a, sizeof unknown);
  EXPECT_NE(cuGetExportTable(&table, &unknown), CUDA_SUCCESS);
  INVALID(cuGetExportTable(nullptr, &unknown));
}

// docs/runtime-self-test.md: the client answers the CUDA runtime's test in front of genuine drivers
// only.
TEST_F(VariantsTest, RuntimeSelfTestIsRefusedOnASoftwareGpu) {
  if (!on_software()) GTEST_SKIP() << "a genuine driver";
  const CUuuid id = {{static_cast<char>(0xd4), 0x08, 0x20, 0x55, static_cast<char>(0xbd),
                      static_cast<char>(0xe6), 0x70, 0x4b, static_cast<char>(0x8d), 0x34,
                      static_cast<char>(0xba), 0x12, 0x3c, 0x66, static_cast<char>(0xe1),
                      static_cast<char>(0xf2)}};
  const void* table = nullptr;
  if (cuGetExportTable(&table, &id) != CUDA_SUCCESS)
    return;  // the software GPU itself has no tables
  const auto ask = reinterpret_cast<CUresult (*)(uint32_t, uint64_t, uint64_t*)>(
      static_cast<void* const*>(table)[1]);
  uint64_t answer[2] = {};
  EXPECT_NE(ask(13000, 0, answer), CUDA_SUCCESS);
  EXPECT_EQ(answer[0] | answer[1], 0u);
}

}  // namespace
}  // namespace tendril::conformance
