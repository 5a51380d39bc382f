// SPDX-License-Identifier: Apache-2.0
// Batches: lists of shaped copies in one call, and lists of hints for managed memory.
#include "tests/conformance/harness.h"

namespace tendril::conformance {
namespace {

class BatchCopyTest : public CudaTest {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    int version = 0;
    ASSERT_EQ(cuDriverGetVersion(&version), CUDA_SUCCESS);
    if (version < 13000) GTEST_SKIP() << "the driver is older than CUDA 13";
  }
  static CUmemcpy3DOperand pointer(uint64_t at, size_t row = 0, size_t layer = 0) {
    CUmemcpy3DOperand operand = {};
    operand.type = CU_MEMCPY_OPERAND_TYPE_POINTER;
    operand.op.ptr.ptr = at;
    operand.op.ptr.rowLength = row;
    operand.op.ptr.layerHeight = layer;
    return operand;
  }
};

TEST_F(BatchCopyTest, RowsOfPointers) {
  Stream stream(CU_STREAM_DEFAULT);
  Buffer data(64 * 64), other(32 * 32);
  std::vector<uint8_t> host = pattern_bytes(64 * 64, 3);
  OK(cuMemcpyHtoD_v2(data, host.data(), host.size()));
  CUDA_MEMCPY3D_BATCH_OP ops[2] = {};
  for (unsigned i = 0; i < 2; i++) {  // two halves of a 32 x 32 corner
    ops[i].src = pointer(data + i * 16 * 64, 64, 64);
    ops[i].dst = pointer(other + i * 16 * 32, 32, 32);
    ops[i].extent = {32, 16, 1};
    ops[i].srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
  }
  OK(cuMemcpy3DBatchAsync_v2(2, ops, 0, stream));
  OK(cuStreamSynchronize(stream));
  const std::vector<uint8_t> got = read_bytes(other, 32 * 32);
  for (size_t y = 0; y < 32; y++)
    for (size_t x = 0; x < 32; x++) ASSERT_EQ(got[y * 32 + x], host[y * 64 + x]) << x << "," << y;
}

TEST_F(BatchCopyTest, ArraysCountInElements) {
  Stream stream(CU_STREAM_DEFAULT);
  CUDA_ARRAY_DESCRIPTOR descriptor = {16, 8, CU_AD_FORMAT_FLOAT, 1};
  CUarray array = nullptr;
  MUST(cuArrayCreate_v2(&array, &descriptor));
  Buffer data(16 * 8 * 4), back(4 * 2 * 4);
  const std::vector<uint8_t> bytes = pattern_bytes(data.bytes(), 5);
  OK(cuMemcpyHtoD_v2(data, bytes.data(), bytes.size()));
  CUDA_MEMCPY3D_BATCH_OP in = {}, out = {};
  in.src = pointer(data, 16, 8);
  in.dst.type = CU_MEMCPY_OPERAND_TYPE_ARRAY;
  in.dst.op.array.array = array;
  in.extent = {16, 8, 1};
  in.srcAccessOrder = out.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
  out.src = in.dst;
  out.src.op.array.offset = {3, 5, 0};
  out.dst = pointer(back, 4, 2);
  out.extent = {4, 2, 1};
  OK(cuMemcpy3DBatchAsync_v2(1, &in, 0, stream));
  OK(cuMemcpy3DBatchAsync_v2(1, &out, 0, stream));
  OK(cuStreamSynchronize(stream));
  const std::vector<uint8_t> got = read_bytes(back, back.bytes());
  for (size_t y = 0; y < 2; y++)
    for (size_t i = 0; i < 16; i++) ASSERT_EQ(got[y * 16 + i], bytes[(5 + y) * 64 + 12 + i]);
  OK(cuArrayDestroy(array));
}

TEST_F(BatchCopyTest, Errors) {
  Stream stream(CU_STREAM_DEFAULT);
  CUDA_MEMCPY3D_BATCH_OP op = {};
  INVALID(cuMemcpy3DBatchAsync_v2(0, &op, 0, stream));
  INVALID(cuMemcpy3DBatchAsync_v2(1, nullptr, 0, stream));
}

TEST_F(BatchCopyTest, HintsForManagedMemory) {
  REQUIRE_ATTRIBUTE(CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY);
  Stream stream(CU_STREAM_DEFAULT);
  CUdeviceptr memory = 0;
  MUST(cuMemAllocManaged(&memory, 8192, CU_MEM_ATTACH_GLOBAL));
  size_t bytes = 8192, first = 0;
  CUmemLocation here = {CU_MEM_LOCATION_TYPE_DEVICE, device()};
  // A device without concurrent access to managed memory cannot prefetch.
  EXPECT_CU(cuMemPrefetchBatchAsync(&memory, &bytes, 1, &here, &first, 1, 0, stream), CUDA_SUCCESS,
            CUDA_ERROR_INVALID_DEVICE);
  INVALID(cuMemPrefetchBatchAsync(&memory, &bytes, 1, nullptr, &first, 1, 0, stream));
  OK(cuStreamSynchronize(stream));
  OK(cuMemFree_v2(memory));
}

}  // namespace
}  // namespace tendril::conformance
