// SPDX-License-Identifier: Apache-2.0
// Events: what they say, waiting for them, functions that are called, and events of the program's
// own.
#include "client/opencl/callbacks.h"
#include "client/opencl/forward.h"
#include "client/opencl/information.h"

namespace tendril::client::opencl {
namespace {

using wire::opencl::Subject;

// A function that the program wants called for an event.
struct Wish {
  Event* event;
  cl_event_notify notify;
  void* data;
  cl_int status;
};

void notify(void* argument, int32_t status) {
  const std::unique_ptr<Wish> wish(static_cast<Wish*>(argument));
  wish->notify(handle_of<cl_event>(wish->event), status < 0 ? status : wish->status, wish->data);
  unuse(wish->event);
}

}  // namespace

cl_int clWaitForEvents(cl_uint num_events, const cl_event* event_list) {
  if (num_events == 0 || event_list == nullptr) return CL_INVALID_VALUE;
  Forward forward(true);
  const Event* first = find(event_list[0]);
  wire::opencl::event_wait_request request;
  wire::opencl::event_wait_reply reply;
  request.events = forward.handles(Kind::kEvent, event_list, num_events);
  if (!forward.ok())
    return forward.error() == CL_INVALID_EVENT_WAIT_LIST ? CL_INVALID_EVENT : forward.error();
  return first->session->call(0, request, reply);
}

bool answer_of_event(const Event& event, cl_event_info parameter, const Wanted& answer,
                     cl_int* result) {
  switch (parameter) {
    case CL_EVENT_COMMAND_QUEUE:
      *result = answer.one(handle_of<cl_command_queue>(event.queue));
      return true;
    case CL_EVENT_CONTEXT:
      *result = answer.one(handle_of<cl_context>(event.context));
      return true;
    case CL_EVENT_COMMAND_TYPE:
      *result = answer.one(event.command);
      return true;
    case CL_EVENT_REFERENCE_COUNT:
      *result = answer.one(cl_uint{event.references.load()});
      return true;
    case CL_EVENT_COMMAND_EXECUTION_STATUS:
      if (event.queue != nullptr) return false;
      *result = answer.one(event.user_status.load());
      return true;
    default:
      return false;
  }
}

cl_int ask(const Event& event, cl_event_info parameter, const Wanted& wanted) {
  return ask_server({event.session, wire::opencl::Subject::kEvent, event.wire_id}, parameter,
                    wanted);
}

cl_int clGetEventProfilingInfo(cl_event event, cl_profiling_info param_name,
                               size_t param_value_size, void* param_value,
                               size_t* param_value_size_ret) {
  const Wanted answer = {param_value_size, param_value, param_value_size_ret};
  const Event* found = find(event);
  if (found == nullptr) return CL_INVALID_EVENT;
  if (found->queue == nullptr || (found->queue->plain & CL_QUEUE_PROFILING_ENABLE) == 0)
    return CL_PROFILING_INFO_NOT_AVAILABLE;
  return ask_server({found->session, Subject::kProfiling, found->wire_id}, param_name, answer);
}

cl_event clCreateUserEvent(cl_context context, cl_int* errcode_ret) {
  Context* in = find(context);
  if (in == nullptr) return give<cl_event>(CL_INVALID_CONTEXT, errcode_ret);
  Event* event = create<cl_event>(in->session, in);
  if (event == nullptr) return give<cl_event>(CL_OUT_OF_HOST_MEMORY, errcode_ret);
  event->queue = nullptr;
  event->command = CL_COMMAND_USER;
  event->user_status.store(CL_SUBMITTED);
  wire::opencl::user_event_create_request request;
  request.event = event->wire_id;
  request.context = in->wire_id;
  const cl_int result = in->session->enqueue(0, request);
  if (result != CL_SUCCESS) discard(event);
  return give<cl_event>(result, errcode_ret, event);
}

cl_int clSetUserEventStatus(cl_event event, cl_int execution_status) {
  Event* found = find(event);
  if (found == nullptr || found->queue != nullptr) return CL_INVALID_EVENT;
  if (execution_status > CL_COMPLETE) return CL_INVALID_VALUE;
  cl_int before = CL_SUBMITTED;
  if (!found->user_status.compare_exchange_strong(before, execution_status))
    return CL_INVALID_OPERATION;
  wire::opencl::user_event_set_request request;
  request.event = found->wire_id;
  request.status = execution_status;
  const cl_int result = found->session->enqueue(0, request);
  found->session->lane->flush();
  return result;
}

cl_int clSetEventCallback(cl_event event, cl_int command_exec_callback_type,
                          cl_event_notify pfn_notify, void* user_data) {
  Event* found = find(event);
  if (found == nullptr) return CL_INVALID_EVENT;
  if (pfn_notify == nullptr || command_exec_callback_type < CL_COMPLETE ||
      command_exec_callback_type > CL_SUBMITTED)
    return CL_INVALID_VALUE;
  auto wish =
      std::make_unique<Wish>(Wish{found, pfn_notify, user_data, command_exec_callback_type});
  use(found);
  if (!await_event(found, command_exec_callback_type, {&notify, wish.get()})) {
    unuse(found);
    return CL_OUT_OF_HOST_MEMORY;
  }
  static_cast<void>(wish.release());
  return CL_SUCCESS;
}

// After a loss the function is called as well, with the error.
bool await_event(Event* event, cl_int status, const Callback& callback) {
  wire::opencl::event_watch_request request;
  request.event = event->wire_id;
  request.status = status;
  request.token = await_callback(event->session, callback);
  if (request.token == 0) return false;
  const cl_int result = event->session->enqueue(0, request);
  event->session->lane->flush();
  if (result != CL_SUCCESS) callback_due(request.token, result);
  return true;
}

}  // namespace tendril::client::opencl
