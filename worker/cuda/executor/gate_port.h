// SPDX-License-Identifier: Apache-2.0
// The gate (worker/core/gate.h) in CUDA's words, and its way to the driver. Handlers ask it before
// they give work to the GPU's processors. Its markers are events without timing, from the stock of
// staging. While the executor waits here, it still serves pending waits and answers of host
// functions. Executor thread.
#pragma once

#include "worker/core/gate.h"
#include "worker/cuda/executor/contexts.h"

namespace tendril::worker::cuda {

class Executor;

class GatePort final : private GateHost {
 public:
  GatePort(Executor* executor, Turns turns, uint32_t slots)
      : executor_(*executor), gate_(this, turns, slots, handle(CU_STREAM_LEGACY)) {}

  Gate& gate() { return gate_; }
  bool open(uint32_t slot) const { return gate_.open(slot); }

  // Call it before work for the GPU's processors is given to `stream` in the call's context. Copies
  // from or to the host do not count. It waits if the GPU's time is divided. Pieces with the same
  // `what` and `size` are expected to take the same time. False: the session is over.
  bool may_work(const WorkerContext* context, CUstream stream, uint64_t what, uint64_t size) {
    return open(slot_of(context)) || wait_to_work(context, stream, what, size);
  }
  // The same for one of several pieces, before the first is given. It never waits. False: this
  // piece needs a wait or other work first.
  bool may_work_at_once(const WorkerContext* context, CUstream stream, uint64_t what,
                        uint64_t size);
  // Call it before a host function is given to `stream`.
  void pass_host_function(const WorkerContext* context, CUstream stream);

  void has_context(uint32_t slot) { gate_.has_context(slot); }
  void mark_everything() { gate_.mark_everything(); }
  void before_a_long_call() { gate_.before_a_long_call(); }
  void stream_ends(CUstream stream) { gate_.stream_ends(handle(stream)); }
  void forget_context(CUcontext context) { gate_.forget_context(handle(context)); }

 private:
  static ContextHandle handle(CUcontext context) {
    return reinterpret_cast<ContextHandle>(context);
  }
  static StreamHandle handle(CUstream stream) { return reinterpret_cast<StreamHandle>(stream); }
  static CUcontext own(ContextHandle context) { return reinterpret_cast<CUcontext>(context); }
  static CUstream own(StreamHandle stream) { return reinterpret_cast<CUstream>(stream); }
  static CUevent own(EventHandle event) { return reinterpret_cast<CUevent>(event); }
  static uint32_t slot_of(const WorkerContext* context) {
    return context != nullptr ? context->slot : 0;
  }
  bool wait_to_work(const WorkerContext* context, CUstream stream, uint64_t what, uint64_t size);

  ContextHandle owner(ContextHandle current, StreamHandle stream) override;
  EventHandle mark(ContextHandle context, StreamHandle stream) override;
  bool reached(EventHandle event) override;
  void give_back(ContextHandle context, EventHandle event) override;
  bool serve() override;
  bool busy() override;
  void set_hardware_slice(uint32_t slot, uint32_t us) override;

  Executor& executor_;
  Gate gate_;
  bool refused_ = false;  // the driver refused a slice, and the log says so
};

}  // namespace tendril::worker::cuda
