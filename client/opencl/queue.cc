// SPDX-License-Identifier: Apache-2.0
// Queues of commands.
#include "client/opencl/forward.h"
#include "client/opencl/information.h"

namespace tendril::client::opencl {
namespace {

Queue* make(Context* context, Device* device, const std::vector<cl_queue_properties>& properties,
            cl_int* result) {
  Queue* queue = create<cl_command_queue>(context->session, context);
  if (queue == nullptr) {
    *result = CL_OUT_OF_HOST_MEMORY;
    return nullptr;
  }
  queue->device = device;
  queue->properties.clear();
  queue->plain = 0;
  for (size_t i = 0; i + 1 < properties.size(); i += 2)
    if (properties[i] == CL_QUEUE_PROPERTIES) queue->plain = properties[i + 1];
  wire::opencl::queue_create_request request;
  wire::opencl::queue_create_reply reply;
  request.queue = queue->wire_id;
  request.context = context->wire_id;
  request.device = device->wire_id;
  request.properties = {properties.data(), properties.size()};
  *result = context->session->call(0, request, reply);
  if (*result == CL_SUCCESS) return queue;
  discard(queue);
  return nullptr;
}

// The device, if it is one of the context's.
Device* device_of(const Context* context, cl_device_id device) {
  Device* found = find(device);
  for (Device* each : context->devices)
    if (each == found) return found;
  return nullptr;
}

}  // namespace

cl_command_queue clCreateCommandQueue(cl_context context, cl_device_id device,
                                      cl_command_queue_properties properties, cl_int* errcode_ret) {
  Context* in = find(context);
  if (in == nullptr) return give<cl_command_queue>(CL_INVALID_CONTEXT, errcode_ret);
  Device* on = device_of(in, device);
  if (on == nullptr) return give<cl_command_queue>(CL_INVALID_DEVICE, errcode_ret);
  constexpr cl_command_queue_properties kKnown =
      CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE | CL_QUEUE_PROFILING_ENABLE;
  if ((properties & ~kKnown) != 0) return give<cl_command_queue>(CL_INVALID_VALUE, errcode_ret);
  cl_int result = CL_SUCCESS;
  Queue* queue = make(in, on, {CL_QUEUE_PROPERTIES, properties, 0}, &result);
  return give<cl_command_queue>(result, errcode_ret, queue);
}

cl_command_queue clCreateCommandQueueWithProperties(cl_context context, cl_device_id device,
                                                    const cl_queue_properties* properties,
                                                    cl_int* errcode_ret) {
  Context* in = find(context);
  if (in == nullptr) return give<cl_command_queue>(CL_INVALID_CONTEXT, errcode_ret);
  Device* on = device_of(in, device);
  if (on == nullptr) return give<cl_command_queue>(CL_INVALID_DEVICE, errcode_ret);
  std::vector<cl_queue_properties> given;
  for (size_t i = 0; properties != nullptr && properties[i] != 0; i += 2) {
    given.push_back(properties[i]);
    given.push_back(properties[i + 1]);
    if (properties[i] == CL_QUEUE_PROPERTIES && (properties[i + 1] & CL_QUEUE_ON_DEVICE) != 0)
      return give<cl_command_queue>(CL_INVALID_QUEUE_PROPERTIES, errcode_ret);
  }
  given.push_back(0);
  cl_int result = CL_SUCCESS;
  Queue* queue = make(in, on, given, &result);
  if (queue != nullptr && properties != nullptr) queue->properties = given;
  return give<cl_command_queue>(result, errcode_ret, queue);
}

cl_int clRetainCommandQueue(cl_command_queue command_queue) { return retain_handle(command_queue); }

// A release is a flush as well.
cl_int clReleaseCommandQueue(cl_command_queue command_queue) {
  if (find(command_queue) != nullptr) (void)opencl::clFlush(command_queue);
  return release_handle(command_queue);
}

cl_int clGetCommandQueueInfo(cl_command_queue command_queue, cl_command_queue_info param_name,
                             size_t param_value_size, void* param_value,
                             size_t* param_value_size_ret) {
  const Wanted answer = {param_value_size, param_value, param_value_size_ret};
  const Queue* found = find(command_queue);
  if (found == nullptr) return CL_INVALID_COMMAND_QUEUE;
  switch (param_name) {
    case CL_QUEUE_CONTEXT:
      return answer.one(handle_of<cl_context>(found->context));
    case CL_QUEUE_DEVICE:
      return answer.one(handle_of<cl_device_id>(found->device));
    case CL_QUEUE_REFERENCE_COUNT:
      return answer.one(cl_uint{found->references.load()});
    case CL_QUEUE_PROPERTIES:
      return answer.one(found->plain);
    case CL_QUEUE_PROPERTIES_ARRAY:
      return answer.list(found->properties);
    case CL_QUEUE_DEVICE_DEFAULT:
      return answer.one(cl_command_queue{nullptr});
    default:
      return ask_server({found->session, wire::opencl::Subject::kQueue, found->wire_id}, param_name,
                        answer);
  }
}

cl_int clFlush(cl_command_queue command_queue) {
  Queue* queue = find(command_queue);
  if (queue == nullptr) return CL_INVALID_COMMAND_QUEUE;
  wire::opencl::queue_flush_request request;
  request.queue = queue->wire_id;
  const cl_int result = queue->session->enqueue(0, request);
  queue->session->lane->flush();
  return result;
}

cl_int clFinish(cl_command_queue command_queue) {
  Queue* queue = find(command_queue);
  if (queue == nullptr) return CL_INVALID_COMMAND_QUEUE;
  wire::opencl::queue_finish_request request;
  wire::opencl::queue_finish_reply reply;
  request.queue = queue->wire_id;
  return queue->session->call(0, request, reply);
}

cl_int clEnqueueMarker(cl_command_queue command_queue, cl_event* event) {
  if (event == nullptr) return CL_INVALID_VALUE;
  return opencl::clEnqueueMarkerWithWaitList(command_queue, 0, nullptr, event);
}

cl_int clEnqueueBarrier(cl_command_queue command_queue) {
  return opencl::clEnqueueBarrierWithWaitList(command_queue, 0, nullptr, nullptr);
}

cl_int clEnqueueWaitForEvents(cl_command_queue command_queue, cl_uint num_events,
                              const cl_event* event_list) {
  if (num_events == 0 || event_list == nullptr) return CL_INVALID_VALUE;
  const cl_int result =
      opencl::clEnqueueBarrierWithWaitList(command_queue, num_events, event_list, nullptr);
  return result == CL_INVALID_EVENT_WAIT_LIST ? CL_INVALID_EVENT : result;
}

}  // namespace tendril::client::opencl
