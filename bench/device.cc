// SPDX-License-Identifier: Apache-2.0
// See device.h.
#include "bench/device.h"

namespace tendril::bench {
namespace {

constexpr const char* kPtx = R"(
.version 7.0
.target sm_52
.address_size 64

.visible .entry nothing()
{
  ret;
}

.visible .entry count(.param .u64 counter)
{
  .reg .b32 %r<2>;
  .reg .b64 %rd<3>;
  ld.param.u64 %rd1, [counter];
  cvta.to.global.u64 %rd2, %rd1;
  atom.global.add.u32 %r1, [%rd2], 1;
  ret;
}
)";

}  // namespace

Device::Device(const std::string& library, int ordinal) {
  auto opened = gpu::Driver::open(library);
  if (!opened.ok()) throw Failure(opened.status().message());
  driver_ = opened.take();
  check(driver_->cuInit(0), "cuInit");
  start(ordinal);
}

Device::Device(const Device& first, int ordinal) : driver_(first.driver_) { start(ordinal); }

void Device::start(int ordinal) {
  CUdevice device = 0;
  check(driver_->cuDeviceGet(&device, ordinal), "cuDeviceGet");
  check(driver_->cuDevicePrimaryCtxRetain(&context_, device), "cuDevicePrimaryCtxRetain");
  use();
}

void Device::check(CUresult result, const char* call) const {
  if (result == CUDA_SUCCESS) return;
  const char* name = nullptr;
  if (driver_->cuGetErrorName != nullptr) driver_->cuGetErrorName(result, &name);
  throw Failure(std::string(call) + ": " + (name != nullptr ? name : "an unknown error"));
}

CUdeviceptr Device::allocate(size_t bytes) const {
  CUdeviceptr memory = 0;
  check(driver_->cuMemAlloc_v2(&memory, bytes), "cuMemAlloc");
  return memory;
}

CUstream Device::stream() const {
  CUstream made = nullptr;
  check(driver_->cuStreamCreate(&made, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  return made;
}

CUfunction Device::kernel(CUfunction* kept, const char* name) {
  if (module_ == nullptr) check(driver_->cuModuleLoadData(&module_, kPtx), "cuModuleLoadData");
  if (*kept == nullptr)
    check(driver_->cuModuleGetFunction(kept, module_, name), "cuModuleGetFunction");
  return *kept;
}

void Device::launch_nothing(CUstream stream) {
  CUfunction function = kernel(&nothing_, "nothing");
  check(driver_->cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr),
        "cuLaunchKernel");
}

void Device::launch_count(CUdeviceptr counter, CUstream stream) {
  CUfunction function = kernel(&count_, "count");
  void* parameters[] = {&counter};
  check(driver_->cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, parameters, nullptr),
        "cuLaunchKernel");
}

}  // namespace tendril::bench
