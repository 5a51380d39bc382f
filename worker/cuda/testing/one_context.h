// SPDX-License-Identifier: Apache-2.0
// For tests: an executor of this process whose client has left, with a context to call handlers'
// parts in.
#pragma once

#include <gtest/gtest.h>

#include "worker/cuda/memory/device_blocks.h"
#include "worker/cuda/testing/driver.h"
#include "worker/cuda/testing/random_calls.h"
#include "worker/cuda/testing/session.h"

namespace tendril::worker::cuda {

// A session with the primary context of its first slot, and nothing else to do.
class OneContextTest : public ::testing::Test {
 protected:
  // with_calls false: a device that says that it has none of these calls.
  void open(bool with_calls = true) {
    driver_ = open_test_driver();
    ASSERT_NE(driver_, nullptr);
    static cuDeviceGetAttribute_t* attribute = nullptr;
    attribute = driver_->cuDeviceGetAttribute;
    if (!with_calls) {
      driver_->cuDeviceGetAttribute = [](int* value, CUdevice_attribute which, CUdevice device) {
        const CUresult result = attribute(value, which, device);
        if (which == CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) *value = 0;
        return result;
      };
    }
    wire::cuda::primary_retain_request retain;
    retain.context = api::make_id(Kind::kContext, 0, 1, 1);
    append_call(&lane_, retain, 0, 1);
    client_ = std::make_unique<transport::SpentClient>(lane_.data(), lane_.size());
    service_ = session::Service::open(client_->take_worker_end(), nullptr, 0, {});
    executor_ = std::make_unique<Executor>(driver_.get(), service_.get(), test_assignment(), &page_,
                                           transport::HostWindow{}, exports_, Turns{});
    executor_->callbacks().end();
    executor_->run();
    ASSERT_EQ(executor_->contexts().enter(1), CUDA_SUCCESS);
  }
  void TearDown() override {
    if (executor_ != nullptr) clear_driver(*executor_, *driver_);
    executor_.reset();
    dup2(output_.get(), STDOUT_FILENO);  // the executor redirects both
    dup2(error_.get(), STDERR_FILENO);
  }
  uint64_t used() {
    size_t free = 0, total = 0;
    EXPECT_EQ(driver_->cuMemGetInfo_v2(&free, &total), CUDA_SUCCESS);
    return total - free;
  }

  Exports* exports_ = nullptr;  // set it before `open`
  const base::Fd output_{dup(STDOUT_FILENO)}, error_{dup(STDERR_FILENO)};
  wire::AccountingPage page_ = {};
  std::vector<uint8_t> lane_;
  std::unique_ptr<gpu::Driver> driver_;
  std::unique_ptr<transport::SpentClient> client_;
  std::unique_ptr<session::Service> service_;
  std::unique_ptr<Executor> executor_;
};

}  // namespace tendril::worker::cuda
