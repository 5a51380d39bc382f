// SPDX-License-Identifier: Apache-2.0
// Waits for events, words about them, and user events.
#include "api/opencl_handlers.gen.h"
#include "worker/opencl/executor.h"
#include "worker/opencl/scope.h"

namespace tendril::worker::opencl {
namespace {

// A driver may keep commands until their queue is flushed, and natively a wait flushes. One driver
// takes one failed command with each flush. So this goes on as long as it gets somewhere.
void submit(Executor& w, const cl_event* events, uint64_t count) {
  const gpu::OpenclDriver& driver = w.driver();
  for (uint64_t before = count + 1, queued = count; queued != 0 && queued < before;) {
    before = queued;
    queued = 0;
    for (uint64_t i = 0; i < count; ++i) {
      if (w.jobs().status_of(events[i]) != CL_QUEUED) continue;
      cl_command_queue queue = nullptr;
      driver.clGetEventInfo(events[i], CL_EVENT_COMMAND_QUEUE, sizeof queue, &queue, nullptr);
      const uint64_t id = queue != nullptr ? w.queue_of(queue) : 0;
      if (id == 0) continue;
      w.flush(id, queue);
      ++queued;
    }
  }
}

}  // namespace

cl_int handle(Executor& w, const wire::opencl::event_wait_request& m,
              wire::opencl::event_wait_reply&) {
  Scope scope(w);
  const cl_event* events = scope.handles<cl_event>(Kind::kEvent, m.events);
  if (!scope.ok() || m.events.count == 0) return scope.ok() ? CL_INVALID_VALUE : CL_INVALID_EVENT;
  submit(w, events, m.events.count);
  std::vector<JobRef> before;
  for (const uint64_t id : m.events)
    if (JobRef job = w.held(id)) before.push_back(std::move(job));
  w.replies().take_over();
  session::Service* const service = &w.service();
  const uint32_t reply_id = w.call().reply_id;
  w.jobs().add(
      std::vector<cl_event>(events, events + m.events.count), std::move(before),
      [service, reply_id](cl_int status) {
        const cl_int result =
            status < 0 ? CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST : CL_SUCCESS;
        service->reply(reply_id, result, nullptr, 0);
      },
      false);
  return CL_SUCCESS;
}

namespace {

void tell(session::Service* service, uint64_t token, cl_int status) {
  const wire::opencl::News news = {token, status, 0};
  service->push(wire::FrameKind::kNews, 0, &news, sizeof news);
}

struct Watch {
  session::Service* service;
  uint64_t token;
};

// One of the driver's threads calls it.
void reached(cl_event, cl_int status, void* watch) {
  const std::unique_ptr<Watch> mine(static_cast<Watch*>(watch));
  tell(mine->service, mine->token, status);
}

}  // namespace

cl_int handle(Executor& w, const wire::opencl::event_watch_request& m) {
  Scope scope(w);
  auto event = scope.get<cl_event>(Kind::kEvent, m.event);
  if (!scope.ok()) return scope.error();
  session::Service* const service = &w.service();
  const uint64_t token = m.token;
  if (m.status == CL_COMPLETE) {
    std::vector<JobRef> before;
    if (JobRef job = w.held(m.event)) before.push_back(std::move(job));
    w.jobs().add(
        {event}, std::move(before),
        [service, token](cl_int status) { tell(service, token, status); }, false);
    return CL_SUCCESS;
  }
  if (w.driver().clSetEventCallback == nullptr) return CL_INVALID_OPERATION;
  auto watch = std::make_unique<Watch>(Watch{service, token});
  const cl_int result = w.driver().clSetEventCallback(event, m.status, &reached, watch.get());
  if (result == CL_SUCCESS) static_cast<void>(watch.release());
  return result;
}

cl_int handle(Executor& w, const wire::opencl::user_event_create_request& m) {
  Scope scope(w);
  scope.reserve(Kind::kEvent, m.event);
  auto context = scope.get<cl_context>(Kind::kContext, m.context);
  if (!scope.ok()) return scope.error();
  cl_int result = CL_SUCCESS;
  cl_event event = w.driver().clCreateUserEvent(context, &result);
  if (result == CL_SUCCESS) scope.bind(Kind::kEvent, m.event, event);
  return result;
}

cl_int handle(Executor& w, const wire::opencl::user_event_set_request& m) {
  Scope scope(w);
  auto event = scope.get<cl_event>(Kind::kEvent, m.event);
  return scope.ok() ? w.driver().clSetUserEventStatus(event, m.status) : scope.error();
}

}  // namespace tendril::worker::opencl
