// SPDX-License-Identifier: Apache-2.0
// See gate_port.h.
#include "worker/cuda/executor/gate_port.h"

#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "worker/core/hardware_slices.h"
#include "worker/core/output.h"
#include "worker/cuda/executor/executor.h"
#include "worker/cuda/executor/waits.h"
#include "worker/cuda/parking/parking.h"

namespace tendril::worker::cuda {

bool GatePort::wait_to_work(const WorkerContext* context, CUstream stream, uint64_t what,
                            uint64_t size) {
  if (executor_.streams().captures(stream)) return true;
  return gate_.pass(slot_of(context), handle(context != nullptr ? context->context : nullptr),
                    handle(stream), work_kind(what, size));
}

bool GatePort::may_work_at_once(const WorkerContext* context, CUstream stream, uint64_t what,
                                uint64_t size) {
  return !executor_.streams().capturing() && context != nullptr &&
         gate_.pass_at_once(context->slot, handle(context->context), handle(stream),
                            work_kind(what, size));
}

void GatePort::pass_host_function(const WorkerContext* context, CUstream stream) {
  if (!open(slot_of(context)) && context != nullptr && !executor_.streams().captures(stream))
    gate_.host_function(context->slot, handle(context->context), handle(stream));
}

ContextHandle GatePort::owner(ContextHandle current, StreamHandle stream) {
  CUcontext owner = nullptr;
  if (own(stream) == CU_STREAM_LEGACY) return current;
  const CUresult result = executor_.driver().cuStreamGetCtx(own(stream), &owner);
  return result == CUDA_SUCCESS && owner != nullptr ? handle(owner) : current;
}

EventHandle GatePort::mark(ContextHandle context, StreamHandle stream) {
  if (executor_.streams().captures(own(stream))) return nullptr;
  Contexts& contexts = executor_.contexts();
  const CUcontext before = contexts.current_in_driver();
  if (contexts.use(own(context)) != CUDA_SUCCESS) return nullptr;
  CUevent event = executor_.waiters().staging().record_event(own(context), own(stream));
  if (before != nullptr) contexts.use(before);
  return reinterpret_cast<EventHandle>(event);
}

bool GatePort::reached(EventHandle event) {
  return executor_.driver().cuEventQuery(own(event)) != CUDA_ERROR_NOT_READY;
}

void GatePort::give_back(ContextHandle context, EventHandle event) {
  executor_.waiters().staging().give_back_event(own(context), own(event));
}

bool GatePort::serve() {
  Contexts& contexts = executor_.contexts();
  const CUcontext before = contexts.current_in_driver();
  executor_.service().flush();
  if (executor_.waiters().polling()) executor_.waiters().poll();
  if (before != nullptr) contexts.use(before);
  return executor_.parking().obey_at_gate() && executor_.service().attend();
}

bool GatePort::busy() { return executor_.waiters().polling(); }

void GatePort::set_hardware_slice(uint32_t slot, uint32_t us) {
  const uint32_t gpu = executor_.assignment().slices[slot].gpu_index;
  hardware_slices.claim(gpu);
  uint32_t status = 0;
  const auto system_call = [](int fd, unsigned long request, void* argument) {
    return static_cast<int>(syscall(SYS_ioctl, fd, request, argument));
  };
  const HardwareSlices::Outcome outcome = hardware_slices.set(gpu, us, system_call, &status);
  if (outcome != HardwareSlices::Outcome::kRefused || refused_) return;
  refused_ = true;
  dprintf(executor_.output().log_descriptor(),
          "GPU %u: the driver refuses to set time slices of channel groups (status 0x%x); turns "
          "alone divide it\n",
          gpu, status);
}

}  // namespace tendril::worker::cuda
