// SPDX-License-Identifier: Apache-2.0
// Stream-ordered allocation and memory pools.
#include "tests/conformance/harness.h"

namespace tendril::conformance {
namespace {

class PoolTest : public CudaTest {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    REQUIRE_ATTRIBUTE(CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED);
  }
  static CUmemPoolProps properties() {
    CUmemPoolProps props = {};
    props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    props.location = {CU_MEM_LOCATION_TYPE_DEVICE, device()};
    return props;
  }
  static uint64_t get(CUmemoryPool pool, CUmemPool_attribute which) {
    uint64_t value = ~0ull;
    EXPECT_EQ(cuMemPoolGetAttribute(pool, which, &value), CUDA_SUCCESS) << which;
    return value;
  }
};

TEST_F(PoolTest, AllocUseFree) {
  Stream stream;
  CUdeviceptr pointer = 0;
  OK(cuMemAllocAsync(&pointer, 1 << 20, stream));
  ASSERT_NE(pointer, 0u);
  OK(cuMemsetD32Async(pointer, 3, 1 << 18, stream));
  OK(launch(basic("affine"), {1024}, {256}, 0, stream, pointer, 5u, 1u, 1u << 18));
  uint32_t last = 0;
  OK(cuMemcpyDtoHAsync_v2(&last, pointer + (1 << 20) - 4, 4, stream));
  OK(cuMemFreeAsync(pointer, stream));
  OK(cuStreamSynchronize(stream));
  EXPECT_EQ(last, 16u);
}

TEST_F(PoolTest, ManyAllocationsKeepTheirContents) {
  Stream stream;
  std::vector<CUdeviceptr> pointers(64);
  for (size_t i = 0; i < pointers.size(); i++) {
    ASSERT_EQ(cuMemAllocAsync(&pointers[i], 1000 + 100 * i, stream), CUDA_SUCCESS);
    ASSERT_EQ(pointers[i] % 256, 0u);
    ASSERT_EQ(cuMemsetD8Async(pointers[i], static_cast<uint8_t>(i), 1000 + 100 * i, stream),
              CUDA_SUCCESS);
  }
  for (size_t i = 0; i < pointers.size(); i++) {
    uint8_t first = 0, last = 0;
    ASSERT_EQ(cuMemcpyDtoHAsync_v2(&first, pointers[i], 1, stream), CUDA_SUCCESS);
    ASSERT_EQ(cuMemcpyDtoHAsync_v2(&last, pointers[i] + 999 + 100 * i, 1, stream), CUDA_SUCCESS);
    ASSERT_EQ(cuMemFreeAsync(pointers[i], stream), CUDA_SUCCESS);
    ASSERT_EQ(cuStreamSynchronize(stream), CUDA_SUCCESS);
    EXPECT_EQ(first, static_cast<uint8_t>(i));
    EXPECT_EQ(last, static_cast<uint8_t>(i));
  }
}

TEST_F(PoolTest, AllocFreeLoop) {
  Stream stream;
  for (uint32_t i = 0; i < 200; i++) {
    CUdeviceptr pointer = 0;
    ASSERT_EQ(cuMemAllocAsync(&pointer, 65536, stream), CUDA_SUCCESS);
    ASSERT_EQ(cuMemsetD32Async(pointer, i, 16384, stream), CUDA_SUCCESS);
    ASSERT_EQ(cuMemFreeAsync(pointer, stream), CUDA_SUCCESS);
  }
  OK(cuStreamSynchronize(stream));
}

TEST_F(PoolTest, SynchronousFreeOfAsyncMemory) {
  Stream stream;
  CUdeviceptr pointer = 0;
  OK(cuMemAllocAsync(&pointer, 4096, stream));
  OK(cuStreamSynchronize(stream));
  OK(cuMemFree_v2(pointer));
}

TEST_F(PoolTest, AsyncFreeOfSynchronousMemory) {
  Stream stream;
  CUdeviceptr pointer = 0;
  OK(cuMemAlloc_v2(&pointer, 4096));
  // The documentation speaks of stream-ordered allocations only. Drivers may accept this or refuse.
  const CUresult result = cuMemFreeAsync(pointer, stream);
  EXPECT_TRUE(
      check("cuMemFreeAsync(of cuMemAlloc)", result, {CUDA_SUCCESS, CUDA_ERROR_INVALID_VALUE}));
  OK(cuStreamSynchronize(stream));
  if (result != CUDA_SUCCESS) {
    OK(cuMemFree_v2(pointer));
  }
}

TEST_F(PoolTest, NothingIsFreedAsWell) {
  Stream stream;
  OK(cuMemFreeAsync(0, stream));
}

TEST_F(PoolTest, FreeInAnotherStream) {
  Stream first, second;
  Event event;
  CUdeviceptr pointer = 0;
  OK(cuMemAllocAsync(&pointer, 4096, first));
  OK(cuMemsetD32Async(pointer, 7, 1024, first));
  OK(cuEventRecord(event, first));
  OK(cuStreamWaitEvent(second, event, 0));
  uint32_t word = 0;
  OK(cuMemcpyDtoHAsync_v2(&word, pointer, 4, second));
  OK(cuMemFreeAsync(pointer, second));
  OK(cuStreamSynchronize(second));
  EXPECT_EQ(word, 7u);
}

TEST_F(PoolTest, AllocErrors) {
  Stream stream;
  CUdeviceptr pointer = 0;
  INVALID(cuMemAllocAsync(nullptr, 4096, stream));
  EXPECT_CU(cuMemAllocAsync(&pointer, size_t{1} << 50, stream), CUDA_ERROR_OUT_OF_MEMORY);
  OK(cuStreamSynchronize(stream));
}

TEST_F(PoolTest, DefaultAndCurrentPool) {
  CUmemoryPool standard = nullptr, current = nullptr;
  OK(cuDeviceGetDefaultMemPool(&standard, device()));
  OK(cuDeviceGetMemPool(&current, device()));
  EXPECT_NE(standard, nullptr);
  EXPECT_EQ(standard, current);
  INVALID(cuDeviceGetDefaultMemPool(nullptr, device()));
  EXPECT_CU(cuDeviceGetDefaultMemPool(&standard, 9999), CUDA_ERROR_INVALID_DEVICE);
}

TEST_F(PoolTest, SetCurrentPool) {
  CUmemoryPool standard = nullptr, made = nullptr, current = nullptr;
  const CUmemPoolProps props = properties();
  OK(cuDeviceGetDefaultMemPool(&standard, device()));
  MUST(cuMemPoolCreate(&made, &props));
  OK(cuDeviceSetMemPool(device(), made));
  OK(cuDeviceGetMemPool(&current, device()));
  EXPECT_EQ(current, made);
  Stream stream;
  CUdeviceptr pointer = 0;
  OK(cuMemAllocAsync(&pointer, 4096, stream));
  EXPECT_GE(get(made, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 4096u);
  OK(cuMemFreeAsync(pointer, stream));
  OK(cuStreamSynchronize(stream));
  OK(cuDeviceSetMemPool(device(), standard));
  OK(cuMemPoolDestroy(made));
}

TEST_F(PoolTest, AllocFromPool) {
  CUmemoryPool pool = nullptr;
  const CUmemPoolProps props = properties();
  MUST(cuMemPoolCreate(&pool, &props));
  Stream stream;
  CUdeviceptr pointer = 0;
  OK(cuMemAllocFromPoolAsync(&pointer, 1 << 16, pool, stream));
  OK(cuMemsetD32Async(pointer, 9, 1 << 14, stream));
  CUmemoryPool owner = nullptr;
  OK(cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, pointer));
  EXPECT_EQ(owner, pool);
  OK(cuStreamSynchronize(stream));
  EXPECT_EQ(read_words(pointer, 1)[0], 9u);
  OK(cuMemFreeAsync(pointer, stream));
  OK(cuStreamSynchronize(stream));
  OK(cuMemPoolDestroy(pool));
}

TEST_F(PoolTest, CreateErrors) {
  CUmemoryPool pool = nullptr;
  const CUmemPoolProps props = properties();
  INVALID(cuMemPoolCreate(nullptr, &props));
  INVALID(cuMemPoolCreate(&pool, nullptr));
  INVALID(cuMemPoolDestroy(nullptr));
}

TEST_F(PoolTest, ReleaseThreshold) {
  CUmemoryPool pool = nullptr;
  const CUmemPoolProps props = properties();
  MUST(cuMemPoolCreate(&pool, &props));
  EXPECT_EQ(get(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD), 0u);
  uint64_t threshold = 123 << 20;
  OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
  EXPECT_EQ(get(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD), threshold);
  OK(cuMemPoolDestroy(pool));
}

TEST_F(PoolTest, ReuseFlags) {
  CUmemoryPool pool = nullptr;
  const CUmemPoolProps props = properties();
  MUST(cuMemPoolCreate(&pool, &props));
  int value = -1, off = 0;
  OK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES, &value));
  EXPECT_EQ(value, 1);
  OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, &off));
  OK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, &value));
  EXPECT_EQ(value, 0);
  OK(cuMemPoolDestroy(pool));
}

TEST_F(PoolTest, UsageCountersAndTrim) {
  CUmemoryPool pool = nullptr;
  const CUmemPoolProps props = properties();
  MUST(cuMemPoolCreate(&pool, &props));
  uint64_t keep_all = ~0ull;
  OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep_all));
  Stream stream;
  CUdeviceptr pointer = 0;
  OK(cuMemAllocFromPoolAsync(&pointer, 4 << 20, pool, stream));
  OK(cuStreamSynchronize(stream));
  EXPECT_EQ(get(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 4u << 20);
  EXPECT_GE(get(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 4u << 20);
  OK(cuMemFreeAsync(pointer, stream));
  OK(cuStreamSynchronize(stream));
  EXPECT_EQ(get(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 0u);
  EXPECT_EQ(get(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH), 4u << 20);
  OK(cuMemPoolTrimTo(pool, 0));
  EXPECT_EQ(get(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 0u);
  uint64_t zero = 0;
  OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &zero));
  EXPECT_EQ(get(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH), 0u);
  OK(cuMemPoolDestroy(pool));
}

TEST_F(PoolTest, AttributeErrors) {
  CUmemoryPool pool = nullptr;
  OK(cuDeviceGetDefaultMemPool(&pool, device()));
  uint64_t value = 0;
  INVALID(cuMemPoolGetAttribute(pool, static_cast<CUmemPool_attribute>(1000), &value));
  INVALID(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, nullptr));
}

TEST_F(PoolTest, AccessFromItsOwnDevice) {
  CUmemoryPool pool = nullptr;
  OK(cuDeviceGetDefaultMemPool(&pool, device()));
  auto flags = static_cast<CUmemAccess_flags>(77);
  CUmemLocation location = {CU_MEM_LOCATION_TYPE_DEVICE, device()};
  OK(cuMemPoolGetAccess(&flags, pool, &location));
  EXPECT_EQ(flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
}

// A stream's order holds for all device memory. Only allocation from pools is asynchronous.
TEST_F(PoolTest, FreesOrdinaryMemoryInTheOrderOfAStream) {
  CUdeviceptr memory = 0;
  Stream stream;
  MUST(cuMemAlloc_v2(&memory, 1024));
  OK(cuMemsetD8Async(memory, 1, 1024, stream));
  OK(cuMemFreeAsync(memory, stream));
  OK(cuStreamSynchronize(stream));
  INVALID(cuMemFreeAsync(memory, stream));
}

// What a stream allocates after a free may be the same memory. Its old use comes first.
TEST_F(PoolTest, MemoryThatAStreamUsesAgainKeepsItsOrder) {
  constexpr size_t kWords = 1 << 14;
  Stream stream;
  Pinned seen(64 * sizeof(uint32_t));
  Gate gate;
  gate.block(stream);
  for (uint32_t i = 0; i < 64; i++) {
    CUdeviceptr one = 0, other = 0;
    ASSERT_EQ(cuMemAllocAsync(&one, kWords * 4, stream), CUDA_SUCCESS);
    ASSERT_EQ(cuMemAllocAsync(&other, 2 * kWords * 4, stream), CUDA_SUCCESS);
    ASSERT_TRUE(one + kWords * 4 <= other || other + 2 * kWords * 4 <= one) << "they overlap";
    ASSERT_EQ(cuMemsetD32Async(one, i, kWords, stream), CUDA_SUCCESS);
    ASSERT_EQ(cuMemsetD32Async(other, ~i, 2 * kWords, stream), CUDA_SUCCESS);
    ASSERT_EQ(cuMemFreeAsync(other, stream), CUDA_SUCCESS);
    ASSERT_EQ(launch(basic("affine"), {kWords / 256}, {256}, 0, stream, one, 3u, 1u,
                     static_cast<uint32_t>(kWords)),
              CUDA_SUCCESS);
    ASSERT_EQ(cuMemcpyDtoHAsync_v2(seen.words() + i, one + (kWords - 1) * 4, 4, stream),
              CUDA_SUCCESS);
    ASSERT_EQ(cuMemFreeAsync(one, stream), CUDA_SUCCESS);
  }
  gate.open();
  OK(cuStreamSynchronize(stream));
  for (uint32_t i = 0; i < 64; i++) EXPECT_EQ(seen.words()[i], 3 * i + 1) << i;
}

// Freed in one stream and allocated in another, with an event between them or with nothing.
TEST_F(PoolTest, FreedHereAllocatedThere) {
  constexpr size_t kWords = 1 << 16;
  Stream first, second;
  Pinned seen(32 * sizeof(uint32_t));
  for (uint32_t i = 0; i < 16; i++) {
    Event freed;
    CUdeviceptr one = 0, other = 0;
    ASSERT_EQ(cuMemAllocAsync(&one, kWords * 4, first), CUDA_SUCCESS);
    ASSERT_EQ(cuMemsetD32Async(one, i, kWords, first), CUDA_SUCCESS);
    ASSERT_EQ(cuMemcpyDtoHAsync_v2(seen.words() + 2 * i, one + (kWords - 1) * 4, 4, first),
              CUDA_SUCCESS);
    ASSERT_EQ(cuMemFreeAsync(one, first), CUDA_SUCCESS);
    if (i % 2 == 0) {
      ASSERT_EQ(cuEventRecord(freed, first), CUDA_SUCCESS);
      ASSERT_EQ(cuStreamWaitEvent(second, freed, 0), CUDA_SUCCESS);
    }
    ASSERT_EQ(cuMemAllocAsync(&other, kWords * 4, second), CUDA_SUCCESS);
    ASSERT_EQ(cuMemsetD32Async(other, 1000 + i, kWords, second), CUDA_SUCCESS);
    ASSERT_EQ(cuMemcpyDtoHAsync_v2(seen.words() + 2 * i + 1, other, 4, second), CUDA_SUCCESS);
    ASSERT_EQ(cuMemFreeAsync(other, second), CUDA_SUCCESS);
  }
  OK(cuCtxSynchronize());
  for (uint32_t i = 0; i < 16; i++) {
    EXPECT_EQ(seen.words()[2 * i], i);
    EXPECT_EQ(seen.words()[2 * i + 1], 1000 + i);
  }
}

TEST_F(PoolTest, TwiceFreedIsAnError) {
  Stream stream;
  CUdeviceptr pointer = 0;
  OK(cuMemAllocAsync(&pointer, 4096, stream));
  OK(cuMemFreeAsync(pointer, stream));
  INVALID(cuMemFreeAsync(pointer, stream));
  OK(cuMemAllocAsync(&pointer, 4096, stream));
  OK(cuMemFreeAsync(pointer, stream));
  OK(cuStreamSynchronize(stream));
  INVALID(cuMemFreeAsync(pointer, stream));
  INVALID(cuMemFree_v2(pointer));
}

// However freed memory is kept for the next allocation, the pool's own count shows what is in use.
TEST_F(PoolTest, AccountsAreCurrent) {
  CUmemoryPool pool = nullptr;
  const CUmemPoolProps props = properties();
  MUST(cuMemPoolCreate(&pool, &props));
  for (int round = 0; round < 3; round++) {
    CUstream stream = nullptr;
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CUdeviceptr pointers[3] = {};
    for (CUdeviceptr& pointer : pointers) {
      OK(cuMemAllocFromPoolAsync(&pointer, 1 << 20, pool, stream));
    }
    OK(cuMemFreeAsync(pointers[0], stream));
    OK(cuMemFreeAsync(pointers[1], stream));
    OK(cuMemAllocFromPoolAsync(&pointers[0], 1 << 20, pool, stream));
    OK(cuStreamSynchronize(stream));
    EXPECT_EQ(get(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 2u << 20);
    OK(cuMemFreeAsync(pointers[2], stream));
    OK(cuMemFreeAsync(pointers[0], stream));
    if (round == 0) {
      OK(cuStreamSynchronize(stream));
    }
    OK(cuStreamDestroy_v2(stream));  // what it had to free is freed nevertheless
    OK(cuCtxSynchronize());
    EXPECT_EQ(get(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 0u);
    OK(cuMemPoolTrimTo(pool, 0));
    EXPECT_EQ(get(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 0u);
  }
  OK(cuMemPoolDestroy(pool));
}

// A node's memory is not memory that the stream, or the default stream, freed before the capture.
// Such a free is not part of the capture either.
TEST_F(PoolTest, WhatWasFreedBeforeACaptureIsNotPartOfIt) {
  Stream stream(CU_STREAM_DEFAULT);
  CUdeviceptr before[2] = {}, node = 0;
  for (CUdeviceptr& pointer : before) {
    OK(cuMemAllocAsync(&pointer, 1 << 16, stream));
    OK(cuMemsetD32Async(pointer, 1, 1 << 14, stream));
  }
  OK(cuStreamSynchronize(stream));
  OK(cuMemFreeAsync(before[0], stream));
  OK(cuMemFreeAsync(before[1], nullptr));
  OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  OK(cuMemAllocAsync(&node, 1 << 16, stream));
  OK(cuMemsetD32Async(node, 2, 1 << 14, stream));
  OK(cuMemFreeAsync(node, stream));
  CUgraph graph = nullptr;
  OK(cuStreamEndCapture(stream, &graph));
  size_t nodes = 0;
  OK(cuGraphGetNodes(graph, nullptr, &nodes));
  EXPECT_EQ(nodes, 3u);
  CUgraphExec exec = nullptr;
  OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
  OK(cuGraphLaunch(exec, stream));
  OK(cuStreamSynchronize(stream));
  OK(cuGraphExecDestroy(exec));
  OK(cuGraphDestroy(graph));
  OK(cuDeviceGraphMemTrim(device()));
}

// A block that is freed while another stream is under capture is freed at once and may be allocated
// again.
TEST_F(PoolTest, FreesBesideACapture) {
  Stream captured, stream;
  CUdeviceptr pointer = 0, again = 0;
  OK(cuMemAllocAsync(&pointer, 1 << 16, stream));
  OK(cuStreamBeginCapture_v2(captured, CU_STREAM_CAPTURE_MODE_RELAXED));
  OK(cuMemFreeAsync(pointer, stream));
  OK(cuMemAllocAsync(&again, 1 << 16, stream));
  OK(cuMemsetD32Async(again, 5, 1 << 14, stream));
  CUgraph graph = nullptr;
  OK(cuStreamEndCapture(captured, &graph));
  OK(cuStreamSynchronize(stream));
  EXPECT_EQ(read_words(again, 1)[0], 5u);
  OK(cuMemFreeAsync(again, stream));
  OK(cuStreamSynchronize(stream));
  OK(cuGraphDestroy(graph));
}

// cuda-python's tests say that it succeeds. The address was not measured.
TEST_F(PoolTest, NoBytes) {
  Stream stream;
  CUdeviceptr pointer = 0;
  const auto end = [&] {
    if (pointer != 0) {
      OK(cuMemFreeAsync(pointer, stream));
    }
    pointer = 0;
  };
  EXPECT_CU(cuMemAllocAsync(&pointer, 0, stream), CUDA_SUCCESS, CUDA_ERROR_INVALID_VALUE);
  end();
  CUmemoryPool pool = nullptr;
  OK(cuDeviceGetDefaultMemPool(&pool, device()));
  EXPECT_CU(cuMemAllocFromPoolAsync(&pointer, 0, pool, stream), CUDA_SUCCESS,
            CUDA_ERROR_INVALID_VALUE);
  end();
  CUgraph graph = nullptr;
  OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  EXPECT_CU(cuMemAllocAsync(&pointer, 0, stream), CUDA_SUCCESS, CUDA_ERROR_INVALID_VALUE);
  end();
  OK(cuStreamEndCapture(stream, &graph));
  OK(cuGraphDestroy(graph));
  OK(cuMemAllocAsync(&pointer, 4096, stream));
  end();
  OK(cuStreamSynchronize(stream));
}

}  // namespace
}  // namespace tendril::conformance
