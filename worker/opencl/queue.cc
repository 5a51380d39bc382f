// SPDX-License-Identifier: Apache-2.0
// Queues: made, flushed and finished.
#include <algorithm>

#include "api/opencl_handlers.gen.h"
#include "worker/opencl/executor.h"
#include "worker/opencl/in_place.h"
#include "worker/opencl/scope.h"

namespace tendril::worker::opencl {
namespace {

cl_command_queue make(const gpu::OpenclDriver& driver, cl_context context, cl_device_id device,
                      const std::vector<cl_queue_properties>& properties,
                      cl_command_queue_properties plain, cl_int* result) {
  if (driver.clCreateCommandQueueWithProperties != nullptr)
    return driver.clCreateCommandQueueWithProperties(
        context, device, properties.size() > 1 ? properties.data() : nullptr, result);
  if (driver.clCreateCommandQueue == nullptr) {
    *result = CL_INVALID_OPERATION;
    return nullptr;
  }
  return driver.clCreateCommandQueue(context, device, plain, result);
}

}  // namespace

cl_int handle(Executor& w, const wire::opencl::queue_create_request& m,
              wire::opencl::queue_create_reply&) {
  Scope scope(w);
  scope.reserve(Kind::kQueue, m.queue);
  auto context = scope.get<cl_context>(Kind::kContext, m.context);
  auto device = scope.get<cl_device_id>(Kind::kDevice, m.device);
  if (!scope.ok()) return scope.error();
  if (m.properties.count > kPropertiesMax) return CL_INVALID_VALUE;
  std::vector<cl_queue_properties> properties;
  cl_command_queue_properties plain = 0;
  for (uint64_t i = 0; i + 1 < m.properties.count && m.properties[i] != 0; i += 2) {
    properties.push_back(m.properties[i]);
    properties.push_back(m.properties[i + 1]);
    if (m.properties[i] == CL_QUEUE_PROPERTIES) plain = m.properties[i + 1];
  }
  properties.push_back(0);
  cl_int result = CL_SUCCESS;
  cl_command_queue queue = make(w.driver(), context, device, properties, plain, &result);
  if (result != CL_SUCCESS) return result;
  QueueState state;
  state.context = context;
  state.slot = w.slot_of(device);
  state.in_order = (plain & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE) == 0;
  state.in_place = copies_in_place(w.driver(), device, state.in_order, plain);
  w.queues()[m.queue] = std::move(state);
  scope.bind(Kind::kQueue, m.queue, queue);
  return result;
}

cl_int handle(Executor& w, const wire::opencl::queue_flush_request& m) {
  Scope scope(w);
  auto queue = scope.get<cl_command_queue>(Kind::kQueue, m.queue);
  w.adds_nothing();
  return scope.ok() ? w.flush(m.queue, queue) : scope.error();
}

// The answer comes when everything in the queue is over and the client has all data. The last
// command of a queue in order tells that. If it is not known, a marker does.
cl_int handle(Executor& w, const wire::opencl::queue_finish_request& m,
              wire::opencl::queue_finish_reply&) {
  Scope scope(w);
  auto queue = scope.get<cl_command_queue>(Kind::kQueue, m.queue);
  if (!scope.ok()) return scope.error();
  QueueState& state = *w.queue(m.queue);
  if (state.last == nullptr) {
    const cl_int result = w.driver().clEnqueueMarkerWithWaitList(queue, 0, nullptr, &state.last);
    if (result != CL_SUCCESS) return result;
  }
  w.adds_nothing();
  w.flush(m.queue, queue);
  const cl_int owed = state.owed;
  state.owed = CL_SUCCESS;
  w.replies().take_over();
  session::Service* const service = &w.service();
  const uint32_t reply_id = w.call().reply_id;
  std::vector<JobRef> reads;
  reads.swap(state.reads);
  w.jobs().add(
      {state.last}, std::move(reads),
      [service, reply_id, owed, failure = state.failure](cl_int) {
        const cl_int late = failure->exchange(CL_SUCCESS);
        service->reply(reply_id, owed != CL_SUCCESS ? owed : late, nullptr, 0);
      },
      false);
  return CL_SUCCESS;
}

}  // namespace tendril::worker::opencl
