// SPDX-License-Identifier: Apache-2.0
// See gate_host.h.
#include "worker/cuda/executor/gate_host.h"

#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "worker/core/hardware_slices.h"
#include "worker/cuda/executor/output.h"
#include "worker/cuda/executor/waits.h"

namespace tendril::worker::cuda {

CUcontext ExecutorGateHost::owner(CUcontext current, CUstream stream) {
  CUcontext of = nullptr;
  if (stream == CU_STREAM_LEGACY) return current;
  return w_.driver().cuStreamGetCtx(stream, &of) == CUDA_SUCCESS && of != nullptr ? of : current;
}

CUevent ExecutorGateHost::mark(CUcontext context, CUstream stream) {
  if (w_.captures(stream)) return nullptr;
  const CUcontext before = w_.current_in_driver();
  if (w_.use(context) != CUDA_SUCCESS) return nullptr;
  CUevent event = w_.waiters().staging().record_event(context, stream);
  if (before != nullptr) w_.use(before);
  return event;
}

bool ExecutorGateHost::reached(CUevent event) {
  return w_.driver().cuEventQuery(event) != CUDA_ERROR_NOT_READY;
}

void ExecutorGateHost::give_back(CUcontext context, CUevent event) {
  w_.waiters().staging().give_back_event(context, event);
}

bool ExecutorGateHost::serve() {
  const CUcontext before = w_.current_in_driver();
  w_.service().flush();
  if (w_.waiters().polling()) w_.waiters().poll();
  if (before != nullptr) w_.use(before);
  return w_.service().attend();
}

bool ExecutorGateHost::busy() { return w_.waiters().polling(); }

void ExecutorGateHost::set_hardware_slice(uint32_t slot, uint32_t us) {
  const uint32_t gpu = w_.assignment().slices[slot].gpu_index;
  hardware_slices.claim(gpu);
  uint32_t status = 0;
  const auto system_call = [](int fd, unsigned long request, void* argument) {
    return static_cast<int>(syscall(SYS_ioctl, fd, request, argument));
  };
  const HardwareSlices::Outcome outcome = hardware_slices.set(gpu, us, system_call, &status);
  if (outcome != HardwareSlices::Outcome::kRefused || refused_) return;
  refused_ = true;
  dprintf(w_.output().log_descriptor(),
          "GPU %u: the driver refuses to set time slices of channel groups (status 0x%x); turns "
          "alone divide it\n",
          gpu, status);
}

}  // namespace tendril::worker::cuda
