// SPDX-License-Identifier: Apache-2.0
// The Worker behind core/api.h: opens the driver, warms contexts, and runs one session with an
// Executor.
#include "worker/core/api.h"

#include <sys/mman.h>

#include "gpu/cuda/driver.h"
#include "worker/core/hardware_slices.h"
#include "worker/cuda/executor/executor.h"

namespace tendril::worker {
namespace {

constexpr uint32_t kSlots = 16;

class CudaWorker final : public Worker {
 public:
  explicit CudaWorker(std::unique_ptr<gpu::Driver> driver) : driver_(std::move(driver)) {}

  base::Status warm(uint32_t gpu_index) override {
    CUdevice device = 0;
    CUcontext context = nullptr;
    CUresult result = driver_->cuDeviceGet(&device, static_cast<int>(gpu_index));
    if (result == CUDA_SUCCESS) result = driver_->cuDevicePrimaryCtxRetain(&context, device);
    if (result == CUDA_SUCCESS) result = driver_->cuCtxSetCurrent(context);
    if (result != CUDA_SUCCESS) {
      return base::Status(base::Code::kUnavailable,
                          "GPU " + std::to_string(gpu_index) +
                              ": the driver refused a context (CUresult " + std::to_string(result) +
                              "); look at the driver's log");
    }
    hardware_slices.claim(gpu_index);
    slot_pool();  // pinned now: it takes milliseconds, and a program that attaches waits for it
                  // otherwise
    return {};
  }

  session::SlotPool slot_pool() override {
    if (slots_ == nullptr) {
      void* memory = mmap(nullptr, uint64_t{kSlots} * wire::kChunkBytesMax, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (memory == MAP_FAILED) return {};
      slots_ = static_cast<uint8_t*>(memory);
      pin();
    }
    return {slots_, kSlots};
  }

  int run(session::Service* service, const wire::Assignment& assignment,
          wire::AccountingPage* accounting, transport::HostWindow window, Exports* exports,
          Turns turns) override {
    // Kept: the driver's threads and those that wait may use it until the process is gone.
    executor_ = std::make_unique<cuda::Executor>(driver_.get(), service, assignment, accounting,
                                                 std::move(window), exports, turns);
    return executor_->run();
  }

 private:
  // Pinned slots let the GPU fetch pieces while the next ones arrive; unpinned ones only cost
  // speed.
  void pin() {
    CUcontext current = nullptr;
    if (pinned_ || slots_ == nullptr || driver_->cuCtxGetCurrent(&current) != CUDA_SUCCESS ||
        current == nullptr)
      return;
    pinned_ = driver_->cuMemHostRegister_v2(slots_, uint64_t{kSlots} * wire::kChunkBytesMax,
                                            CU_MEMHOSTREGISTER_PORTABLE) == CUDA_SUCCESS;
  }

  std::unique_ptr<gpu::Driver> driver_;
  std::unique_ptr<cuda::Executor> executor_;
  uint8_t* slots_ = nullptr;
  bool pinned_ = false;
};

}  // namespace

base::Result<std::unique_ptr<Worker>> Worker::create(const std::string& driver_path) {
  base::Result<std::unique_ptr<gpu::Driver>> driver = gpu::Driver::open(driver_path);
  if (!driver.ok()) return driver.status();
  const CUresult result = (*driver)->cuInit(0);
  if (result != CUDA_SUCCESS) {
    return base::Status(base::Code::kUnavailable,
                        "the GPU driver '" + (*driver)->path() + "' cannot start (cuInit answers " +
                            std::to_string(result) +
                            "); check that this machine's GPU works without Tendril");
  }
  return std::unique_ptr<Worker>(new CudaWorker(driver.take()));
}

}  // namespace tendril::worker
