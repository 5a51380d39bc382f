// SPDX-License-Identifier: Apache-2.0
// Copies in every size, alignment and shape: 1D, 2D, 3D, arrays, pageable and pinned, several
// streams at once.
#include <algorithm>
#include <cstddef>

#include "tests/conformance/harness.h"

namespace tendril::conformance {
namespace {

class CopiesTest : public CudaTest {};
class CopiesSizes : public CudaTest, public ::testing::WithParamInterface<size_t> {};

INSTANTIATE_TEST_SUITE_P(Bytes, CopiesSizes, ::testing::Values(0, 1, 3, 4096, 1 << 20, 64 << 20));

TEST_P(CopiesSizes, PageableRoundTrip) {
  const size_t bytes = GetParam();
  const std::vector<uint8_t> source = pattern_bytes(bytes + 1, 1);
  std::vector<uint8_t> target(bytes + 1, 0);
  Buffer data(bytes + 1);
  OK(cuMemcpyHtoD_v2(data, source.data(), bytes));
  OK(cuMemcpyDtoH_v2(target.data(), data, bytes));
  EXPECT_EQ(memcmp(source.data(), target.data(), bytes), 0);
  EXPECT_EQ(target[bytes], 0) << "one byte too many was written";
}

TEST_P(CopiesSizes, PinnedRoundTrip) {
  const size_t bytes = GetParam();
  Pinned source(bytes + 1), target(bytes + 1);
  for (size_t i = 0; i <= bytes; i++) source.data()[i] = pattern(i, 2);
  target.data()[bytes] = 0x99;
  Buffer data(bytes + 1);
  Stream stream;
  OK(cuMemcpyHtoDAsync_v2(data, source.data(), bytes, stream));
  OK(cuMemcpyDtoHAsync_v2(target.data(), data, bytes, stream));
  OK(cuStreamSynchronize(stream));
  EXPECT_EQ(memcmp(source.data(), target.data(), bytes), 0);
  EXPECT_EQ(target.data()[bytes], 0x99) << "one byte too many was written";
}

TEST_P(CopiesSizes, DeviceToDevice) {
  const size_t bytes = GetParam();
  Buffer a(bytes + 4), b(bytes + 4);
  OK(cuMemsetD8_v2(a, 0x42, bytes + 4));
  OK(cuMemsetD8_v2(b, 0, bytes + 4));
  OK(cuMemcpyDtoD_v2(b, a, bytes));
  OK(cuCtxSynchronize());
  if (bytes) {
    EXPECT_EQ(read_bytes(b, 1)[0], 0x42);
    EXPECT_EQ(read_bytes(b + bytes - 1, 1)[0], 0x42);
  }
  EXPECT_EQ(read_bytes(b + bytes, 1)[0], 0);
}

// Copying from an address where nothing is fails. Nothing after it fails.
TEST_F(CopiesTest, NothingIsThere) {
  constexpr CUdeviceptr nowhere = CUdeviceptr{7} << 44;
  Buffer data(256);
  Pinned host(256);
  Stream stream;
  INVALID(cuMemcpyDtoD_v2(nowhere, data, 4));
  INVALID(cuMemcpyDtoD_v2(data, nowhere, 4));
  INVALID(cuMemcpyDtoDAsync_v2(nowhere, data, 4, stream));
  INVALID(cuMemcpyHtoD_v2(nowhere, host.data(), 4));
  INVALID(cuMemcpyHtoDAsync_v2(nowhere, host.data(), 4, stream));
  INVALID(cuMemcpyDtoH_v2(host.data(), nowhere, 4));
  INVALID(cuMemcpyDtoHAsync_v2(host.data(), nowhere, 4, stream));
  OK(cuMemcpyDtoD_v2(data, data + 128, 128));
  OK(cuStreamSynchronize(stream));
  OK(cuCtxSynchronize());
}

TEST_F(CopiesTest, UnalignedOffsetsAndLengths) {
  const std::vector<uint8_t> source = pattern_bytes(10000, 3);
  Buffer data(10000);
  for (size_t from : {0, 1, 2, 3, 7, 63, 4095}) {
    for (size_t to : {0, 1, 5, 255}) {
      for (size_t bytes : {1, 2, 3, 5, 17, 1001, 4097}) {
        std::vector<uint8_t> target(bytes + 2, 0xee);
        ASSERT_EQ(cuMemcpyHtoD_v2(data + to, source.data() + from, bytes), CUDA_SUCCESS);
        ASSERT_EQ(cuMemcpyDtoH_v2(target.data() + 1, data + to, bytes), CUDA_SUCCESS);
        ASSERT_EQ(memcmp(target.data() + 1, source.data() + from, bytes), 0)
            << from << " " << to << " " << bytes;
        ASSERT_EQ(target[0], 0xee);
        ASSERT_EQ(target[bytes + 1], 0xee);
      }
    }
  }
}

TEST_F(CopiesTest, PartOfADeviceBuffer) {
  Buffer data(4096);
  OK(cuMemsetD32_v2(data, 0, 1024));
  const std::vector<uint8_t> part = pattern_bytes(1000, 4);
  OK(cuMemcpyHtoD_v2(data + 1111, part.data(), part.size()));
  const std::vector<uint8_t> all = read_bytes(data, 4096);
  EXPECT_EQ(all[1110], 0);
  EXPECT_EQ(memcmp(&all[1111], part.data(), part.size()), 0);
  EXPECT_EQ(all[2111], 0);
}

TEST_F(CopiesTest, ManySmallUploads) {
  Buffer data(4000);
  for (uint32_t i = 0; i < 1000; i++) ASSERT_EQ(cuMemcpyHtoD_v2(data + 4 * i, &i, 4), CUDA_SUCCESS);
  const std::vector<uint32_t> words = read_words(data, 1000);
  for (uint32_t i = 0; i < 1000; i++) ASSERT_EQ(words[i], i);
}

TEST_F(CopiesTest, ManySmallDownloads) {
  Buffer data(1200);
  OK(launch(basic("iota"), {2}, {256}, 0, nullptr, CUdeviceptr{data}, 0u, 300u));
  for (uint32_t i = 0; i < 300; i++) {
    uint32_t word = 0;
    ASSERT_EQ(cuMemcpyDtoH_v2(&word, data + 4 * i, 4), CUDA_SUCCESS);
    ASSERT_EQ(word, i);
  }
}

TEST_F(CopiesTest, BothDirectionsInOverlappingStreams) {
  constexpr size_t kBytes = 4 << 20;
  Stream up, down;
  Pinned source(kBytes), target(kBytes);
  Buffer a(kBytes), b(kBytes);
  for (size_t i = 0; i < kBytes; i++) source.data()[i] = pattern(i, 5);
  OK(cuMemsetD8_v2(b, 0x3c, kBytes));
  OK(cuCtxSynchronize());
  OK(cuMemcpyHtoDAsync_v2(a, source.data(), kBytes, up));
  OK(cuMemcpyDtoHAsync_v2(target.data(), b, kBytes, down));
  OK(cuCtxSynchronize());
  EXPECT_EQ(target.data()[kBytes - 1], 0x3c);
  EXPECT_EQ(target.data()[0], 0x3c);
  OK(cuMemcpyDtoH_v2(target.data(), a, kBytes));
  EXPECT_EQ(memcmp(target.data(), source.data(), kBytes), 0);
}

TEST_F(CopiesTest, ABigCopyDoesNotReorderSmallOnes) {
  Stream big_stream, small_stream;
  std::vector<uint8_t> big = pattern_bytes(16 << 20, 6);
  Pinned pinned(16 << 20);
  memcpy(pinned.data(), big.data(), big.size());
  Buffer target(16 << 20), small(4);
  OK(cuMemcpyHtoDAsync_v2(target, pinned.data(), big.size(), big_stream));
  uint32_t word = 0;
  for (uint32_t i = 1; i <= 20; i++) {
    ASSERT_EQ(cuMemsetD32Async(small, i, 1, small_stream), CUDA_SUCCESS);
    ASSERT_EQ(cuMemcpyDtoHAsync_v2(&word, small, 4, small_stream), CUDA_SUCCESS);
    ASSERT_EQ(cuStreamSynchronize(small_stream), CUDA_SUCCESS);
    ASSERT_EQ(word, i);
  }
  OK(cuStreamSynchronize(big_stream));
  EXPECT_EQ(read_bytes(target, big.size()), big);
}

// Nobody waits, so what a driver keeps for such copies runs out.
TEST_F(CopiesTest, PageableSourceIsFreeWhenTheCallReturns) {
  constexpr size_t kPart = 200'000, kParts = 150;
  Stream streams[2];
  Buffer data(kPart * kParts);
  std::vector<uint8_t> source(kPart);
  const auto bytes_of = [](size_t part) {
    return part % 3 == 0 ? size_t{70} : part % 3 == 1 ? size_t{9000} : kPart;
  };
  for (size_t part = 0; part < kParts; part++) {
    for (size_t i = 0; i < bytes_of(part); i += 64) source[i] = static_cast<uint8_t>(part + i / 64);
    const CUresult copied =
        cuMemcpyHtoDAsync_v2(data + part * kPart, source.data(), bytes_of(part), streams[part % 2]);
    ASSERT_EQ(copied, CUDA_SUCCESS);
    if (part == kParts / 2) {
      OK(cuStreamSynchronize(streams[0]));
    }
  }
  OK(cuCtxSynchronize());
  const std::vector<uint8_t> all = read_bytes(data, kPart * kParts);
  for (size_t part = 0; part < kParts; part++) {
    for (size_t i = 0; i < bytes_of(part); i += 64)
      ASSERT_EQ(all[part * kPart + i], static_cast<uint8_t>(part + i / 64)) << part << " " << i;
  }
}

// A stream that does not wait for the default one sees it too. The last bytes of pageable memory
// may still be on their way.
TEST_F(CopiesTest, SynchronousCopyIsDoneWhenItReturns) {
  constexpr size_t kBytes = 32 << 20;
  Stream apart(CU_STREAM_NON_BLOCKING);
  Buffer data(kBytes), seen(kBytes);
  Pinned pinned(kBytes);
  std::vector<uint8_t> pageable(kBytes);
  for (uint8_t round = 1; round <= 4; round++) {
    uint8_t* source = round % 2 != 0 ? pinned.data() : pageable.data();
    const size_t certain = round % 2 != 0 ? kBytes : kBytes / 2;
    memset(source, round, kBytes);
    OK(cuMemcpyHtoD_v2(data, source, kBytes));
    OK(cuMemcpyDtoDAsync_v2(seen, data, kBytes, apart));
    OK(cuStreamSynchronize(apart));
    const std::vector<uint8_t> all = read_bytes(seen, kBytes);
    EXPECT_EQ(std::count(all.begin(), all.begin() + certain, round),
              static_cast<std::ptrdiff_t>(certain))
        << round;
  }
}

TEST_F(CopiesTest, ContextTakesItsCopiesAlong) {
  CUcontext own = nullptr;
  for (uint8_t round = 1; round <= 3; round++) {
    MUST(cuCtxCreate_v2(&own, 0, device()));
    CUdeviceptr data = 0;
    OK(cuMemAlloc_v2(&data, 1 << 20));
    std::vector<uint8_t> source(1 << 20), target(1 << 20);
    for (uint8_t copy = 0; copy < 8; copy++) {
      memset(source.data(), round * 16 + copy, source.size());
      ASSERT_EQ(cuMemcpyHtoDAsync_v2(data, source.data(), source.size(), nullptr), CUDA_SUCCESS);
    }
    OK(cuMemcpyDtoH_v2(target.data(), data, target.size()));
    EXPECT_EQ(target, source);
    OK(cuMemcpyHtoDAsync_v2(data, source.data(), source.size(), nullptr));
    OK(cuCtxDestroy_v2(own));
  }
}

// ---- Two and three dimensions ----

CUDA_MEMCPY2D host_to_device(const void* host, size_t host_pitch, CUdeviceptr to, size_t pitch,
                             size_t width, size_t height) {
  CUDA_MEMCPY2D copy = {};
  copy.srcMemoryType = CU_MEMORYTYPE_HOST;
  copy.srcHost = host;
  copy.srcPitch = host_pitch;
  copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.dstDevice = to;
  copy.dstPitch = pitch;
  copy.WidthInBytes = width;
  copy.Height = height;
  return copy;
}

TEST_F(CopiesTest, TwoDimensionsWithPitch) {
  constexpr size_t kWidth = 100, kHeight = 20, kHostPitch = 130;
  const std::vector<uint8_t> source = pattern_bytes(kHostPitch * kHeight, 7);
  CUdeviceptr data = 0;
  size_t pitch = 0;
  MUST(cuMemAllocPitch_v2(&data, &pitch, kWidth, kHeight, 4));
  OK(cuMemsetD8_v2(data, 0, pitch * kHeight));
  CUDA_MEMCPY2D copy = host_to_device(source.data(), kHostPitch, data, pitch, kWidth, kHeight);
  OK(cuMemcpy2D_v2(&copy));
  const std::vector<uint8_t> all = read_bytes(data, pitch * kHeight);
  for (size_t y = 0; y < kHeight; y++) {
    ASSERT_EQ(memcmp(&all[y * pitch], &source[y * kHostPitch], kWidth), 0) << y;
    if (pitch > kWidth) {
      ASSERT_EQ(all[y * pitch + kWidth], 0) << "padding was written";
    }
  }
  OK(cuMemFree_v2(data));
}

TEST_F(CopiesTest, TwoDimensionsWithOffsets) {
  const std::vector<uint8_t> source = pattern_bytes(64 * 64, 8);
  Buffer data(64 * 64);
  OK(cuMemsetD8_v2(data, 0, 64 * 64));
  CUDA_MEMCPY2D copy = host_to_device(source.data(), 64, data, 64, 16, 8);
  copy.srcXInBytes = 5;
  copy.srcY = 3;
  copy.dstXInBytes = 9;
  copy.dstY = 30;
  OK(cuMemcpy2D_v2(&copy));
  const std::vector<uint8_t> all = read_bytes(data, 64 * 64);
  for (size_t y = 0; y < 8; y++)
    ASSERT_EQ(memcmp(&all[(30 + y) * 64 + 9], &source[(3 + y) * 64 + 5], 16), 0) << y;
  EXPECT_EQ(all[30 * 64 + 8], 0);
  EXPECT_EQ(all[30 * 64 + 25], 0);
  EXPECT_EQ(all[38 * 64 + 9], 0);
}

TEST_F(CopiesTest, TwoDimensionsDeviceToHostAndDevice) {
  Buffer a(64 * 32), b(80 * 32);
  OK(launch(basic("iota"), {2}, {256}, 0, nullptr, CUdeviceptr{a}, 0u, 512u));
  OK(cuMemsetD8_v2(b, 0xff, 80 * 32));
  CUDA_MEMCPY2D copy = {};
  copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = a;
  copy.srcPitch = 64;
  copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.dstDevice = b;
  copy.dstPitch = 80;
  copy.WidthInBytes = 40;
  copy.Height = 32;
  OK(cuMemcpy2DUnaligned_v2(&copy));
  std::vector<uint8_t> host(40 * 32);
  copy.srcDevice = b;
  copy.srcPitch = 80;
  copy.dstMemoryType = CU_MEMORYTYPE_HOST;
  copy.dstHost = host.data();
  copy.dstPitch = 40;
  OK(cuMemcpy2D_v2(&copy));
  for (uint32_t y = 0; y < 32; y++) {
    uint32_t word = 0;
    memcpy(&word, &host[y * 40 + 36], 4);
    ASSERT_EQ(word, y * 16 + 9);
  }
}

TEST_F(CopiesTest, TwoDimensionsAsyncAndUnified) {
  Stream stream;
  Pinned source(64 * 16), target(64 * 16);
  for (size_t i = 0; i < 64 * 16; i++) source.data()[i] = pattern(i, 9);
  memset(target.data(), 0, 64 * 16);
  Buffer data(64 * 16);
  CUDA_MEMCPY2D copy = host_to_device(source.data(), 64, data, 64, 48, 16);
  OK(cuMemcpy2DAsync_v2(&copy, stream));
  copy = {};
  copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
  copy.srcDevice = data;
  copy.dstDevice = target.device_address();
  copy.srcPitch = copy.dstPitch = 64;
  copy.WidthInBytes = 48;
  copy.Height = 16;
  OK(cuMemcpy2DAsync_v2(&copy, stream));
  OK(cuStreamSynchronize(stream));
  for (size_t y = 0; y < 16; y++) {
    ASSERT_EQ(memcmp(target.data() + 64 * y, source.data() + 64 * y, 48), 0);
    ASSERT_EQ(target.data()[64 * y + 48], 0);
  }
}

TEST_F(CopiesTest, TwoDimensionsErrors) {
  Buffer data(4096);
  std::vector<uint8_t> host(4096);
  INVALID(cuMemcpy2D_v2(nullptr));
  CUDA_MEMCPY2D copy =
      host_to_device(host.data(), 32, data, 64, 64, 4);  // the host pitch is less than the width
  INVALID(cuMemcpy2D_v2(&copy));
  copy = host_to_device(host.data(), 64, data, 64, 0, 4);
  OK(cuMemcpy2D_v2(&copy));
  copy = host_to_device(host.data(), 64, data, 64, 64, 0);
  OK(cuMemcpy2D_v2(&copy));
}

TEST_F(CopiesTest, ThreeDimensions) {
  constexpr size_t kPitch = 32, kRows = 8, kDepth = 5;
  const std::vector<uint8_t> source = pattern_bytes(kPitch * kRows * kDepth, 10);
  Buffer data(kPitch * kRows * kDepth);
  OK(cuMemsetD8_v2(data, 0, data.bytes()));
  CUDA_MEMCPY3D copy = {};
  copy.srcMemoryType = CU_MEMORYTYPE_HOST;
  copy.srcHost = source.data();
  copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.dstDevice = data;
  copy.srcPitch = copy.dstPitch = kPitch;
  copy.srcHeight = copy.dstHeight = kRows;
  copy.srcXInBytes = 3;
  copy.srcY = 1;
  copy.srcZ = 1;
  copy.dstXInBytes = 7;
  copy.dstY = 2;
  copy.dstZ = 2;
  copy.WidthInBytes = 11;
  copy.Height = 4;
  copy.Depth = 3;
  OK(cuMemcpy3D_v2(&copy));
  const std::vector<uint8_t> all = read_bytes(data, data.bytes());
  for (size_t z = 0; z < kDepth; z++) {
    for (size_t y = 0; y < kRows; y++) {
      for (size_t x = 0; x < kPitch; x++) {
        const bool inside = x >= 7 && x < 18 && y >= 2 && y < 6 && z >= 2;
        const uint8_t expected = inside ? source[((z - 1) * kRows + y - 1) * kPitch + x - 4] : 0;
        ASSERT_EQ(all[(z * kRows + y) * kPitch + x], expected) << x << " " << y << " " << z;
      }
    }
  }
}

TEST_F(CopiesTest, ThreeDimensionsAsyncBack) {
  constexpr size_t kBytes = 16 * 4 * 4;
  Stream stream;
  Buffer data(kBytes);
  Pinned host(kBytes);
  memset(host.data(), 0, kBytes);
  OK(cuMemsetD8Async(data, 0x6d, kBytes, stream));
  CUDA_MEMCPY3D copy = {};
  copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = data;
  copy.dstMemoryType = CU_MEMORYTYPE_HOST;
  copy.dstHost = host.data();
  copy.srcPitch = copy.dstPitch = 16;
  copy.srcHeight = copy.dstHeight = 4;
  copy.WidthInBytes = 16;
  copy.Height = 4;
  copy.Depth = 2;
  OK(cuMemcpy3DAsync_v2(&copy, stream));
  OK(cuStreamSynchronize(stream));
  EXPECT_EQ(host.data()[0], 0x6d);
  EXPECT_EQ(host.data()[127], 0x6d);
  EXPECT_EQ(host.data()[128], 0);
}

// ---- Arrays ----

CUarray make_array(size_t width, size_t height) {
  CUDA_ARRAY_DESCRIPTOR descriptor = {width, height, CU_AD_FORMAT_UNSIGNED_INT32, 1};
  CUarray array = nullptr;
  EXPECT_EQ(cuArrayCreate_v2(&array, &descriptor), CUDA_SUCCESS);
  return array;
}

TEST_F(CopiesTest, ArrayDescriptor) {
  CUarray array = make_array(16, 8);
  ASSERT_NE(array, nullptr);
  CUDA_ARRAY_DESCRIPTOR descriptor = {};
  OK(cuArrayGetDescriptor_v2(&descriptor, array));
  EXPECT_EQ(descriptor.Width, 16u);
  EXPECT_EQ(descriptor.Height, 8u);
  EXPECT_EQ(descriptor.Format, CU_AD_FORMAT_UNSIGNED_INT32);
  EXPECT_EQ(descriptor.NumChannels, 1u);
  OK(cuArrayDestroy(array));
}

TEST_F(CopiesTest, ArrayErrors) {
  CUarray array = nullptr;
  CUDA_ARRAY_DESCRIPTOR descriptor = {16, 8, CU_AD_FORMAT_UNSIGNED_INT32,
                                      3};  // three channels do not exist
  INVALID(cuArrayCreate_v2(&array, &descriptor));
  descriptor.NumChannels = 1;
  descriptor.Width = 0;
  INVALID(cuArrayCreate_v2(&array, &descriptor));
  INVALID(cuArrayCreate_v2(nullptr, &descriptor));
  INVALID(cuArrayCreate_v2(&array, nullptr));
}

TEST_F(CopiesTest, ArrayOneDimensionRoundTrip) {
  CUarray array = make_array(1000, 0);
  ASSERT_NE(array, nullptr);
  const std::vector<uint8_t> source = pattern_bytes(4000, 11);
  std::vector<uint8_t> target(4000);
  OK(cuMemcpyHtoA_v2(array, 0, source.data(), 4000));
  OK(cuMemcpyAtoH_v2(target.data(), array, 0, 4000));
  EXPECT_EQ(target, source);
  Buffer data(400);
  OK(cuMemcpyAtoD_v2(data, array, 40, 400));
  EXPECT_EQ(read_bytes(data, 400), std::vector<uint8_t>(source.begin() + 40, source.begin() + 440));
  OK(cuArrayDestroy(array));
}

TEST_F(CopiesTest, ArrayTwoDimensionsRoundTrip) {
  CUarray array = make_array(16, 8);
  ASSERT_NE(array, nullptr);
  const std::vector<uint8_t> source = pattern_bytes(16 * 4 * 8, 12);
  std::vector<uint8_t> target(source.size());
  CUDA_MEMCPY2D copy = {};
  copy.srcMemoryType = CU_MEMORYTYPE_HOST;
  copy.srcHost = source.data();
  copy.srcPitch = 64;
  copy.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  copy.dstArray = array;
  copy.WidthInBytes = 64;
  copy.Height = 8;
  OK(cuMemcpy2D_v2(&copy));
  copy = {};
  copy.srcMemoryType = CU_MEMORYTYPE_ARRAY;
  copy.srcArray = array;
  copy.dstMemoryType = CU_MEMORYTYPE_HOST;
  copy.dstHost = target.data();
  copy.dstPitch = 64;
  copy.WidthInBytes = 64;
  copy.Height = 8;
  OK(cuMemcpy2D_v2(&copy));
  EXPECT_EQ(target, source);
  OK(cuArrayDestroy(array));
}

TEST_F(CopiesTest, BatchAsync) {
  Stream stream;
  Pinned host(8192);
  Buffer data(8192);
  for (uint32_t i = 0; i < 2048; i++) host.words()[i] = i;
  CUdeviceptr targets[3] = {data, data + 1000, data + 4096};
  CUdeviceptr sources[3] = {host.device_address(), host.device_address() + 2000,
                            host.device_address() + 4096};
  size_t sizes[3] = {1000, 96, 4096}, indices[1] = {0};
  CUmemcpyAttributes attributes[1] = {};
  attributes[0].srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
  OK(cuMemcpyBatchAsync_v2(targets, sources, sizes, 3, attributes, indices, 1, stream));
  OK(cuStreamSynchronize(stream));
  EXPECT_EQ(read_words(data, 250)[249], 249u);
  EXPECT_EQ(read_words(data + 1000, 24)[0], 500u);
  EXPECT_EQ(read_words(data + 4096, 1024)[1023], 2047u);
}

// More than a server keeps ready for data on its way back. Nobody waits in between.
TEST_F(CopiesTest, ManyBigDownloadsAtOnce) {
  constexpr size_t kBytes = 30u << 20;
  Stream first, second;
  Buffer data(kBytes);
  Pinned host(4 * kBytes);
  for (uint32_t i = 0; i < 4; i++) {
    OK(cuMemsetD32Async(data, i, kBytes / 4, first));
    OK(cuMemcpyDtoHAsync_v2(host.data() + i * kBytes, data, kBytes, first));
  }
  OK(cuStreamSynchronize(first));
  for (uint32_t i = 0; i < 4; i++) {
    const uint32_t* words = host.words() + i * (kBytes / 4);
    EXPECT_EQ(words[0], i);
    EXPECT_EQ(std::count(words, words + kBytes / 4, i), static_cast<std::ptrdiff_t>(kBytes / 4));
  }
}

// A big download behind long work must not stop other streams.
TEST_F(CopiesTest, ABigDownloadThatMustWaitHoldsUpNobody) {
  constexpr size_t kBytes = 100u << 20;
  Stream blocked, free;
  Buffer data(kBytes), word(4);
  Pinned host(kBytes), small(4);
  OK(cuMemsetD8_v2(data, 3, kBytes));
  OK(cuCtxSynchronize());
  Gate gate;
  gate.block(blocked);
  OK(cuMemcpyDtoHAsync_v2(host.data(), data, kBytes, blocked));
  OK(cuMemsetD32Async(word, 77, 1, free));
  OK(cuMemcpyDtoHAsync_v2(small.data(), word, 4, free));
  OK(cuStreamSynchronize(free));
  EXPECT_EQ(small.words()[0], 77u);
  EXPECT_CU(cuStreamQuery(blocked), CUDA_ERROR_NOT_READY);
  gate.open();
  OK(cuStreamSynchronize(blocked));
  EXPECT_EQ(std::count(host.data(), host.data() + kBytes, 3), static_cast<std::ptrdiff_t>(kBytes));
}

}  // namespace
}  // namespace tendril::conformance
