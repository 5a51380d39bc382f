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
  uint32_t member = 0;
  if (!member_of(*in, device, &member))
    return give<cl_command_queue>(CL_INVALID_DEVICE, errcode_ret);
  cl_int result = CL_SUCCESS;
  const cl_command_queue real = make(in->members[member].context, &result);
  if (real == nullptr) return give<cl_command_queue>(result, errcode_ret);
  Queue* queue = create<cl_command_queue>(in);
  if (queue == nullptr) {
    opencl::clReleaseCommandQueue(real);
    return give<cl_command_queue>(CL_OUT_OF_HOST_MEMORY, errcode_ret);
  }
  const opencl::Queue* its = opencl::find(real);
  queue->device = its->device;
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

cl_int ask(const Queue& queue, cl_command_queue_info parameter, const Wanted& wanted) {
  return opencl::clGetCommandQueueInfo(queue.real, parameter, wanted.room, wanted.value,
                                       wanted.length);
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

}  // namespace tendril::client::opencl::spread
