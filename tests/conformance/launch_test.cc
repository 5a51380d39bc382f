// SPDX-License-Identifier: Apache-2.0
// Conformance of kernel launches: shapes, parameters, shared memory, limits reported at the call,
// and that kernels compute.
#include "tests/conformance/harness.h"

namespace tendril::conformance {
namespace {

class LaunchTest : public CudaTest {};

TEST_F(LaunchTest, VectorAdd) {
  constexpr uint32_t n = 5000;
  std::vector<float> a(n), b(n), c(n);
  for (uint32_t i = 0; i < n; i++) {
    a[i] = static_cast<float>(i);
    b[i] = static_cast<float>(2 * i + 1);
  }
  Buffer da(n * 4), db(n * 4), dc(n * 4);
  OK(cuMemcpyHtoD_v2(da, a.data(), n * 4));
  OK(cuMemcpyHtoD_v2(db, b.data(), n * 4));
  OK(launch(basic("vector_add"), {20}, {256}, 0, nullptr, CUdeviceptr{da}, CUdeviceptr{db},
            CUdeviceptr{dc}, n));
  OK(cuMemcpyDtoH_v2(c.data(), dc, n * 4));
  for (uint32_t i = 0; i < n; i++) ASSERT_EQ(c[i], static_cast<float>(3 * i + 1)) << i;
}

TEST_F(LaunchTest, NoParameters) {
  OK(cuLaunchKernel(basic("nothing"), 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
  OK(cuCtxSynchronize());
}

TEST_F(LaunchTest, CoordinatesInThreeDimensions) {
  const Shape grid{3, 2, 4}, block{5, 3, 2};
  const uint32_t threads = 30, total = 24 * threads;
  Buffer out(total * 4);
  OK(launch(basic("coordinates"), grid, block, 0, nullptr, CUdeviceptr{out}));
  const std::vector<uint32_t> words = read_words(out, total);
  for (uint32_t i = 0; i < total; i++) {
    const uint32_t t = i % threads, b = i / threads;
    const uint32_t expected = (b % 3) | (b / 3 % 2) << 4 | (b / 6) << 8 | (t % 5) << 12 |
                              (t / 5 % 3) << 16 | (t / 15) << 20;
    ASSERT_EQ(words[i], expected) << i;
  }
}

TEST_F(LaunchTest, StaticSharedMemory) {
  Buffer data(1024);
  OK(launch(basic("iota"), {1}, {256}, 0, nullptr, CUdeviceptr{data}, 0u, 256u));
  OK(launch(basic("reverse_static"), {1}, {256}, 0, nullptr, CUdeviceptr{data}));
  const std::vector<uint32_t> words = read_words(data, 256);
  for (uint32_t i = 0; i < 256; i++) ASSERT_EQ(words[i], 255 - i);
}

TEST_F(LaunchTest, DynamicSharedMemory) {
  constexpr uint32_t n = 12288;  // 48 KiB, the most without asking
  Buffer data(n * 4);
  OK(launch(basic("iota"), {n / 256}, {256}, 0, nullptr, CUdeviceptr{data}, 0u, n));
  OK(launch(basic("reverse_dynamic"), {1}, {256}, n * 4, nullptr, CUdeviceptr{data}, n / 256));
  const std::vector<uint32_t> words = read_words(data, n);
  for (uint32_t i = 0; i < n; i++) ASSERT_EQ(words[i], n - 1 - i);
}

TEST_F(LaunchTest, DynamicSharedMemoryOptIn) {
  const int most = attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
  if (most < 64 << 10)
    GTEST_SKIP() << "the device has " << most << " bytes of shared memory per block";
  Module module(basic_ptx());
  CUfunction function = module.function("reverse_dynamic");
  constexpr uint32_t n = 16384;
  Buffer data(n * 4);
  INVALID(launch(function, {1}, {256}, n * 4, nullptr, CUdeviceptr{data}, n / 256));
  OK(cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, n * 4));
  OK(launch(basic("iota"), {n / 256}, {256}, 0, nullptr, CUdeviceptr{data}, 0u, n));
  OK(launch(function, {1}, {256}, n * 4, nullptr, CUdeviceptr{data}, n / 256));
  EXPECT_EQ(read_words(data, n)[0], n - 1);
}

TEST_F(LaunchTest, WarpShuffleSum) {
  Buffer in(4096), out(4);
  OK(launch(basic("iota"), {4}, {256}, 0, nullptr, CUdeviceptr{in}, 1u, 1024u));
  OK(cuMemsetD32_v2(out, 0, 1));
  OK(launch(basic("warp_sum"), {4}, {256}, 0, nullptr, CUdeviceptr{in}, CUdeviceptr{out}));
  EXPECT_EQ(read_words(out, 1)[0], 1024u * 1025 / 2);
}

TEST_F(LaunchTest, WarpBallot) {
  Buffer out(8);
  OK(launch(basic("warp_ballot"), {1}, {64}, 0, nullptr, CUdeviceptr{out}, 4u));
  EXPECT_EQ(read_words(out, 2), (std::vector<uint32_t>{0x11111111, 0x11111111}));
}

TEST_F(LaunchTest, WarpButterfly) {
  Buffer data(128);
  OK(launch(basic("iota"), {1}, {32}, 0, nullptr, CUdeviceptr{data}, 0u, 32u));
  OK(launch(basic("warp_butterfly"), {1}, {32}, 0, nullptr, CUdeviceptr{data}));
  const std::vector<uint32_t> words = read_words(data, 32);
  for (uint32_t i = 0; i < 32; i++) EXPECT_EQ(words[i], i ^ 5);
}

TEST_F(LaunchTest, Atomics) {
  constexpr uint32_t n = 512;
  const std::vector<uint32_t> start = {0, 0, 0, 0xffffffff, 0xff, 0, 0, 1, 0};
  Buffer out(64), out64(8), outf(4);
  OK(cuMemcpyHtoD_v2(out, start.data(), start.size() * 4));
  OK(cuMemsetD32_v2(out64, 0, 2));
  OK(cuMemsetD32_v2(outf, 0, 1));
  OK(launch(basic("atomics"), {n / 128}, {128}, 0, nullptr, CUdeviceptr{out}, CUdeviceptr{out64},
            CUdeviceptr{outf}));
  const std::vector<uint32_t> expected = {n * (n - 1) / 2, 1, n - 1, 0, 0, 0xff, 0, 1 + 2 * n, 1};
  EXPECT_EQ(read_words(out, 9), expected);
  uint64_t sum = 0;
  float ones = 0;
  OK(cuMemcpyDtoH_v2(&sum, out64, 8));
  OK(cuMemcpyDtoH_v2(&ones, outf, 4));
  EXPECT_EQ(sum, (uint64_t{n} * (n - 1) / 2) << 30);
  EXPECT_EQ(ones, static_cast<float>(n));
}

TEST_F(LaunchTest, LocalMemory) {
  Buffer out(128);
  OK(launch(basic("local_array"), {1}, {32}, 0, nullptr, CUdeviceptr{out}, 100u));
  const std::vector<uint32_t> words = read_words(out, 32);
  for (uint32_t t = 0; t < 32; t++) {
    uint32_t sum = 0;
    for (uint32_t i = 0; i < 100; i++) {
      const uint32_t k = (i * 7 + t) % 64;
      sum += k * k + t;
    }
    ASSERT_EQ(words[t], sum) << t;
  }
}

TEST_F(LaunchTest, IntegerDivisionByZero) {
  // Undefined by the language; these are a real H200's answers.
  const int a[4] = {7, -7, 0, 100}, b[4] = {0, 0, 0, 7};
  Buffer da(16), db(16), quotient(16), remainder(16), uquotient(16);
  OK(cuMemcpyHtoD_v2(da, a, 16));
  OK(cuMemcpyHtoD_v2(db, b, 16));
  OK(launch(basic("divide"), {1}, {4}, 0, nullptr, CUdeviceptr{da}, CUdeviceptr{db},
            CUdeviceptr{quotient}, CUdeviceptr{remainder}, CUdeviceptr{uquotient}));
  EXPECT_EQ(read_words(quotient, 4), (std::vector<uint32_t>{~0u, ~0u, ~0u, 14}));
  // The remainder by zero depends on how the driver compiles it: the dividend, or all ones.
  const std::vector<uint32_t> rest = read_words(remainder, 4);
  EXPECT_TRUE(rest == (std::vector<uint32_t>{7, static_cast<uint32_t>(-7), 0, 2}) ||
              rest == (std::vector<uint32_t>{~0u, ~0u, ~0u, 2}));
  EXPECT_EQ(read_words(uquotient, 4)[3], 14u);
}

TEST_F(LaunchTest, PointersInsideMemory) {
  Buffer values(32 * 4), heads(32 * 8), out(32 * 4);
  OK(launch(basic("iota"), {1}, {32}, 0, nullptr, CUdeviceptr{values}, 500u, 32u));
  std::vector<CUdeviceptr> pointers;
  for (int i = 0; i < 32; i++) pointers.push_back(values + 4 * (31 - i));
  OK(cuMemcpyHtoD_v2(heads, pointers.data(), 32 * 8));
  OK(launch(basic("chain"), {1}, {32}, 0, nullptr, CUdeviceptr{heads}, CUdeviceptr{out}));
  const std::vector<uint32_t> words = read_words(out, 32);
  for (uint32_t i = 0; i < 32; i++) EXPECT_EQ(words[i], 500 + 31 - i);
}

struct Triple {
  uint32_t a, b, c;
};
struct Odd {
  uint8_t bytes[7];
};

TEST_F(LaunchTest, MixedParameters) {
  Buffer out(56);
  OK(launch(basic("mixed_params"), {1}, {1}, 0, nullptr, uint8_t{200}, int16_t{-3}, int{-100000},
            double{1234.0}, Triple{1, 20, 300}, Odd{{1, 2, 0, 1, 2, 0, 1}},
            static_cast<long long>(-5000000000), CUdeviceptr{out}));
  long long got[7] = {};
  OK(cuMemcpyDtoH_v2(got, out, sizeof got));
  const long long expected[7] = {200, -3, -100000, 1234, 321, 0, -5000000000};
  long long odd = 0;
  for (int digit : {1, 2, 0, 1, 2, 0, 1}) odd = odd * 3 + digit;
  for (int i = 0; i < 7; i++) EXPECT_EQ(got[i], i == 5 ? odd : expected[i]) << i;
}

TEST_F(LaunchTest, PackedParameterBuffer) {
  struct __attribute__((packed)) {
    CUdeviceptr out;
    uint32_t start, n;
  } packed;
  Buffer out(1024);
  packed = {out, 40, 256};
  size_t bytes = sizeof packed;
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
                   CU_LAUNCH_PARAM_END};
  OK(cuLaunchKernel(basic("iota"), 1, 1, 1, 256, 1, 1, 0, nullptr, nullptr, extra));
  EXPECT_EQ(read_words(out, 256)[255], 295u);
}

TEST_F(LaunchTest, BothParameterFormsAreRefused) {
  uint32_t n = 0;
  CUdeviceptr out = 0;
  void* params[] = {&out, &n, &n};
  size_t bytes = 16;
  uint8_t packed[16] = {};
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
                   CU_LAUNCH_PARAM_END};
  INVALID(cuLaunchKernel(basic("iota"), 1, 1, 1, 1, 1, 1, 0, nullptr, params, extra));
}

TEST_F(LaunchTest, MissingParametersAreRefused) {
  INVALID(cuLaunchKernel(basic("iota"), 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
}

TEST_F(LaunchTest, BigParameter) {
  struct Big {
    uint32_t words[1000];
  } big;
  for (uint32_t i = 0; i < 1000; i++) big.words[i] = i * 3;
  Buffer out(4000);
  OK(launch(basic("big_param"), {1}, {128}, 0, nullptr, big, CUdeviceptr{out}));
  const std::vector<uint32_t> words = read_words(out, 1000);
  for (uint32_t i = 0; i < 1000; i++) ASSERT_EQ(words[i], i * 3 + 1);
}

TEST_F(LaunchTest, ParametersAreCopiedAtTheCall) {
  Stream stream;
  Gate gate;
  Buffer out(1024);
  gate.block(stream);
  {
    CUdeviceptr where = out;
    uint32_t value = 33, n = 256;
    void* params[] = {&where, &value, &n};
    OK(cuLaunchKernel(basic("fill"), 1, 1, 1, 256, 1, 1, 0, stream, params, nullptr));
    where = 0;
    value = n = 0;
  }
  gate.open();
  OK(cuStreamSynchronize(stream));
  EXPECT_EQ(read_words(out, 256), std::vector<uint32_t>(256, 33));
}

TEST_F(LaunchTest, ZeroDimensionsAreRefused) {
  CUfunction function = basic("nothing");
  INVALID(cuLaunchKernel(function, 0, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
  INVALID(cuLaunchKernel(function, 1, 0, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
  INVALID(cuLaunchKernel(function, 1, 1, 0, 1, 1, 1, 0, nullptr, nullptr, nullptr));
  INVALID(cuLaunchKernel(function, 1, 1, 1, 0, 1, 1, 0, nullptr, nullptr, nullptr));
  INVALID(cuLaunchKernel(function, 1, 1, 1, 1, 0, 1, 0, nullptr, nullptr, nullptr));
  INVALID(cuLaunchKernel(function, 1, 1, 1, 1, 1, 0, 0, nullptr, nullptr, nullptr));
}

TEST_F(LaunchTest, TooManyThreadsAreRefusedAndNothingSticks) {
  CUfunction function = basic("nothing");
  INVALID(cuLaunchKernel(function, 1, 1, 1, 2048, 1, 1, 0, nullptr, nullptr, nullptr));
  INVALID(cuLaunchKernel(function, 1, 1, 1, 64, 32, 1, 0, nullptr, nullptr, nullptr));
  INVALID(cuLaunchKernel(function, 1, 1, 1, 1, 1, 65, 0, nullptr, nullptr, nullptr));
  OK(cuLaunchKernel(function, 1, 1, 1, 1024, 1, 1, 0, nullptr, nullptr, nullptr));
  OK(cuCtxSynchronize());
}

TEST_F(LaunchTest, TooLargeGridsAreRefused) {
  CUfunction function = basic("nothing");
  INVALID(cuLaunchKernel(function, 1, 65536, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
  INVALID(cuLaunchKernel(function, 1, 1, 65536, 1, 1, 1, 0, nullptr, nullptr, nullptr));
  INVALID(cuLaunchKernel(function, 0x80000000u, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
}

TEST_F(LaunchTest, TooMuchSharedMemoryIsRefused) {
  INVALID(cuLaunchKernel(basic("nothing"), 1, 1, 1, 1, 1, 1, 49153, nullptr, nullptr, nullptr));
  INVALID(cuLaunchKernel(basic("nothing"), 1, 1, 1, 1, 1, 1, 16 << 20, nullptr, nullptr, nullptr));
}

TEST_F(LaunchTest, LaunchBoundsAreEnforced) {
  Buffer out(1024);
  OK(launch(basic("bounded"), {1}, {128}, 0, nullptr, CUdeviceptr{out}));
  INVALID(launch(basic("bounded"), {1}, {256}, 0, nullptr, CUdeviceptr{out}));  // .maxntid
  OK(cuCtxSynchronize());
}

TEST_F(LaunchTest, NullFunction) {
  BAD_HANDLE(cuLaunchKernel(nullptr, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
}

TEST_F(LaunchTest, LargeGrid) {
  Buffer out(4);
  OK(cuMemsetD32_v2(out, 0, 1));
  Buffer bins(64), in(20000);
  OK(cuMemsetD32_v2(bins, 0, 16));
  std::vector<uint8_t> bytes = pattern_bytes(20000, 4);
  OK(cuMemcpyHtoD_v2(in, bytes.data(), bytes.size()));
  OK(launch(basic("histogram"), {200}, {32}, 0, nullptr, CUdeviceptr{in}, 20000u,
            CUdeviceptr{bins}));
  std::vector<uint32_t> expected(16);
  for (uint8_t byte : bytes) expected[byte % 16]++;
  EXPECT_EQ(read_words(bins, 16), expected);
}

TEST_F(LaunchTest, ExWithoutAttributes) {
  Buffer out(1024);
  CUlaunchConfig config = {};
  config.gridDimX = config.gridDimY = config.gridDimZ = 1;
  config.blockDimX = 256;
  config.blockDimY = config.blockDimZ = 1;
  CUdeviceptr where = out;
  uint32_t start = 9, n = 256;
  void* params[] = {&where, &start, &n};
  OK(cuLaunchKernelEx(&config, basic("iota"), params, nullptr));
  EXPECT_EQ(read_words(out, 256)[0], 9u);
  INVALID(cuLaunchKernelEx(nullptr, basic("iota"), params, nullptr));
}

TEST_F(LaunchTest, ExWithAttributes) {
  Buffer out(1024);
  Stream stream;
  CUlaunchAttribute attributes[3] = {};
  attributes[0].id = CU_LAUNCH_ATTRIBUTE_IGNORE;
  attributes[1].id = CU_LAUNCH_ATTRIBUTE_PRIORITY;
  attributes[1].value.priority = 0;
  attributes[2].id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
  attributes[2].value.cooperative = 0;
  CUlaunchConfig config = {};
  config.gridDimX = config.gridDimY = config.gridDimZ = 1;
  config.blockDimX = 256;
  config.blockDimY = config.blockDimZ = 1;
  config.hStream = stream;
  config.attrs = attributes;
  config.numAttrs = 3;
  CUdeviceptr where = out;
  uint32_t start = 90, n = 256;
  void* params[] = {&where, &start, &n};
  OK(cuLaunchKernelEx(&config, basic("iota"), params, nullptr));
  OK(cuStreamSynchronize(stream));
  EXPECT_EQ(read_words(out, 256)[255], 345u);
}

CUresult launch_clusters(CUfunction function, unsigned size, unsigned blocks) {
  CUlaunchAttribute attribute = {};
  attribute.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
  attribute.value.clusterDim = {size, 1, 1};
  CUlaunchConfig config = {};
  config.gridDimX = blocks;
  config.gridDimY = config.gridDimZ = 1;
  config.blockDimX = 32;
  config.blockDimY = config.blockDimZ = 1;
  config.attrs = &attribute;
  config.numAttrs = 1;
  return cuLaunchKernelEx(&config, function, nullptr, nullptr);
}

// A launch reports at once that its clusters are impossible. Later work is not affected.
TEST_F(LaunchTest, ClusterSizesAreRefusedAtTheCall) {
  Module module(basic_ptx());
  CUfunction function = module.function("nothing");
  OK(launch_clusters(function, 1, 64));
  EXPECT_CU(launch_clusters(function, 16, 64), CUDA_ERROR_INVALID_CLUSTER_SIZE);
  EXPECT_CU(launch_clusters(function, 8, 63), CUDA_ERROR_INVALID_CLUSTER_SIZE);
  const bool clusters = attribute(CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH) != 0;
  EXPECT_CU(launch_clusters(function, 2, 64), clusters ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED);
  OK(cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1));
  EXPECT_CU(launch_clusters(function, 16, 63), CUDA_ERROR_INVALID_CLUSTER_SIZE);
  OK(cuCtxSynchronize());
}

TEST_F(LaunchTest, CooperativeAttributeIsCheckedAtTheCall) {
  REQUIRE_ATTRIBUTE(CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH);
  CUlaunchAttribute attribute = {};
  attribute.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
  attribute.value.cooperative = 1;
  CUlaunchConfig config = {};
  config.gridDimX = 1000000;
  config.gridDimY = config.gridDimZ = 1;
  config.blockDimX = 1024;
  config.blockDimY = config.blockDimZ = 1;
  config.attrs = &attribute;
  config.numAttrs = 1;
  EXPECT_CU(cuLaunchKernelEx(&config, basic("nothing"), nullptr, nullptr),
            CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
  OK(cuCtxSynchronize());
}

TEST_F(LaunchTest, CooperativeGridBarrier) {
  REQUIRE_ATTRIBUTE(CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH);
  // Never more blocks than multiprocessors, so that all fit on any device.
  const uint32_t blocks = std::min(4, attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT));
  Buffer arrived(4), values(64), sums(64);
  OK(cuMemsetD32_v2(arrived, 0, 1));
  CUdeviceptr a = arrived, v = values, s = sums;
  void* params[] = {&a, &v, &s};
  OK(cuLaunchCooperativeKernel(basic("grid_barrier"), blocks, 1, 1, 32, 1, 1, 0, nullptr, params));
  OK(cuCtxSynchronize());
  EXPECT_EQ(read_words(sums, blocks), std::vector<uint32_t>(blocks, blocks * (blocks + 1) / 2));
}

TEST_F(LaunchTest, CooperativeGridTooLarge) {
  REQUIRE_ATTRIBUTE(CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH);
  EXPECT_CU(
      cuLaunchCooperativeKernel(basic("nothing"), 1000000, 1, 1, 1024, 1, 1, 0, nullptr, nullptr),
      CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
  OK(cuCtxSynchronize());
}

TEST_F(LaunchTest, ManyLaunches) {
  Buffer data(128);
  Stream stream;
  OK(cuMemsetD32Async(data, 0, 32, stream));
  for (int i = 0; i < 2000; i++) {
    ASSERT_EQ(launch(basic("affine"), {1}, {32}, 0, stream, CUdeviceptr{data}, 1u, 1u, 32u),
              CUDA_SUCCESS);
  }
  OK(cuStreamSynchronize(stream));
  EXPECT_EQ(read_words(data, 32), std::vector<uint32_t>(32, 2000));
}

// The next launch may use what one launch frees: together they need more than the heap of 8 MiB.
TEST_F(LaunchTest, DeviceHeap) {
  Buffer out(512 * 4);
  for (int i = 0; i < 80; i++) {
    OK(cuMemsetD32_v2(out, 0, 512));
    OK(launch(basic("heap_round_trip"), {4}, {128}, 0, nullptr, CUdeviceptr{out}));
    const std::vector<uint32_t> words = read_words(out, 512);
    for (uint32_t t = 0; t < 512; t++) ASSERT_EQ(words[t], 64 * t + 2016) << i;
  }
}

}  // namespace
}  // namespace tendril::conformance
