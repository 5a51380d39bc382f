// SPDX-License-Identifier: Apache-2.0
// OpenCL's Worker: opens the machine's OpenCL, and runs one session with an Executor.
#include "worker/opencl/worker.h"

#include "api/opencl_messages.gen.h"
#include "worker/core/slot_memory.h"
#include "worker/opencl/executor.h"

namespace tendril::worker::opencl {
namespace {

class OpenclWorker final : public Worker {
 public:
  explicit OpenclWorker(std::unique_ptr<gpu::OpenclDriver> driver) : driver_(std::move(driver)) {}

  // The drivers start their threads and compilers with the first look at the devices.
  base::Status warm(uint32_t device) override {
    if (device < driver_->devices().size()) return {};
    return base::Status(base::Code::kUnavailable,
                        "OpenCL device " + std::to_string(device) +
                            " is gone: this process sees fewer devices than the probe; restart the "
                            "server");
  }

  session::SlotPool slot_pool() override { return slots_.pool(); }

  int run(session::Service* service, const wire::Assignment& assignment,
          wire::AccountingPage* accounting, transport::HostWindow, Exports* exports,
          Turns turns) override {
    // Never destroyed, because the driver's threads may use it until the process is gone.
    executor_ =
        std::make_unique<Executor>(*driver_, service, assignment, accounting, exports, turns);
    return executor_->run();
  }

 private:
  std::unique_ptr<gpu::OpenclDriver> driver_;
  std::unique_ptr<Executor> executor_;
  SlotMemory slots_;
};

base::Result<std::unique_ptr<Worker>> create(const std::string& driver_path) {
  base::Result<std::unique_ptr<gpu::OpenclDriver>> driver = gpu::OpenclDriver::open(driver_path);
  if (!driver.ok()) return driver.status();
  return std::unique_ptr<Worker>(new OpenclWorker(driver.take()));
}

}  // namespace

Api api() {
  return {wire::opencl::kApiName, wire::opencl::kSchemaDigest, &create, &gpu::take_opencl_inventory,
          true};
}

}  // namespace tendril::worker::opencl
