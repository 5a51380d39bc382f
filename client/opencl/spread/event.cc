// SPDX-License-Identifier: Apache-2.0
// Events of contexts over several servers. A user event of the program's is one at each server
// whose commands wait for it.
#include "client/opencl/information.h"
#include "client/opencl/spread/command.h"
#include "client/opencl/spread/functions.h"

namespace tendril::client::opencl::spread {
namespace {

// The ordinary event that says the most: the command's own, or the program's at the first server.
cl_event real_of(Event* event, cl_int* result) {
  Context* const context = context_of(event);
  const base::Locked held(context->lock);
  return event_at(event, event->real != nullptr ? event->member : 0, result);
}

}  // namespace

// One server's events are waited for after the other's. All go on meanwhile.
cl_int clWaitForEvents(cl_uint num_events, const cl_event* event_list) {
  if (num_events == 0 || event_list == nullptr) return CL_INVALID_VALUE;
  std::vector<std::pair<Session*, cl_event>> reals;
  const Object* context = nullptr;
  for (cl_uint i = 0; i < num_events; ++i) {
    Event* event = find(event_list[i]);
    if (event == nullptr) return CL_INVALID_EVENT;
    if (context != nullptr && event->context != context) return CL_INVALID_CONTEXT;
    context = event->context;
    cl_int result = CL_SUCCESS;
    const cl_event real = real_of(event, &result);
    if (real == nullptr) return result;
    reals.emplace_back(opencl::find(real)->session, real);
    if (event->queue != nullptr) (void)opencl::clFlush(static_cast<Queue*>(event->queue)->real);
  }
  cl_int result = CL_SUCCESS;
  for (const Member& member : static_cast<const Context*>(context)->members) {
    std::vector<cl_event> mine;
    for (const auto& [session, real] : reals)
      if (session == member.session) mine.push_back(real);
    if (mine.empty()) continue;
    const cl_int waited = opencl::clWaitForEvents(static_cast<cl_uint>(mine.size()), mine.data());
    if (result == CL_SUCCESS) result = waited;
  }
  return result;
}

cl_int ask(const Event& event, cl_event_info parameter, const Wanted& wanted) {
  if (event.real == nullptr) return CL_INVALID_VALUE;
  return opencl::clGetEventInfo(event.real, parameter, wanted.room, wanted.value, wanted.length);
}

cl_int clGetEventProfilingInfo(cl_event event, cl_profiling_info param_name,
                               size_t param_value_size, void* param_value,
                               size_t* param_value_size_ret) {
  const Event* found = find(event);
  if (found == nullptr) return CL_INVALID_EVENT;
  if (found->real == nullptr) return CL_PROFILING_INFO_NOT_AVAILABLE;
  return opencl::clGetEventProfilingInfo(found->real, param_name, param_value_size, param_value,
                                         param_value_size_ret);
}

cl_event clCreateUserEvent(cl_context context, cl_int* errcode_ret) {
  Context* in = find(context);
  if (in == nullptr) return give<cl_event>(CL_INVALID_CONTEXT, errcode_ret);
  Event* event = create<cl_event>(in);
  if (event == nullptr) return give<cl_event>(CL_OUT_OF_HOST_MEMORY, errcode_ret);
  event->queue = nullptr;
  event->real = nullptr;
  event->elsewhere.clear();
  event->command = CL_COMMAND_USER;
  event->user_status.store(CL_SUBMITTED);
  return give<cl_event>(CL_SUCCESS, errcode_ret, event);
}

cl_int clSetUserEventStatus(cl_event event, cl_int execution_status) {
  Event* found = find(event);
  if (found == nullptr || found->queue != nullptr) return CL_INVALID_EVENT;
  if (execution_status > CL_COMPLETE) return CL_INVALID_VALUE;
  const base::Locked held(context_of(found)->lock);
  cl_int before = CL_SUBMITTED;
  if (!found->user_status.compare_exchange_strong(before, execution_status))
    return CL_INVALID_OPERATION;
  for (const auto& [member, its] : found->elsewhere) set_as(its, execution_status);
  return CL_SUCCESS;
}

namespace {

struct Wish {
  Event* event;
  cl_event_notify notify;
  void* data;
};
void notify(cl_event, cl_int status, void* argument) {
  const std::unique_ptr<Wish> wish(static_cast<Wish*>(argument));
  wish->notify(handle_of<cl_event>(wish->event), status, wish->data);
  unuse(wish->event);
}

}  // namespace

cl_int clSetEventCallback(cl_event event, cl_int command_exec_callback_type,
                          cl_event_notify pfn_notify, void* user_data) {
  Event* found = find(event);
  if (found == nullptr) return CL_INVALID_EVENT;
  if (pfn_notify == nullptr) return CL_INVALID_VALUE;
  cl_int result = CL_SUCCESS;
  const cl_event real = real_of(found, &result);
  if (real == nullptr) return result;
  auto wish = std::make_unique<Wish>(Wish{found, pfn_notify, user_data});
  use(found);
  result = opencl::clSetEventCallback(real, command_exec_callback_type, &notify, wish.get());
  if (result == CL_SUCCESS)
    static_cast<void>(wish.release());
  else
    unuse(found);
  return result;
}

}  // namespace tendril::client::opencl::spread
