// SPDX-License-Identifier: Apache-2.0
// Queues of contexts over several servers. Each is one of the server that has its device.
#include "client/opencl/information.h"
#include "client/opencl/spread/command.h"
#include "client/opencl/spread/functions.h"

namespace tendril::client::opencl::spread {
namespace {

// `make(context, &error)` makes the ordinary one.
template <typename Make>
cl_command_queue make(cl_context context, cl_device_id device, cl_int* errcode_ret, Make&& make) {
  Context* in = find(context);
  if (in == nullptr) return give<cl_command_queue>(CL_INVALID_CONTEXT, errcode_ret);
  Device* on = opencl::find(device);
  uint32_t member = 0;
  while (member < in->members.size() &&
         (on == nullptr || in->members[member].session != on->session))
    ++member;
  if (member == in->members.size()) return give<cl_command_queue>(CL_INVALID_DEVICE, errcode_ret);
  cl_int result = CL_SUCCESS;
  const cl_command_queue real = make(in->members[member].context, &result);
  if (real == nullptr) return give<cl_command_queue>(result, errcode_ret);
  Queue* queue = create<cl_command_queue>(in);
  if (queue == nullptr) {
    opencl::clReleaseCommandQueue(real);
    return give<cl_command_queue>(CL_OUT_OF_HOST_MEMORY, errcode_ret);
  }
  const opencl::Queue* its = opencl::find(real);
  queue->device = on;
  queue->plain = its->plain;
  queue->properties = its->properties;
  queue->member = member;
  queue->real = real;
  queue->in_order = (its->plain & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE) == 0;
  return give<cl_command_queue>(CL_SUCCESS, errcode_ret, queue);
}

}  // namespace

cl_command_queue clCreateCommandQueue(cl_context context, cl_device_id device,
                                      cl_command_queue_properties properties, cl_int* errcode_ret) {
  return make(context, device, errcode_ret, [&](cl_context at, cl_int* error) {
    return opencl::clCreateCommandQueue(at, device, properties, error);
  });
}

cl_command_queue clCreateCommandQueueWithProperties(cl_context context, cl_device_id device,
                                                    const cl_queue_properties* properties,
                                                    cl_int* errcode_ret) {
  return make(context, device, errcode_ret, [&](cl_context at, cl_int* error) {
    return opencl::clCreateCommandQueueWithProperties(at, device, properties, error);
  });
}

cl_int clRetainCommandQueue(cl_command_queue command_queue) { return retain_handle(command_queue); }

cl_int clReleaseCommandQueue(cl_command_queue command_queue) {
  (void)spread::clFlush(command_queue);
  return release_handle(command_queue);
}

cl_int clGetCommandQueueInfo(cl_command_queue command_queue, cl_command_queue_info param_name,
                             size_t param_value_size, void* param_value,
                             size_t* param_value_size_ret) {
  const Wanted answer = {param_value_size, param_value, param_value_size_ret};
  const Queue* found = find(command_queue);
  if (found == nullptr) return CL_INVALID_COMMAND_QUEUE;
  if (param_name == CL_QUEUE_CONTEXT) return answer.one(handle_of<cl_context>(found->context));
  if (param_name == CL_QUEUE_REFERENCE_COUNT) return answer.one(cl_uint{found->references.load()});
  return opencl::clGetCommandQueueInfo(found->real, param_name, param_value_size, param_value,
                                       param_value_size_ret);
}

cl_int clFlush(cl_command_queue command_queue) {
  const Queue* found = find(command_queue);
  return found != nullptr ? opencl::clFlush(found->real) : CL_INVALID_COMMAND_QUEUE;
}

cl_int clFinish(cl_command_queue command_queue) {
  const Queue* found = find(command_queue);
  return found != nullptr ? opencl::clFinish(found->real) : CL_INVALID_COMMAND_QUEUE;
}

cl_int clEnqueueMarkerWithWaitList(cl_command_queue command_queue, cl_uint num_events_in_wait_list,
                                   const cl_event* event_wait_list, cl_event* event) {
  Command c(command_queue, num_events_in_wait_list, event_wait_list);
  return c.run(CL_COMMAND_MARKER, false, event, [&](cl_event* made) {
    return opencl::clEnqueueMarkerWithWaitList(c.queue(), c.waits(), c.wait(), made);
  });
}

cl_int clEnqueueBarrierWithWaitList(cl_command_queue command_queue, cl_uint num_events_in_wait_list,
                                    const cl_event* event_wait_list, cl_event* event) {
  Command c(command_queue, num_events_in_wait_list, event_wait_list);
  return c.run(CL_COMMAND_BARRIER, false, event, [&](cl_event* made) {
    return opencl::clEnqueueBarrierWithWaitList(c.queue(), c.waits(), c.wait(), made);
  });
}

cl_int clEnqueueMarker(cl_command_queue command_queue, cl_event* event) {
  if (event == nullptr) return CL_INVALID_VALUE;
  return spread::clEnqueueMarkerWithWaitList(command_queue, 0, nullptr, event);
}

cl_int clEnqueueBarrier(cl_command_queue command_queue) {
  return spread::clEnqueueBarrierWithWaitList(command_queue, 0, nullptr, nullptr);
}

cl_int clEnqueueWaitForEvents(cl_command_queue command_queue, cl_uint num_events,
                              const cl_event* event_list) {
  if (num_events == 0 || event_list == nullptr) return CL_INVALID_VALUE;
  const cl_int result =
      spread::clEnqueueBarrierWithWaitList(command_queue, num_events, event_list, nullptr);
  return result == CL_INVALID_EVENT_WAIT_LIST ? CL_INVALID_EVENT : result;
}

}  // namespace tendril::client::opencl::spread
