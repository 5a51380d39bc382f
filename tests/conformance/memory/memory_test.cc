// SPDX-License-Identifier: Apache-2.0
// Conformance of device memory: allocation, release, ranges, memset and simple copies.
// copies_test.cc has shapes and sizes of copies.
#include <unistd.h>

#include "tests/conformance/harness.h"

namespace tendril::conformance {
namespace {

class MemoryTest : public CudaTest {};

TEST_F(MemoryTest, AllocAndFree) {
  CUdeviceptr pointer = 0;
  OK(cuMemAlloc_v2(&pointer, 1 << 20));
  EXPECT_NE(pointer, 0u);
  EXPECT_EQ(pointer % 256, 0u);
  OK(cuMemFree_v2(pointer));
}

TEST_F(MemoryTest, AllocErrors) {
  CUdeviceptr pointer = 0;
  INVALID(cuMemAlloc_v2(nullptr, 16));
  INVALID(cuMemAlloc_v2(&pointer, 0));
  EXPECT_CU(cuMemAlloc_v2(&pointer, size_t{1} << 50), CUDA_ERROR_OUT_OF_MEMORY);
}

TEST_F(MemoryTest, OutOfMemoryIsNotSticky) {
  CUdeviceptr pointer = 0;
  EXPECT_CU(cuMemAlloc_v2(&pointer, size_t{1} << 48), CUDA_ERROR_OUT_OF_MEMORY);
  OK(cuMemAlloc_v2(&pointer, 4096));
  OK(cuMemFree_v2(pointer));
}

TEST_F(MemoryTest, SmallAllocationsAreAlignedAndApart) {
  std::vector<CUdeviceptr> pointers;
  for (size_t bytes = 1; bytes <= 1000; bytes += 37) {
    CUdeviceptr pointer = 0;
    ASSERT_EQ(cuMemAlloc_v2(&pointer, bytes), CUDA_SUCCESS);
    EXPECT_EQ(pointer % 256, 0u);
    for (CUdeviceptr other : pointers)
      EXPECT_TRUE(pointer + bytes <= other || other + 1000 <= pointer || pointer >= other + 256);
    EXPECT_EQ(cuMemsetD8_v2(pointer, static_cast<uint8_t>(pointers.size()), bytes), CUDA_SUCCESS);
    pointers.push_back(pointer);
  }
  for (size_t i = 0; i < pointers.size(); i++) {
    EXPECT_EQ(read_bytes(pointers[i], 1)[0], static_cast<uint8_t>(i));
    EXPECT_EQ(cuMemFree_v2(pointers[i]), CUDA_SUCCESS);
  }
}

TEST_F(MemoryTest, FreeErrors) {
  CUdeviceptr pointer = 0;
  OK(cuMemAlloc_v2(&pointer, 4096));
  INVALID(cuMemFree_v2(pointer + 256));
  OK(cuMemFree_v2(pointer));
  INVALID(cuMemFree_v2(pointer));
  // Not documented; the runtime's cudaFree(0) is filtered before the driver.
  EXPECT_CU(cuMemFree_v2(0), CUDA_SUCCESS, CUDA_ERROR_INVALID_VALUE);
}

TEST_F(MemoryTest, FreeWaitsForWork) {
  CUdeviceptr pointer = 0;
  Buffer out(4096);
  OK(cuMemAlloc_v2(&pointer, 4096));
  Stream stream;
  OK(launch(basic("iota"), {4}, {256}, 0, stream, pointer, 10u, 1024u));
  OK(launch(basic("copy_words"), {4}, {256}, 0, stream, CUdeviceptr{out}, pointer, 1024u));
  OK(cuMemFree_v2(pointer));
  OK(cuStreamSynchronize(stream));
  EXPECT_EQ(read_words(out, 1024)[1023], 1033u);
}

TEST_F(MemoryTest, InfoIsWithinTheDevice) {
  size_t free_bytes = 0, total = 0, device_total = 0;
  OK(cuMemGetInfo_v2(&free_bytes, &total));
  OK(cuDeviceTotalMem_v2(&device_total, device()));
  EXPECT_GT(free_bytes, 0u);
  EXPECT_LE(free_bytes, total);
  EXPECT_LE(total, device_total);
}

TEST_F(MemoryTest, InfoSeesAnAllocation) {
  size_t before = 0, after = 0, total = 0;
  const size_t bytes = 64 << 20;
  OK(cuMemGetInfo_v2(&before, &total));
  Buffer big(bytes);
  OK(cuMemGetInfo_v2(&after, &total));
  // Other programs may share the device, so only a coarse statement holds.
  EXPECT_LT(after, before);
}

TEST_F(MemoryTest, AddressRange) {
  Buffer buffer(10000);
  CUdeviceptr base = 0;
  size_t size = 0;
  OK(cuMemGetAddressRange_v2(&base, &size, buffer + 5000));
  EXPECT_EQ(base, CUdeviceptr{buffer});
  EXPECT_EQ(size, 10000u);
  OK(cuMemGetAddressRange_v2(&base, nullptr, buffer));
  OK(cuMemGetAddressRange_v2(nullptr, &size, buffer + 9999));
  EXPECT_EQ(size, 10000u);
}

TEST_F(MemoryTest, AddressRangeOfNothing) {
  CUdeviceptr base = 0;
  size_t size = 0;
  int on_the_stack = 0;
  EXPECT_CU(cuMemGetAddressRange_v2(&base, &size, reinterpret_cast<CUdeviceptr>(&on_the_stack)),
            CUDA_ERROR_NOT_FOUND, CUDA_ERROR_INVALID_VALUE);
}

TEST_F(MemoryTest, RoundTrip) {
  const std::vector<uint8_t> data = pattern_bytes(100000, 1);
  Buffer buffer(data.size());
  OK(cuMemcpyHtoD_v2(buffer, data.data(), data.size()));
  EXPECT_EQ(read_bytes(buffer, data.size()), data);
}

TEST_F(MemoryTest, DeviceToDevice) {
  const std::vector<uint8_t> data = pattern_bytes(65537, 2);
  Buffer a(data.size()), b(data.size());
  OK(cuMemcpyHtoD_v2(a, data.data(), data.size()));
  OK(cuMemcpyDtoD_v2(b, a, data.size()));
  EXPECT_EQ(read_bytes(b, data.size()), data);
}

TEST_F(MemoryTest, UnifiedCopyFindsTheDirection) {
  const std::vector<uint8_t> data = pattern_bytes(5000, 3);
  std::vector<uint8_t> back(data.size()), host(data.size());
  Buffer a(data.size()), b(data.size());
  auto address = [](const void* p) { return reinterpret_cast<CUdeviceptr>(p); };
  OK(cuMemcpy(a, address(data.data()), data.size()));
  OK(cuMemcpy(b, a, data.size()));
  OK(cuMemcpy(address(back.data()), b, data.size()));
  EXPECT_EQ(back, data);
  OK(cuMemcpy(address(host.data()), address(data.data()), data.size()));
  OK(cuCtxSynchronize());
  EXPECT_EQ(host, data);
}

TEST_F(MemoryTest, CopyErrors) {
  Buffer buffer(4096);
  std::vector<uint8_t> host(8192);
  INVALID(cuMemcpyHtoD_v2(0, host.data(), 16));
  INVALID(cuMemcpyDtoH_v2(host.data(), 0, 16));
  INVALID(cuMemcpyHtoD_v2(buffer, nullptr, 16));
  INVALID(cuMemcpyDtoH_v2(nullptr, buffer, 16));
  INVALID(cuMemcpyDtoD_v2(buffer, 0, 16));
}

TEST_F(MemoryTest, CopyOfNothing) {
  Buffer buffer(256);
  uint8_t byte = 9;
  OK(cuMemcpyHtoD_v2(buffer, &byte, 0));
  OK(cuMemcpyDtoH_v2(&byte, buffer, 0));
  OK(cuMemcpyDtoD_v2(buffer, buffer + 128, 0));
  EXPECT_EQ(byte, 9);
}

TEST_F(MemoryTest, SetD8) {
  Buffer buffer(1000);
  OK(cuMemsetD8_v2(buffer, 0x11, 1000));
  OK(cuMemsetD8_v2(buffer + 3, 0xa5, 501));
  const std::vector<uint8_t> bytes = read_bytes(buffer, 1000);
  EXPECT_EQ(bytes[2], 0x11);
  EXPECT_EQ(bytes[3], 0xa5);
  EXPECT_EQ(bytes[503], 0xa5);
  EXPECT_EQ(bytes[504], 0x11);
}

TEST_F(MemoryTest, SetD16) {
  Buffer buffer(1000);
  OK(cuMemsetD8_v2(buffer, 0, 1000));
  OK(cuMemsetD16_v2(buffer + 2, 0x1234, 100));
  const std::vector<uint8_t> bytes = read_bytes(buffer, 1000);
  EXPECT_EQ(bytes[1], 0);
  EXPECT_EQ(bytes[2], 0x34);
  EXPECT_EQ(bytes[201], 0x12);
  EXPECT_EQ(bytes[202], 0);
}

TEST_F(MemoryTest, SetD32) {
  Buffer buffer(4096);
  OK(cuMemsetD32_v2(buffer, 0xcafef00d, 1024));
  EXPECT_EQ(read_words(buffer, 1024), std::vector<uint32_t>(1024, 0xcafef00d));
}

TEST_F(MemoryTest, SetOfNothing) {
  Buffer buffer(256);
  OK(cuMemsetD8_v2(buffer, 1, 0));
  OK(cuMemsetD32_v2(buffer, 1, 0));
}

TEST_F(MemoryTest, SetErrors) {
  Buffer buffer(4096);
  INVALID(cuMemsetD8_v2(0, 1, 16));
  INVALID(cuMemsetD16_v2(buffer + 1, 1, 16));
  INVALID(cuMemsetD32_v2(buffer + 2, 1, 16));
}

// Not even up to where the driver's own block may reach.
TEST_F(MemoryTest, NothingGoesBeyondTheEnd) {
  Buffer buffer(1000), other(4096);
  std::vector<uint8_t> host(1001);
  INVALID(cuMemsetD8_v2(buffer, 1, 1001));
  INVALID(cuMemsetD8Async(buffer + 999, 1, 2, nullptr));
  INVALID(cuMemcpyDtoD_v2(other, buffer, 1001));
  INVALID(cuMemcpyDtoDAsync_v2(buffer, other, 1001, nullptr));
  INVALID(cuMemcpyHtoD_v2(buffer, host.data(), 1001));
  INVALID(cuMemcpyDtoH_v2(host.data(), buffer, 1001));
  OK(cuCtxSynchronize());
}

TEST_F(MemoryTest, Set2D) {
  CUdeviceptr pointer = 0;
  size_t pitch = 0;
  OK(cuMemAllocPitch_v2(&pointer, &pitch, 100, 10, 4));
  EXPECT_GE(pitch, 100u);
  EXPECT_EQ(pitch % 4, 0u);
  OK(cuMemsetD8_v2(pointer, 0, pitch * 10));
  OK(cuMemsetD2D32_v2(pointer, pitch, 7, 25, 10));
  OK(cuMemsetD2D8_v2(pointer, pitch, 9, 3, 5));
  OK(cuMemsetD2D16_v2(pointer + 4, pitch, 0x0506, 2, 5));
  const std::vector<uint8_t> bytes = read_bytes(pointer, pitch * 10);
  for (size_t row = 0; row < 10; row++) {
    const uint8_t* line = &bytes[row * pitch];
    EXPECT_EQ(line[0], row < 5 ? 9 : 7);
    EXPECT_EQ(line[4], row < 5 ? 6 : 7);
    EXPECT_EQ(line[8], 7);
    EXPECT_EQ(line[96], 7);
    if (pitch > 100) {
      EXPECT_EQ(line[100], 0) << "memset must not touch the padding";
    }
  }
  OK(cuMemFree_v2(pointer));
}

TEST_F(MemoryTest, AllocPitchErrors) {
  CUdeviceptr pointer = 0;
  size_t pitch = 0;
  INVALID(cuMemAllocPitch_v2(nullptr, &pitch, 100, 10, 4));
  INVALID(cuMemAllocPitch_v2(&pointer, nullptr, 100, 10, 4));
}

TEST_F(MemoryTest, FreshMemoryAfterFreeIsUsable) {
  for (int round = 0; round < 50; round++) {
    CUdeviceptr pointer = 0;
    ASSERT_EQ(cuMemAlloc_v2(&pointer, 1 << 20), CUDA_SUCCESS);
    ASSERT_EQ(cuMemsetD32_v2(pointer, round, 1 << 18), CUDA_SUCCESS);
    ASSERT_EQ(cuMemFree_v2(pointer), CUDA_SUCCESS);
  }
}

// Work of the memory's earlier life is over before anything happens in its next one.
TEST_F(MemoryTest, NewMemoryIsNotTouchedByWhatUsedItBefore) {
  for (const size_t words : {size_t{1000}, size_t{900'000}}) {
    Stream late, soon;
    CUdeviceptr before = 0, after = 0;
    OK(cuMemAlloc_v2(&before, words * 4));
    OK(cuLaunchHostFunc(
        late, [](void*) { usleep(30'000); }, nullptr));
    OK(cuMemsetD32Async(before, 1, words, late));
    OK(cuMemFree_v2(before));
    OK(cuMemAlloc_v2(&after, words * 4));
    OK(cuMemsetD32Async(after, 2, words, soon));
    OK(cuStreamSynchronize(soon));
    OK(cuStreamSynchronize(late));
    EXPECT_EQ(read_words(after, words), std::vector<uint32_t>(words, 2));
    OK(cuMemFree_v2(after));
  }
}

TEST_F(MemoryTest, MemoryComesAndGoesDuringACapture) {
  Stream stream;
  CUgraph graph = nullptr;
  CUdeviceptr before = 0, within = 0;
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  OK(cuMemAlloc_v2(&before, 4096));
  OK(cuMemsetD32Async(before, 1, 1024, stream));
  OK(cuMemFree_v2(before));
  OK(cuThreadExchangeStreamCaptureMode(&mode));
  OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  for (const size_t bytes : {size_t{4096}, size_t{3} << 20}) {
    OK(cuMemAlloc_v2(&within, bytes));
    OK(cuMemFree_v2(within));
  }
  OK(cuMemAlloc_v2(&within, 4096));
  OK(cuMemsetD32Async(within, 2, 1024, stream));
  OK(cuStreamEndCapture(stream, &graph));
  OK(cuThreadExchangeStreamCaptureMode(&mode));
  CUgraphExec exec = nullptr;
  OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
  OK(cuGraphLaunch(exec, stream));
  OK(cuStreamSynchronize(stream));
  EXPECT_EQ(read_words(within, 1024), std::vector<uint32_t>(1024, 2));
  OK(cuGraphExecDestroy(exec));
  OK(cuGraphDestroy(graph));
  OK(cuMemFree_v2(within));
}

TEST_F(MemoryTest, ManagedIsVisibleOnBothSides) {
  REQUIRE_ATTRIBUTE(CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY);
  CUdeviceptr pointer = 0;
  MUST(cuMemAllocManaged(&pointer, 4096, CU_MEM_ATTACH_GLOBAL));
  uint32_t* words = reinterpret_cast<uint32_t*>(pointer);
  for (uint32_t i = 0; i < 1024; i++) words[i] = i;
  OK(launch(basic("affine"), {4}, {256}, 0, nullptr, pointer, 2u, 1u, 1024u));
  OK(cuCtxSynchronize());
  EXPECT_EQ(words[0], 1u);
  EXPECT_EQ(words[1023], 2047u);
  OK(cuMemFree_v2(pointer));
}

TEST_F(MemoryTest, ManagedErrors) {
  REQUIRE_ATTRIBUTE(CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY);
  CUdeviceptr pointer = 0;
  INVALID(cuMemAllocManaged(&pointer, 0, CU_MEM_ATTACH_GLOBAL));
  INVALID(cuMemAllocManaged(&pointer, 4096, 0));
  INVALID(cuMemAllocManaged(nullptr, 4096, CU_MEM_ATTACH_GLOBAL));
}

}  // namespace
}  // namespace tendril::conformance
