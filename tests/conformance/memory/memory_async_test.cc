// SPDX-License-Identifier: Apache-2.0
// Conformance of stream-ordered copies and memsets, and when the host may touch its side again.
#include "tests/conformance/harness.h"

namespace tendril::conformance {
namespace {

class MemoryAsyncTest : public CudaTest {};

TEST_F(MemoryAsyncTest, PageableSourceMayBeReusedAtOnce) {
  Stream stream;
  Buffer data(1 << 20);
  std::vector<uint8_t> source = pattern_bytes(1 << 20, 1);
  OK(cuMemcpyHtoDAsync_v2(data, source.data(), source.size(), stream));
  std::fill(source.begin(), source.end(), 0);
  OK(cuStreamSynchronize(stream));
  EXPECT_EQ(read_bytes(data, source.size()), pattern_bytes(1 << 20, 1));
}

TEST_F(MemoryAsyncTest, PageableSourceBehindPendingWork) {
  Stream stream;
  Buffer data(4096);
  OK(launch(basic("fill"), {4}, {256}, 0, stream, CUdeviceptr{data}, 1u, 1024u));
  std::vector<uint8_t> source = pattern_bytes(4096, 2);
  OK(cuMemcpyHtoDAsync_v2(data, source.data(), source.size(), stream));
  std::fill(source.begin(), source.end(), 0);
  OK(cuStreamSynchronize(stream));
  EXPECT_EQ(read_bytes(data, 4096), pattern_bytes(4096, 2));
}

TEST_F(MemoryAsyncTest, PinnedSourceIsReadWhenTheStreamGetsThere) {
  // The host function changes the buffer between the call and the copy; the copy must see the
  // change.
  Stream stream;
  Pinned host(4);
  Buffer data(4);
  host.words()[0] = 1;
  OK(cuLaunchHostFunc(
      stream, [](void* word) { *static_cast<uint32_t*>(word) = 2; }, host.data()));
  OK(cuMemcpyHtoDAsync_v2(data, host.data(), 4, stream));
  OK(cuStreamSynchronize(stream));
  EXPECT_EQ(read_words(data, 1)[0], 2u);
}

TEST_F(MemoryAsyncTest, PinnedTargetIsCompleteAfterSynchronize) {
  Stream stream;
  Pinned host(1 << 20);
  Buffer data(1 << 20);
  memset(host.data(), 0, 1 << 20);
  OK(launch(basic("iota"), {1024}, {256}, 0, stream, CUdeviceptr{data}, 3u, 1u << 18));
  OK(cuMemcpyDtoHAsync_v2(host.data(), data, 1 << 20, stream));
  OK(cuStreamSynchronize(stream));
  for (uint32_t i = 0; i < 1 << 18; i++) ASSERT_EQ(host.words()[i], i + 3);
}

TEST_F(MemoryAsyncTest, PinnedTargetIsCompleteWhenTheEventIs) {
  Stream stream;
  Event event(CU_EVENT_DISABLE_TIMING);
  Pinned host(1 << 16);
  Buffer data(1 << 16);
  OK(cuMemsetD32Async(data, 0x77777777, 1 << 14, stream));
  OK(cuMemcpyDtoHAsync_v2(host.data(), data, 1 << 16, stream));
  OK(cuEventRecord(event, stream));
  while (cuEventQuery(event) == CUDA_ERROR_NOT_READY) {
  }
  for (uint32_t i = 0; i < 1 << 14; i++) ASSERT_EQ(host.words()[i], 0x77777777u);
}

TEST_F(MemoryAsyncTest, PinnedTargetIsCompleteWhenStreamQuerySaysSo) {
  Stream stream;
  Pinned host(1 << 16);
  Buffer data(1 << 16);
  OK(cuMemsetD32Async(data, 0x33333333, 1 << 14, stream));
  OK(cuMemcpyDtoHAsync_v2(host.data(), data, 1 << 16, stream));
  while (cuStreamQuery(stream) == CUDA_ERROR_NOT_READY) {
  }
  for (uint32_t i = 0; i < 1 << 14; i++) ASSERT_EQ(host.words()[i], 0x33333333u);
}

TEST_F(MemoryAsyncTest, PageableTargetIsCompleteAfterSynchronize) {
  Stream stream;
  Buffer data(100000);
  std::vector<uint8_t> target(100000);
  const std::vector<uint8_t> source = pattern_bytes(100000, 3);
  OK(cuMemcpyHtoDAsync_v2(data, source.data(), source.size(), stream));
  OK(cuMemcpyDtoHAsync_v2(target.data(), data, target.size(), stream));
  OK(cuStreamSynchronize(stream));
  EXPECT_EQ(target, source);
}

TEST_F(MemoryAsyncTest, ReadBackThenUploadTheSamePinnedBuffer) {
  // The upload must carry what the read-back of the same stream puts there, not what the host had
  // at the call.
  Stream stream;
  Pinned host(65536);
  Buffer a(65536), b(65536);
  memset(host.data(), 0, 65536);
  OK(launch(basic("iota"), {64}, {256}, 0, stream, CUdeviceptr{a}, 100u, 16384u));
  OK(cuMemcpyDtoHAsync_v2(host.data(), a, 65536, stream));
  OK(cuMemcpyHtoDAsync_v2(b, host.data(), 65536, stream));
  OK(cuStreamSynchronize(stream));
  EXPECT_EQ(read_words(b, 16384)[16383], 100u + 16383);
}

TEST_F(MemoryAsyncTest, ReadBackAndUploadAcrossStreams) {
  Stream first, second;
  Event event(CU_EVENT_DISABLE_TIMING);
  Pinned host(4096);
  Buffer a(4096), b(4096);
  memset(host.data(), 0, 4096);
  OK(cuMemsetD32Async(a, 21, 1024, first));
  OK(cuMemcpyDtoHAsync_v2(host.data(), a, 4096, first));
  OK(cuEventRecord(event, first));
  OK(cuStreamWaitEvent(second, event, 0));
  OK(cuMemcpyHtoDAsync_v2(b, host.data(), 4096, second));
  OK(cuStreamSynchronize(second));
  EXPECT_EQ(read_words(b, 1024), std::vector<uint32_t>(1024, 21));
}

TEST_F(MemoryAsyncTest, UploadsKeepTheirOrder) {
  Stream stream;
  Buffer data(4096);
  Pinned host(4096 * 8);
  for (uint32_t round = 0; round < 8; round++) {
    for (uint32_t i = 0; i < 1024; i++) host.words()[round * 1024 + i] = round;
    OK(cuMemcpyHtoDAsync_v2(data, host.words() + round * 1024, 4096, stream));
  }
  OK(cuStreamSynchronize(stream));
  EXPECT_EQ(read_words(data, 1024), std::vector<uint32_t>(1024, 7));
}

TEST_F(MemoryAsyncTest, MemsetVariants) {
  Stream stream;
  Buffer data(4096);
  OK(cuMemsetD8Async(data, 0x01, 4096, stream));
  OK(cuMemsetD16Async(data + 8, 0x0203, 4, stream));
  OK(cuMemsetD32Async(data + 16, 0x04050607, 4, stream));
  OK(cuStreamSynchronize(stream));
  EXPECT_EQ(read_words(data, 9),
            (std::vector<uint32_t>{0x01010101, 0x01010101, 0x02030203, 0x02030203, 0x04050607,
                                   0x04050607, 0x04050607, 0x04050607, 0x01010101}));
}

TEST_F(MemoryAsyncTest, Memset2DVariants) {
  Stream stream;
  Buffer data(64 * 8);
  OK(cuMemsetD8Async(data, 0, 64 * 8, stream));
  OK(cuMemsetD2D8Async(data, 64, 0xaa, 5, 8, stream));
  OK(cuMemsetD2D16Async(data + 8, 64, 0xbbcc, 2, 8, stream));
  OK(cuMemsetD2D32Async(data + 16, 64, 0x11223344, 3, 8, stream));
  OK(cuStreamSynchronize(stream));
  const std::vector<uint8_t> bytes = read_bytes(data, 64 * 8);
  for (int row = 0; row < 8; row++) {
    const uint8_t* line = &bytes[row * 64];
    EXPECT_EQ(line[4], 0xaa);
    EXPECT_EQ(line[5], 0);
    EXPECT_EQ(line[8], 0xcc);
    EXPECT_EQ(line[11], 0xbb);
    EXPECT_EQ(line[12], 0);
    EXPECT_EQ(line[16], 0x44);
    EXPECT_EQ(line[27], 0x11);
    EXPECT_EQ(line[28], 0);
  }
}

TEST_F(MemoryAsyncTest, DeviceToDevice) {
  Stream stream;
  Buffer a(65536), b(65536);
  OK(launch(basic("iota"), {64}, {256}, 0, stream, CUdeviceptr{a}, 0u, 16384u));
  OK(cuMemcpyDtoDAsync_v2(b, a, 65536, stream));
  OK(launch(basic("affine"), {64}, {256}, 0, stream, CUdeviceptr{a}, 0u, 0u, 16384u));
  OK(cuStreamSynchronize(stream));
  EXPECT_EQ(read_words(b, 16384)[16383], 16383u);
}

TEST_F(MemoryAsyncTest, UnifiedCopy) {
  Stream stream;
  Pinned host(4096), back(4096);
  Buffer data(4096);
  for (uint32_t i = 0; i < 1024; i++) host.words()[i] = i ^ 0x5555;
  OK(cuMemcpyAsync(data, host.device_address(), 4096, stream));
  OK(cuMemcpyAsync(back.device_address(), data, 4096, stream));
  OK(cuStreamSynchronize(stream));
  EXPECT_EQ(memcmp(host.data(), back.data(), 4096), 0);
}

TEST_F(MemoryAsyncTest, Errors) {
  Stream stream;
  Buffer data(4096);
  Pinned host(4096);
  INVALID(cuMemcpyHtoDAsync_v2(0, host.data(), 64, stream));
  INVALID(cuMemcpyDtoHAsync_v2(nullptr, data, 64, stream));
  INVALID(cuMemsetD32Async(0, 1, 64, stream));
  INVALID(cuMemsetD32Async(data + 1, 1, 64, stream));
  OK(cuMemcpyHtoDAsync_v2(data, host.data(), 0, stream));
  OK(cuMemsetD8Async(data, 1, 0, stream));
  OK(cuStreamSynchronize(stream));
}

TEST_F(MemoryAsyncTest, PerThreadDefaultStreamVariants) {
  Buffer data(4096);
  Pinned host(4096);
  for (uint32_t i = 0; i < 1024; i++) host.words()[i] = i;
  OK(cuMemcpyHtoDAsync_v2_ptsz(data, host.data(), 4096, nullptr));
  CUdeviceptr where = data;
  uint32_t factor = 2, addend = 1, n = 1024;
  void* params[] = {&where, &factor, &addend, &n};
  OK(cuLaunchKernel_ptsz(basic("affine"), 4, 1, 1, 256, 1, 1, 0, nullptr, params, nullptr));
  OK(cuMemcpyDtoHAsync_v2_ptsz(host.data(), data, 4096, nullptr));
  OK(cuStreamSynchronize_ptsz(nullptr));
  EXPECT_EQ(host.words()[1023], 2047u);
}

}  // namespace
}  // namespace tendril::conformance
