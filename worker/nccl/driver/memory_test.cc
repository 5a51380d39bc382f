// SPDX-License-Identifier: Apache-2.0
// What NCCL takes is charged: by the functions that NCCL would get, on the software GPU.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <thread>
#include <vector>

#include "worker/cuda/testing/driver.h"
#include "worker/nccl/driver/calls.h"

namespace tendril::worker::nccl {
namespace {

constexpr uint64_t kMiB = 1u << 20, kQuota = 100 * kMiB, kContext = kMiB;

wire::Assignment assignment() {
  wire::Assignment made{};
  made.slice_count = 2;
  for (uint32_t i = 0; i < 2; ++i) made.slices[i] = {i, 500'000, kQuota, kContext};
  return made;
}

class NcclMemory : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_NE(driver_, nullptr);
    for (int device = 0; device < 2; ++device)
      ASSERT_EQ(driver_->cuDevicePrimaryCtxRetain(&contexts_[device], device), CUDA_SUCCESS);
#define TENDRIL_TEST_FORWARD(symbol, result, arguments, names) nccl_.symbol = driver_->symbol;
    TENDRIL_CUDA_FUNCTIONS(TENDRIL_TEST_FORWARD)
#undef TENDRIL_TEST_FORWARD
    charge_calls(&nccl_, &memory_, STDERR_FILENO);
    ASSERT_EQ(nccl_.cuCtxSetCurrent(contexts_[0]), CUDA_SUCCESS);
  }
  void TearDown() override {
    for (int device = 0; device < 2; ++device) driver_->cuDevicePrimaryCtxReset_v2(device);
  }
  uint64_t used(uint32_t slot = 0) { return program_.used(slot); }
  template <typename Function>
  Function* find(const char* name, int version = CUDA_VERSION, uint64_t flags = 0) {
    void* found = nullptr;
    CUdriverProcAddressQueryResult status;
    nccl_.cuGetProcAddress_v2(name, &found, version, flags, &status);
    return reinterpret_cast<Function*>(found);
  }

  const std::unique_ptr<gpu::Driver> driver_ = open_test_driver();
  wire::AccountingPage page_{};
  Charge program_{assignment(), &page_};
  HostUse host_{8 * kMiB};
  Memory memory_{driver_.get(), program_, &host_, {0, 1}};
  gpu::DriverTable nccl_;
  CUcontext contexts_[2] = {};
};

TEST_F(NcclMemory, AllocationsAreChargedAndRefusedBeyondTheQuota) {
  CUdeviceptr first = 0, second = 0, third = 0;
  ASSERT_EQ(nccl_.cuMemAlloc_v2(&first, 60 * kMiB), CUDA_SUCCESS);
  EXPECT_EQ(used(), 60 * kMiB);
  EXPECT_FALSE(memory_.had_no_room());
  EXPECT_EQ(nccl_.cuMemAlloc_v2(&second, 41 * kMiB), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(used(), 60 * kMiB);
  EXPECT_TRUE(memory_.had_no_room());
  EXPECT_FALSE(memory_.had_no_room());
  // The program's own memory counts, and what NCCL has the program cannot get.
  EXPECT_FALSE(program_.take(0, 50 * kMiB));
  EXPECT_TRUE(program_.take(0, 30 * kMiB));
  EXPECT_EQ(nccl_.cuMemAlloc_v2(&second, 20 * kMiB), CUDA_ERROR_OUT_OF_MEMORY);
  ASSERT_EQ(nccl_.cuCtxSetCurrent(contexts_[1]), CUDA_SUCCESS);
  ASSERT_EQ(nccl_.cuMemAlloc_v2(&third, 20 * kMiB), CUDA_SUCCESS);
  EXPECT_EQ(used(1), 20 * kMiB);
  EXPECT_EQ(nccl_.cuMemFree_v2(first), CUDA_SUCCESS);
  EXPECT_NE(nccl_.cuMemFree_v2(first), CUDA_SUCCESS);
  EXPECT_EQ(used(), 30 * kMiB);
  EXPECT_EQ(nccl_.cuMemFree_v2(third), CUDA_SUCCESS);
  EXPECT_EQ(used(1), 0u);
}

TEST_F(NcclMemory, PhysicalMemoryIsPaidUntilNeitherHandleNorMappingNeedsIt) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 1};  // not the current context's
  CUmemGenericAllocationHandle handle = 0, again = 0;
  CUdeviceptr address = 0;
  EXPECT_EQ(nccl_.cuMemCreate(&handle, 128 * kMiB, &properties, 0), CUDA_ERROR_OUT_OF_MEMORY);
  ASSERT_EQ(nccl_.cuMemCreate(&handle, 16 * kMiB, &properties, 0), CUDA_SUCCESS);
  ASSERT_EQ(nccl_.cuMemAddressReserve(&address, 16 * kMiB, 0, 0, 0), CUDA_SUCCESS);
  ASSERT_EQ(nccl_.cuMemMap(address, 16 * kMiB, 0, handle, 0), CUDA_SUCCESS);
  EXPECT_EQ(used(1), 16 * kMiB);
  // As NCCL frees: it learns the handle from the address.
  ASSERT_EQ(nccl_.cuMemRelease(handle), CUDA_SUCCESS);
  ASSERT_EQ(nccl_.cuMemRetainAllocationHandle(&again, reinterpret_cast<void*>(address)),
            CUDA_SUCCESS);
  ASSERT_EQ(nccl_.cuMemUnmap(address, 16 * kMiB), CUDA_SUCCESS);
  EXPECT_EQ(used(1), 16 * kMiB);
  ASSERT_EQ(nccl_.cuMemRelease(again), CUDA_SUCCESS);
  EXPECT_EQ(used(1), 0u);
  EXPECT_EQ(used(0), 0u);
  EXPECT_EQ(nccl_.cuMemAddressFree(address, 16 * kMiB), CUDA_SUCCESS);
}

TEST_F(NcclMemory, PoolsPayWhatTheyHold) {
  CUstream stream = nullptr;
  ASSERT_EQ(nccl_.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  const uint64_t streams = used();
  EXPECT_EQ(streams, 2 * kMiB);  // the driver's channels
  CUmemPoolProps properties{};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  CUmemoryPool pool = nullptr;
  CUdeviceptr own = 0, common = 0, large = 0;
  ASSERT_EQ(nccl_.cuMemPoolCreate(&pool, &properties), CUDA_SUCCESS);
  ASSERT_EQ(nccl_.cuMemAllocFromPoolAsync(&own, kMiB, pool, stream), CUDA_SUCCESS);
  cuuint64_t held = 0;
  driver_->cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &held);
  EXPECT_EQ(used(), streams + held);
  EXPECT_EQ(nccl_.cuMemAllocFromPoolAsync(&large, 99 * kMiB, pool, stream),
            CUDA_ERROR_OUT_OF_MEMORY);
  ASSERT_EQ(nccl_.cuMemAllocAsync(&common, 4 * kMiB, stream), CUDA_SUCCESS);
  EXPECT_EQ(used(), streams + held + 4 * kMiB);
  ASSERT_EQ(nccl_.cuMemFreeAsync(common, stream), CUDA_SUCCESS);
  ASSERT_EQ(nccl_.cuMemFreeAsync(own, stream), CUDA_SUCCESS);
  ASSERT_EQ(nccl_.cuStreamSynchronize(stream), CUDA_SUCCESS);
  ASSERT_EQ(nccl_.cuMemPoolDestroy(pool), CUDA_SUCCESS);
  EXPECT_EQ(used(), streams);
  ASSERT_EQ(nccl_.cuStreamDestroy_v2(stream), CUDA_SUCCESS);
  ASSERT_EQ(nccl_.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  EXPECT_EQ(used(), streams);  // it has the channels of the one before
  ASSERT_EQ(nccl_.cuStreamDestroy_v2(stream), CUDA_SUCCESS);
}

TEST_F(NcclMemory, MemoryOfTheHostIsBoundedWithTheSessions) {
  void *data = nullptr, *more = nullptr;
  ASSERT_EQ(nccl_.cuMemHostAlloc(&data, 6 * kMiB, 0), CUDA_SUCCESS);
  EXPECT_EQ(host_.used(), 6 * kMiB);
  EXPECT_EQ(nccl_.cuMemHostAlloc(&more, 3 * kMiB, 0), CUDA_ERROR_OUT_OF_MEMORY);
  std::vector<char> own(3 * kMiB);
  EXPECT_EQ(nccl_.cuMemHostRegister_v2(own.data(), own.size(), 0), CUDA_ERROR_OUT_OF_MEMORY);
  ASSERT_EQ(nccl_.cuMemFreeHost(data), CUDA_SUCCESS);
  EXPECT_EQ(host_.used(), 0u);
}

TEST_F(NcclMemory, ContextsOfItsOwnArePaid) {
  CUcontext made = nullptr;
  CUdeviceptr address = 0;
  ASSERT_EQ(nccl_.cuCtxCreate_v2(&made, 0, 1), CUDA_SUCCESS);
  EXPECT_EQ(used(1), kContext);
  ASSERT_EQ(nccl_.cuMemAlloc_v2(&address, 4 * kMiB), CUDA_SUCCESS);
  EXPECT_EQ(used(1), kContext + 4 * kMiB);
  ASSERT_EQ(nccl_.cuCtxDestroy_v2(made), CUDA_SUCCESS);
  EXPECT_EQ(used(1), 0u);
}

TEST_F(NcclMemory, AContextThatTheProgramEndsPaysNoMore) {
  CUdeviceptr address = 0;
  ASSERT_EQ(nccl_.cuMemAlloc_v2(&address, 4 * kMiB), CUDA_SUCCESS);
  memory_.context_ended(contexts_[0]);
  EXPECT_EQ(used(), 0u);
}

TEST_F(NcclMemory, WhatTakesMemoryByOtherRulesIsRefused) {
  CUDA_ARRAY_DESCRIPTOR array{};
  CUarray made = nullptr;
  CUdeviceptr address = 0;
  size_t stack = 0;
  EXPECT_EQ(nccl_.cuArrayCreate_v2(&made, &array), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(nccl_.cuMemAllocManaged(&address, kMiB, CU_MEM_ATTACH_GLOBAL),
            CUDA_ERROR_NOT_SUPPORTED);
  ASSERT_EQ(nccl_.cuCtxGetLimit(&stack, CU_LIMIT_STACK_SIZE), CUDA_SUCCESS);
  EXPECT_EQ(nccl_.cuCtxSetLimit(CU_LIMIT_STACK_SIZE, stack), CUDA_SUCCESS);
  EXPECT_EQ(nccl_.cuCtxSetLimit(CU_LIMIT_STACK_SIZE, stack + 1), CUDA_ERROR_NOT_SUPPORTED);
}

TEST_F(NcclMemory, FunctionsThatAreLookedUpAreCharged) {
  const uint64_t before = calls_seen();
  auto* const allocate = find<cuMemAlloc_v2_t>("cuMemAlloc");
  EXPECT_EQ(allocate, nccl_.cuMemAlloc_v2);
  EXPECT_NE(allocate, driver_->cuMemAlloc_v2);
  EXPECT_EQ(find<cuMemAllocAsync_t>("cuMemAllocAsync", CUDA_VERSION, 2),
            nccl_.cuMemAllocAsync_ptsz);
  EXPECT_EQ(find<cuMemFree_v2_t>("cuMemFree", 3020), nccl_.cuMemFree_v2);
  // A runtime that is newer than the table gets the newest that it knows.
  EXPECT_EQ(find<cuMemCreate_t>("cuMemCreate", CUDA_VERSION + 1000), nccl_.cuMemCreate);
  EXPECT_EQ(find<cuGetProcAddress_v2_t>("cuGetProcAddress"), nccl_.cuGetProcAddress_v2);
  void* found = nullptr;
  EXPECT_EQ(nccl_.cuGetProcAddress("cuMemAlloc", &found, CUDA_VERSION, 0), CUDA_SUCCESS);
  EXPECT_EQ(found, reinterpret_cast<void*>(nccl_.cuMemAlloc_v2));
  // What takes nothing is the driver's own.
  EXPECT_EQ(find<cuEventRecord_t>("cuEventRecord"), driver_->cuEventRecord);
  EXPECT_EQ(find<cuInit_t>("cuNothing"), nullptr);
  EXPECT_GT(calls_seen(), before);
}

TEST_F(NcclMemory, ThreadsTakeAndFreeAtOnce) {
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([this, thread] {
      nccl_.cuCtxSetCurrent(contexts_[thread % 2]);
      for (int round = 0; round < 200; ++round) {
        CUdeviceptr address = 0;
        const size_t bytes = (round % 3 == 0 ? 3 * kMiB : 1000) + static_cast<size_t>(round);
        if (nccl_.cuMemAlloc_v2(&address, bytes) == CUDA_SUCCESS) nccl_.cuMemFree_v2(address);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(used(0), 0u);
  EXPECT_EQ(used(1), 0u);
}

}  // namespace
}  // namespace tendril::worker::nccl
