// SPDX-License-Identifier: Apache-2.0
// Blocks by mapping: what the driver holds for them, and that memory leaves and comes back at its
// address.
#include "worker/cuda/memory/device_blocks.h"

#include <gtest/gtest.h>

#include "worker/cuda/testing/one_context.h"

namespace tendril::worker::cuda {
namespace {

constexpr uint64_t kPage = base::kGpuPageBytes;

class DeviceBlocksTest : public OneContextTest {};

TEST_F(DeviceBlocksTest, MemoryLeavesAndComesBackAtItsAddress) {
  ASSERT_NO_FATAL_FAILURE(open());
  DeviceBlocks& blocks = executor_->blocks();
  ASSERT_TRUE(blocks.serves(0));
  const uint64_t before = used();
  CUdeviceptr one = 0, two = 0;
  ASSERT_EQ(blocks.make(kPage, &one), CUDA_SUCCESS);
  ASSERT_EQ(blocks.make(3 * kPage - 5, &two), CUDA_SUCCESS);
  EXPECT_EQ(used() - before, 4 * kPage);
  DeviceBlocks::Block* const block = blocks.find(two + 2 * kPage);
  ASSERT_NE(block, nullptr);
  EXPECT_EQ(block->address, two);
  EXPECT_EQ(blocks.find(two + 3 * kPage), nullptr);
  ASSERT_EQ(blocks.release_memory(block), CUDA_SUCCESS);
  EXPECT_EQ(used() - before, kPage);
  EXPECT_NE(driver_->cuMemsetD8_v2(two, 1, 16), CUDA_SUCCESS) << "nothing is there";
  ASSERT_EQ(blocks.restore_memory(block), CUDA_SUCCESS);
  EXPECT_EQ(used() - before, 4 * kPage);
  EXPECT_EQ(driver_->cuMemsetD8_v2(two, 1, 16), CUDA_SUCCESS);
  EXPECT_EQ(blocks.give_back(blocks.find(one)), CUDA_SUCCESS);
  CUdeviceptr again = 0;
  ASSERT_EQ(blocks.make(kPage, &again), CUDA_SUCCESS);
  EXPECT_EQ(again, one) << "addresses are used again";
  blocks.forget(executor_->context(), [](uint64_t) {});
  EXPECT_EQ(used(), before);
}

TEST_F(DeviceBlocksTest, AvoidsAddressesThatAClientCannotUse) {
  ASSERT_NO_FATAL_FAILURE(open());
  DeviceBlocks& blocks = executor_->blocks();
  CUdeviceptr one = 0, two = 0;
  ASSERT_EQ(blocks.make(kPage, &one), CUDA_SUCCESS);
  blocks.avoid(one, uint64_t{1} << 50);
  ASSERT_EQ(blocks.make(kPage, &two), CUDA_SUCCESS) << "another window";
  EXPECT_TRUE(two < one || two > one + kPage);
}

TEST_F(DeviceBlocksTest, TheClientChoosesAddressesInItsPartOfTheArena) {
  ASSERT_NO_FATAL_FAILURE(open());
  DeviceBlocks& blocks = executor_->blocks();
  constexpr uint64_t kWished = uint64_t{2} << 44, kOwn = 16 * kPage;
  EXPECT_EQ(blocks.make_at(kWished, kPage), CUDA_ERROR_INVALID_VALUE) << "there is no arena";
  CUdeviceptr other = 0;
  ASSERT_EQ(driver_->cuMemAddressReserve(&other, kPage, 0, kWished + kPage, 0), CUDA_SUCCESS);
  EXPECT_FALSE(blocks.open_arena(kWished, 2 * kOwn, kOwn)) << "something is there";
  ASSERT_EQ(driver_->cuMemAddressFree(other, kPage), CUDA_SUCCESS);
  EXPECT_FALSE(blocks.open_arena(kWished, kOwn, kOwn));
  ASSERT_TRUE(blocks.open_arena(kWished, 2 * kOwn, kOwn));
  EXPECT_FALSE(blocks.open_arena(kWished + 4 * kOwn, 2 * kOwn, kOwn)) << "there is one";
  EXPECT_EQ(blocks.make_at(kWished, 4 * kPage), CUDA_SUCCESS);
  for (const uint64_t taken : {uint64_t{0}, 3 * kPage})
    EXPECT_EQ(blocks.make_at(kWished + taken, kPage), CUDA_ERROR_INVALID_VALUE);
  for (const uint64_t outside : {kOwn, kOwn - kPage, 0 - kPage, uint64_t{4096}})
    EXPECT_EQ(blocks.make_at(kWished + outside, 2 * kPage), CUDA_ERROR_INVALID_VALUE) << outside;
  EXPECT_EQ(blocks.make_at(kWished + 4 * kPage, 0 - kPage), CUDA_ERROR_INVALID_VALUE);
  CUdeviceptr own = 0;
  ASSERT_EQ(blocks.make(kPage, &own), CUDA_SUCCESS);
  EXPECT_EQ(own, kWished + kOwn) << "the worker's are in its own part";
  EXPECT_EQ(blocks.give_back(blocks.find(kWished)), CUDA_SUCCESS);
  EXPECT_EQ(blocks.make_at(kWished + kPage, kPage), CUDA_SUCCESS);
}

TEST_F(DeviceBlocksTest, ADeviceWithoutTheCallsHasNoBlocks) {
  ASSERT_NO_FATAL_FAILURE(open(false));
  EXPECT_FALSE(executor_->blocks().serves(0));
}

}  // namespace
}  // namespace tendril::worker::cuda
