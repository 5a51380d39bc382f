// SPDX-License-Identifier: Apache-2.0
// A GPU as tendril-bench sees it: any driver library behind gpu::Driver, the primary context of one
// device, and two kernels. The kernels are written in PTX here, so that building needs no device
// compiler. A call that fails throws Failure. Only the figure that needed the call is lost.
#pragma once

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "gpu/cuda/driver.h"

namespace tendril::bench {

struct Failure : std::runtime_error {
  using runtime_error::runtime_error;
};

class Device {
 public:
  // `library` empty: the system's libcuda.so.1, which is Tendril's under `tendril run`.
  Device(const std::string& library, int ordinal);
  // Another device of the same process.
  Device(const Device& first, int ordinal);

  const gpu::Driver& driver() const { return *driver_; }
  CUcontext context() const { return context_; }
  void use() const { check(driver_->cuCtxSetCurrent(context_), "cuCtxSetCurrent"); }
  void check(CUresult result, const char* call) const;

  CUdeviceptr allocate(size_t bytes) const;
  CUstream stream() const;
  // Loads the kernels on first use.
  void launch_nothing(CUstream stream);
  // Adds one to the word at `counter`.
  void launch_count(CUdeviceptr counter, CUstream stream);
  void synchronize() const { check(driver_->cuCtxSynchronize(), "cuCtxSynchronize"); }

 private:
  void start(int ordinal);
  CUfunction kernel(CUfunction* kept, const char* name);

  std::shared_ptr<gpu::Driver> driver_;
  CUcontext context_ = nullptr;
  CUmodule module_ = nullptr;
  CUfunction nothing_ = nullptr, count_ = nullptr;
};

}  // namespace tendril::bench
