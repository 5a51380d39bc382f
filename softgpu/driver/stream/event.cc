// SPDX-License-Identifier: Apache-2.0
// Events. Each record makes a new Record with its own token, so recording again never disturbs
// those who wait for an earlier record.

#include <algorithm>

#include "softgpu/driver/device/device.h"
#include "softgpu/driver/entry.h"
#include "softgpu/driver/stream/clock.h"
#include "softgpu/driver/stream/shared_event.h"
#include "softgpu/driver/stream/stream.h"
#include "softgpu/driver/stream/work.h"

namespace tendril::softgpu {

EventTable& events() {
  static auto& table = *new EventTable;
  return table;
}

namespace {

// A query about an event that was recorded in a capture is an error and spoils the capture.
CUresult refuse_captured(Capture& capture) {
  std::lock_guard guard(capture_lock());
  StreamPtr origin = capture.origin.lock();
  bool open = origin && origin->capture.get() == &capture;
  if (open && capture.invalidated) return CUDA_ERROR_INVALID_VALUE;
  capture.invalidated = capture.invalidated || open;
  return CUDA_ERROR_CAPTURED_EVENT;
}

// What an event waits for at this moment: a record of this process, or a shared record.
struct Pending {
  TokenPtr token;
  std::shared_ptr<SharedEvent> shared;
  uint32_t number = 0;

  bool done() const { return shared ? shared->complete(number) : !token || token->done(); }
  void wait(const std::atomic<bool>* cancel) const {
    if (shared) {
      const Clock::Pause pause;
      return shared->wait(number, cancel);
    }
    if (token) token->wait();
  }
};

Pending pending_of(const EventPtr& event) {
  std::lock_guard guard(event->lock);
  Pending pending;
  if (event->record) pending.token = event->record->token;
  pending.shared = event->shared;
  if (pending.shared) pending.number = pending.shared->latest();
  return pending;
}

// A record begins. Processes that share the event see it as pending until `token` is complete.
void announce(const std::shared_ptr<SharedEvent>& shared, const TokenPtr& token) {
  if (!shared) return;
  const uint32_t number = shared->begin();
  token->then([shared, number] { shared->finish(number); });
}

}  // namespace

bool share_event(const EventPtr& event) {
  std::lock_guard guard(event->lock);
  if (event->shared) return true;
  event->shared = SharedEvent::create();
  if (!event->shared) return false;
  if (event->record && event->record->token) announce(event->shared, event->record->token);
  return true;
}

CUresult RecordWork::run(Context&) {
  std::lock_guard guard(event->lock);
  auto record = std::make_shared<Record>();
  record->token = std::make_shared<Token>();
  record->time_ns = Clock::instance().now_ns();
  announce(event->shared, record->token);
  record->token->complete();
  event->record = record;
  return CUDA_SUCCESS;
}

CUresult WaitWork::run(Context& context) {
  pending_of(event).wait(context.cancel());
  return CUDA_SUCCESS;
}

CUresult record_event(const EventPtr& event, const StreamPtr& stream, const ContextPtr& context,
                      unsigned flags) {
  auto record = std::make_shared<Record>();
  if (any_capture()) {
    std::lock_guard guard(capture_lock());
    if (stream->capture && flags != CU_EVENT_RECORD_EXTERNAL) {
      if (stream->capture->invalidated) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
      record->capture = stream->capture;
      record->frontier = stream->frontier;
      std::lock_guard inner(event->lock);
      event->record = std::move(record);
      return CUDA_SUCCESS;
    }
    if (stream->capture) {
      auto work = std::make_shared<RecordWork>();
      work->event = event;
      return submit_work(stream, context, work);
    }
  }
  record->token = std::make_shared<Token>();
  QueuedOp op;
  op.token = record->token;
  op.run = [record] { record->time_ns = Clock::instance().now_ns(); };
  {
    std::lock_guard guard(event->lock);
    event->record = record;
    announce(event->shared, record->token);
  }
  context->submit(stream, std::move(op), /*inline_ok=*/true);
  return CUDA_SUCCESS;
}

CUresult wait_event(const EventPtr& event, const StreamPtr& stream, const ContextPtr& context,
                    unsigned flags) {
  std::shared_ptr<Record> record = event->current();
  if (any_capture()) {
    std::lock_guard guard(capture_lock());
    bool external = flags == CU_EVENT_WAIT_EXTERNAL;
    // Nobody joins a capture that is over: its graph is the program's.
    if (record && record->capture && !record->capture->over && !external) {
      if (record->capture->invalidated) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
      if (stream->is_legacy) return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
      if (stream->capture && stream->capture != record->capture) {
        stream->capture->invalidated = true;
        record->capture->invalidated = true;
        return CUDA_ERROR_STREAM_CAPTURE_MERGE;
      }
      if (!stream->capture) {
        stream->capture = record->capture;
        stream->frontier.clear();
        record->capture->joined.push_back(stream);
      }
      for (const auto& node : record->frontier)
        if (std::find(stream->frontier.begin(), stream->frontier.end(), node) ==
            stream->frontier.end())
          stream->frontier.push_back(node);
      return CUDA_SUCCESS;
    }
    if (stream->capture && external) {
      auto work = std::make_shared<WaitWork>();
      work->event = event;
      return submit_work(stream, context, work);
    }
    if (stream->capture) {
      // Waiting inside a capture for work outside of it would order a graph after something that it
      // does not contain.
      stream->capture->invalidated = true;
      return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
    }
  }
  const Pending pending = pending_of(event);
  if (pending.done()) return CUDA_SUCCESS;
  QueuedOp op;
  if (pending.shared) {
    op.run = [pending, context] { pending.wait(context->cancel()); };
  } else {
    op.after.push_back(pending.token);
    op.run = [] {};
  }
  context->submit(stream, std::move(op));
  return CUDA_SUCCESS;
}

SOFT(cuEventCreate)(CUevent* phEvent, unsigned int Flags) {
  constexpr unsigned kAll =
      CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
  if (phEvent == nullptr || (Flags & ~kAll) != 0) return CUDA_ERROR_INVALID_VALUE;
  if ((Flags & CU_EVENT_INTERPROCESS) != 0 && (Flags & CU_EVENT_DISABLE_TIMING) == 0)
    return CUDA_ERROR_INVALID_VALUE;
  SOFT_CONTEXT(context);
  auto made = std::make_shared<Event>();
  made->context = context;
  made->context_handle = context->handle;
  made->flags = Flags;
  made->handle = events().mint();
  events().put(made->handle, made);
  *phEvent = made->handle;
  return CUDA_SUCCESS;
}

SOFT(cuEventDestroy_v2)(CUevent hEvent) {
  if (!events().remove(hEvent)) return CUDA_ERROR_INVALID_HANDLE;
  return CUDA_SUCCESS;
}

SOFT(cuEventDestroy)(CUevent hEvent) { return soft_cuEventDestroy_v2(hEvent); }

SOFT(cuEventRecordWithFlags)(CUevent hEvent, CUstream hStream, unsigned int flags) {
  EventPtr event = events().get(hEvent);
  if (!event) return CUDA_ERROR_INVALID_HANDLE;
  if (flags > CU_EVENT_RECORD_EXTERNAL) return CUDA_ERROR_INVALID_VALUE;
  StreamPtr stream;
  ContextPtr context;
  if (CUresult bad = find_stream(hStream, &stream, &context)) return bad;
  if (context->handle != event->context_handle) return CUDA_ERROR_INVALID_HANDLE;
  return record_event(event, stream, context, flags);
}

SOFT(cuEventRecord)(CUevent hEvent, CUstream hStream) {
  return soft_cuEventRecordWithFlags(hEvent, hStream, 0);
}

SOFT(cuStreamWaitEvent)(CUstream hStream, CUevent hEvent, unsigned int Flags) {
  EventPtr event = events().get(hEvent);
  if (!event) return CUDA_ERROR_INVALID_HANDLE;
  if (Flags > CU_EVENT_WAIT_EXTERNAL) return CUDA_ERROR_INVALID_VALUE;
  StreamPtr stream;
  ContextPtr context;
  if (CUresult bad = find_stream(hStream, &stream, &context)) return bad;
  return wait_event(event, stream, context, Flags);
}

SOFT(cuEventQuery)(CUevent hEvent) {
  EventPtr event = events().get(hEvent);
  if (!event) return CUDA_ERROR_INVALID_HANDLE;
  ContextPtr context = event->context.lock();
  if (!context) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  if (context->error() != CUDA_SUCCESS) return context->error();
  std::shared_ptr<Record> record = event->current();
  if (record && record->capture) return refuse_captured(*record->capture);
  if (!pending_of(event).done()) {
    Clock::instance().asked_in_vain();
    return CUDA_ERROR_NOT_READY;
  }
  return context->error();
}

SOFT(cuEventSynchronize)(CUevent hEvent) {
  EventPtr event = events().get(hEvent);
  if (!event) return CUDA_ERROR_INVALID_HANDLE;
  ContextPtr context = event->context.lock();
  if (!context) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  if (context->error() != CUDA_SUCCESS) return context->error();
  std::shared_ptr<Record> record = event->current();
  if (record && record->capture) return refuse_captured(*record->capture);
  pending_of(event).wait(context->cancel());
  settle_pools();
  context->flush_print();
  return context->error();
}

SOFT(cuEventElapsedTime_v2)(float* pMilliseconds, CUevent hStart, CUevent hEnd) {
  if (pMilliseconds == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  EventPtr start = events().get(hStart), end = events().get(hEnd);
  if (!start || !end || start->context_handle != end->context_handle)
    return CUDA_ERROR_INVALID_HANDLE;
  if (((start->flags | end->flags) & CU_EVENT_DISABLE_TIMING) != 0)
    return CUDA_ERROR_INVALID_HANDLE;
  ContextPtr context = start->context.lock();
  if (!context) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  if (context->error() != CUDA_SUCCESS) return context->error();
  std::shared_ptr<Record> from = start->current(), to = end->current();
  if (!from || !to || from->capture || to->capture) return CUDA_ERROR_INVALID_HANDLE;
  if (!from->token->done() || !to->token->done()) return CUDA_ERROR_NOT_READY;
  *pMilliseconds = static_cast<float>(static_cast<double>(to->time_ns - from->time_ns) * 1e-6);
  return CUDA_SUCCESS;
}

SOFT(cuEventElapsedTime)(float* pMilliseconds, CUevent hStart, CUevent hEnd) {
  return soft_cuEventElapsedTime_v2(pMilliseconds, hStart, hEnd);
}

}  // namespace tendril::softgpu
