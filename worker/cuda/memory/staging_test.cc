// SPDX-License-Identifier: Apache-2.0
// Blocks of host memory over the end of the context that pinned them: the driver's registration
// goes with the mapping.
#include "worker/cuda/memory/staging.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>

#include "worker/cuda/testing/driver.h"

namespace tendril::worker::cuda {
namespace {

std::set<void*> g_registered;
CUresult g_unregister_answer = CUDA_SUCCESS;

CUresult register_memory(void* at, size_t, unsigned) {
  return g_registered.insert(at).second ? CUDA_SUCCESS : CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
}
CUresult unregister_memory(void* at) {
  if (g_unregister_answer == CUDA_SUCCESS) g_registered.erase(at);
  return g_unregister_answer;
}

class StagingTest : public ::testing::Test {
 protected:
  void SetUp() override {
    driver_ = open_test_driver();
    ASSERT_NE(driver_, nullptr);
    driver_->cuMemHostRegister_v2 = register_memory;
    driver_->cuMemHostUnregister = unregister_memory;
    g_registered.clear();
    g_unregister_answer = CUDA_SUCCESS;
    staging_ = std::make_unique<Staging>(driver_.get());
  }
  std::unique_ptr<gpu::Driver> driver_;
  std::unique_ptr<Staging> staging_;
};

TEST_F(StagingTest, BlocksAreUsedAgain) {
  const Block block = staging_->take(5000);
  EXPECT_GE(block.bytes, 5000u);
  EXPECT_TRUE(block.pinned);
  staging_->give_back(block);
  EXPECT_EQ(staging_->take(8000).data, block.data);
}

TEST_F(StagingTest, NothingForgottenStaysRegistered) {
  const Block free = staging_->take(4096), used = staging_->take(4096);
  staging_->give_back(free);
  EXPECT_EQ(g_registered.size(), 2u);
  staging_->forget();
  EXPECT_EQ(g_registered, std::set<void*>{used.data});
  staging_->give_back(used);  // late: of the context that is gone
  EXPECT_TRUE(g_registered.empty());
  EXPECT_TRUE(staging_->take(4096).pinned);
}

TEST_F(StagingTest, WhatStaysRegisteredStaysMapped) {
  const Block block = staging_->take(4096);
  staging_->give_back(block);
  g_unregister_answer = CUDA_ERROR_INVALID_VALUE;
  staging_->forget();
  block.data[0] = 1;  // or this ends the test
  EXPECT_NE(staging_->take(4096).data, block.data);
}

}  // namespace
}  // namespace tendril::worker::cuda
