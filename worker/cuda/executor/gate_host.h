// SPDX-License-Identifier: Apache-2.0
// The gate's way to the driver and to the executor: markers are events without timing from the
// common stock, and while the executor waits at the gate, waits under way and host functions'
// answers are seen to. Executor thread.
#pragma once

#include "worker/core/gate.h"
#include "worker/cuda/executor/executor.h"

namespace tendril::worker::cuda {

class ExecutorGateHost final : public GateHost {
 public:
  explicit ExecutorGateHost(Executor* executor) : w_(*executor) {}

  CUcontext owner(CUcontext current, CUstream stream) override;
  CUevent mark(CUcontext context, CUstream stream) override;
  bool reached(CUevent event) override;
  void give_back(CUcontext context, CUevent event) override;
  bool serve() override;
  bool busy() override;
  void set_hardware_slice(uint32_t slot, uint32_t us) override;

 private:
  Executor& w_;
  bool refused_ = false;  // and the log says so
};

}  // namespace tendril::worker::cuda
