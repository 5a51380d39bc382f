// SPDX-License-Identifier: Apache-2.0
// The gate (worker/core/gate.h) in OpenCL's words. A queue is the gate's stream. Its markers are
// the driver's marker commands. Executor thread.
#pragma once

#include "gpu/opencl/driver.h"
#include "worker/core/gate.h"

namespace tendril::worker::opencl {

class Executor;

class GatePort final : private GateHost {
 public:
  GatePort(Executor* executor, Turns turns, uint32_t slots)
      : executor_(*executor), gate_(this, turns, slots, nullptr) {}

  Gate& gate() { return gate_; }
  // Call it before a kernel is given to `queue`. It waits if the device's time is divided. False:
  // the session is over.
  bool may_work(uint32_t slot, cl_context context, cl_command_queue queue, uint64_t what,
                uint64_t size) {
    return gate_.open(slot) ||
           gate_.pass(slot, reinterpret_cast<ContextHandle>(context),
                      reinterpret_cast<StreamHandle>(queue), work_kind(what, size));
  }
  // Nobody else wants this slot's device.
  bool is_free(uint32_t slot) const { return gate_.open(slot); }
  void queue_ends(cl_command_queue queue) {
    gate_.stream_ends(reinterpret_cast<StreamHandle>(queue));
  }

 private:
  ContextHandle owner(ContextHandle current, StreamHandle) override { return current; }
  EventHandle mark(ContextHandle context, StreamHandle stream) override;
  bool reached(EventHandle event) override;
  void give_back(ContextHandle context, EventHandle event) override;
  bool serve() override;
  bool busy() override;
  void set_hardware_slice(uint32_t, uint32_t) override {}

  Executor& executor_;
  Gate gate_;
};

}  // namespace tendril::worker::opencl
