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

bool answer_of_queue(const Queue& queue, cl_command_queue_info parameter, const Wanted& answer,
                     cl_int* result) {
  switch (parameter) {
    case CL_QUEUE_CONTEXT:
      *result = answer.one(handle_of<cl_context>(queue.context));
      return true;
    case CL_QUEUE_DEVICE:
      *result = answer.one(handle_of<cl_device_id>(queue.device));
      return true;
    case CL_QUEUE_REFERENCE_COUNT:
      *result = answer.one(cl_uint{queue.references.load()});
      return true;
    case CL_QUEUE_PROPERTIES:
      *result = answer.one(queue.plain);
      return true;
    case CL_QUEUE_PROPERTIES_ARRAY:
      *result = answer.list(queue.properties);
      return true;
    case CL_QUEUE_DEVICE_DEFAULT:
      *result = answer.one(cl_command_queue{nullptr});
      return true;
    default:
      return false;
  }
}

cl_int ask(const Queue& queue, cl_command_queue_info parameter, const Wanted& wanted) {
  return ask_server({queue.session, wire::opencl::Subject::kQueue, queue.wire_id}, parameter,
                    wanted);
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

}  // namespace tendril::client::opencl
