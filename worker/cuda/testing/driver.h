// SPDX-License-Identifier: Apache-2.0
// For tests: the software GPU, with two devices. All tests of a program share it, and it reads its
// settings once. So the first test to open it must ask for what others need.
#pragma once

#include <stdlib.h>

#include <memory>

#include "gpu/cuda/driver.h"

namespace tendril::worker {

// Null: it cannot be opened.
inline std::unique_ptr<gpu::Driver> open_test_driver() {
  setenv("TENDRIL_SOFTGPU_DEVICES", "2", 1);
  auto driver = gpu::Driver::open(TENDRIL_TEST_DRIVER);
  if (!driver.ok() || (*driver)->cuInit(0) != CUDA_SUCCESS) return nullptr;
  return driver.take();
}

}  // namespace tendril::worker
