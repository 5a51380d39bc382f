// SPDX-License-Identifier: Apache-2.0
// See gate_port.h.
#include "worker/opencl/gate_port.h"

#include "worker/opencl/executor.h"

namespace tendril::worker::opencl {

EventHandle GatePort::mark(ContextHandle, StreamHandle stream) {
  auto* const queue = reinterpret_cast<cl_command_queue>(stream);
  cl_event event = nullptr;
  const gpu::OpenclDriver& driver = executor_.driver();
  if (driver.clEnqueueMarkerWithWaitList(queue, 0, nullptr, &event) != CL_SUCCESS) return nullptr;
  driver.clFlush(queue);
  return reinterpret_cast<EventHandle>(event);
}

bool GatePort::reached(EventHandle event) {
  return executor_.jobs().status_of(reinterpret_cast<cl_event>(event)) <= CL_COMPLETE;
}

void GatePort::give_back(ContextHandle, EventHandle event) {
  executor_.driver().clReleaseEvent(reinterpret_cast<cl_event>(event));
}

bool GatePort::serve() {
  executor_.service().flush();
  if (executor_.jobs().polling()) executor_.jobs().poll();
  return executor_.service().attend();
}

bool GatePort::busy() { return executor_.jobs().polling(); }

}  // namespace tendril::worker::opencl
