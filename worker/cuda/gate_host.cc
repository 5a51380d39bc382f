// SPDX-License-Identifier: Apache-2.0
// See gate_host.h.
#include "worker/cuda/gate_host.h"

#include "worker/cuda/waits.h"

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
  CUevent event = w_.waiters().staging().take_event(context);
  if (event != nullptr && w_.driver().cuEventRecord(event, stream) != CUDA_SUCCESS) {
    give_back(context, event);
    event = nullptr;
  }
  if (before != nullptr) w_.use(before);
  return event;
}

bool ExecutorGateHost::reached(CUevent event) { return w_.driver().cuEventQuery(event) != CUDA_ERROR_NOT_READY; }

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

void ExecutorGateHost::set_hardware_slice(uint32_t, uint32_t) {}

}  // namespace tendril::worker::cuda
