// SPDX-License-Identifier: Apache-2.0
// CUDA's Worker: opens the driver, warms contexts, and runs one session with an Executor.
#include "worker/cuda/worker.h"

#include "api/cuda_messages.gen.h"
#include "gpu/cuda/driver.h"
#include "worker/core/hardware_slices.h"
#include "worker/core/slot_memory.h"
#include "worker/cuda/device_facts.h"
#include "worker/cuda/executor/executor.h"
#include "worker/cuda/memory/direct.h"

namespace tendril::worker::cuda {
namespace {

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
    slot_pool();  // Pinning takes milliseconds. Later, a program that attaches would wait for it.
    return {};
  }

  std::string facts(uint32_t gpu_index) override { return device_facts(*driver_, gpu_index); }

  void lend_collectives(std::vector<gpu::NcclFile> libraries) override {
    nccl_ = std::move(libraries);
  }

  void lend_cards(std::shared_ptr<transport::PinnedMemory> cards) override {
    cards_ = std::move(cards);
  }

  session::SlotPool slot_pool() override {
    const session::SlotPool pool = slots_.pool();
    pin();
    return pool;
  }

  int run(session::Service* service, const wire::Assignment& assignment,
          wire::AccountingPage* accounting, transport::HostWindow window, Exports* exports,
          Turns turns) override {
    // Never destroyed, because the driver's threads and waiter threads may use it until the process
    // is gone.
    executor_ = std::make_unique<Executor>(driver_.get(), service, assignment, accounting,
                                           std::move(window), exports, turns);
    if (!nccl_.empty()) executor_->offer(std::move(nccl_));
    executor_->direct().lend(std::move(cards_));
    const int status = executor_->run();
    executor_->direct().tell_sum();
    return status;
  }

 private:
  // The GPU fetches pieces from pinned slots while the next ones arrive. Without pinning, copies
  // are slower, and nothing else changes.
  void pin() {
    CUcontext current = nullptr;
    if (pinned_ || slots_.data() == nullptr || driver_->cuCtxGetCurrent(&current) != CUDA_SUCCESS ||
        current == nullptr)
      return;
    pinned_ = driver_->cuMemHostRegister_v2(slots_.data(), SlotMemory::kBytes,
                                            CU_MEMHOSTREGISTER_PORTABLE) == CUDA_SUCCESS;
  }

  std::unique_ptr<gpu::Driver> driver_;
  std::vector<gpu::NcclFile> nccl_;
  std::shared_ptr<transport::PinnedMemory> cards_;
  std::unique_ptr<Executor> executor_;
  SlotMemory slots_;
  bool pinned_ = false;
};

base::Result<std::unique_ptr<Worker>> create(const std::string& driver_path) {
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

}  // namespace

Api api() { return {wire::cuda::kApiName, wire::cuda::kSchemaDigest, &create}; }

}  // namespace tendril::worker::cuda
