// SPDX-License-Identifier: Apache-2.0
// See command.h.
#include "client/opencl/spread/command.h"

#include <algorithm>

#include "api/opencl_bodies.gen.h"

namespace tendril::client::opencl::spread {
namespace {

void set_elsewhere(void* argument, int32_t status) {
  const auto user_event = static_cast<cl_event>(argument);
  set_as(user_event, status);
  opencl::clReleaseEvent(user_event);
}

}  // namespace

cl_event event_at(Event* event, uint32_t member, cl_int* result) {
  if (event->real != nullptr && event->member == member) return event->real;
  for (const auto& [where, its] : event->elsewhere)
    if (where == member) return its;
  cl_event made = opencl::clCreateUserEvent(context_of(event)->members[member].context, result);
  if (*result != CL_SUCCESS) return nullptr;
  event->elsewhere.emplace_back(member, made);
  if (event->real == nullptr) {
    const cl_int status = event->user_status.load();
    if (status <= CL_COMPLETE) set_as(made, status);
    return made;
  }
  opencl::clRetainEvent(made);
  if (!when_over(event->real, &set_elsewhere, made)) {
    *result = CL_OUT_OF_HOST_MEMORY;
    set_elsewhere(made, *result);
    return nullptr;
  }
  return made;
}

Command::Command(cl_command_queue queue, cl_uint waits, const cl_event* wait)
    : queue_(spread::find(queue)) {
  if (queue_ != nullptr) {
    context_ = context_of(queue_);
    context_->lock.lock();
  } else {
    fail(CL_INVALID_COMMAND_QUEUE);
  }
  if ((wait == nullptr) != (waits == 0)) fail(CL_INVALID_EVENT_WAIT_LIST);
  for (cl_uint i = 0; i < waits && ok(); ++i) {
    cl_int result = CL_SUCCESS;
    Event* const event = spread::find(wait[i]);
    if (event == nullptr)
      fail(CL_INVALID_EVENT_WAIT_LIST);
    else if (event->context != context_)
      fail(CL_INVALID_CONTEXT);
    else
      waits_.events.push_back(event_at(event, queue_->member, &result));
    fail(result);
  }
}

Command::~Command() {
  unlock();
  if (event_ != nullptr) release(event_);  // nobody has it
}

void Command::unlock() {
  if (context_ != nullptr) context_->lock.unlock();
  context_ = nullptr;
}

void Command::prepare(bool blocking, const cl_event* wanted) {
  needs_event_ = blocking || wanted != nullptr;
  for (const Use& use : uses_) {
    if (!ok()) return;
    needs_event_ = needs_event_ || use.access != Access::kRead;
    fail(bring(use, queue_->member, &waits_));
  }
  auto& events = waits_.events;  // a driver may want each once
  std::sort(events.begin(), events.end());
  events.erase(std::unique(events.begin(), events.end()), events.end());
  if (!ok() || wanted == nullptr) return;
  event_ = create<cl_event>(context_);
  if (event_ == nullptr) return fail(CL_OUT_OF_HOST_MEMORY);
  event_->queue = queue_;
  event_->real = nullptr;
  event_->elsewhere.clear();
  event_->member = queue_->member;
  use(queue_);
}

cl_int Command::finish(cl_command_type type, bool blocking, cl_event* wanted, cl_event made) {
  if (!ok()) return error();
  for (const Use& use : uses_)
    if (use.access != Access::kRead) written(use, *queue_, made);
  if (event_ != nullptr) {
    opencl::clRetainEvent(made);
    event_->real = made;
    event_->command = type;
    *wanted = handle_of<cl_event>(event_);
    event_ = nullptr;
  }
  unlock();
  if (blocking) fail(opencl::clWaitForEvents(1, &made));
  if (made != nullptr) opencl::clReleaseEvent(made);
  return error();
}

}  // namespace tendril::client::opencl::spread
