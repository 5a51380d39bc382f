// SPDX-License-Identifier: Apache-2.0
// Events. A record is enqueued. A query is answered here if an earlier wait proved the event
// complete.
#include "client/cuda/bodies.h"
#include "client/cuda/memory/mirror.h"
#include "client/cuda/stream/capture.h"

namespace tendril::client::cuda {
namespace {

constexpr unsigned kEventFlags =
    CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;

CUresult event_of(CUevent handle, Event** out) {
  Process* p = process();
  if (p == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  *out = p->events.find(Kind::kEvent, handle_value(handle));
  if (*out == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return static_cast<CUresult>((*out)->context->sticky.load(std::memory_order_relaxed));
}

bool known_complete(const Event* e) {
  if (e->external.load(std::memory_order_relaxed)) return false;
  const uint64_t recorded = e->recorded.load(std::memory_order_acquire);
  if (recorded == 0 || recorded <= e->context->synchronised.load(std::memory_order_acquire))
    return true;
  // The record of a destroyed stream may serve another now: the id tells.
  const Stream* stream = e->stream.load();
  return recorded != Event::kUntold && stream != nullptr &&
         recorded <= stream->synchronised.load(std::memory_order_acquire) &&
         stream->wire_id == e->recorded_on.load(std::memory_order_relaxed);
}

CUresult send_record(Context* c, const Event* e, const Stream* s, unsigned flags) {
  // A stream that waits for the event may be given what was freed before it.
  if (!c->session->freed.empty())
    c->session->send_frees(s != nullptr ? s->wire_id : FreedBlocks::kAnyStream);
  if (e->shared.load(std::memory_order_relaxed)) {
    wire::cuda::ipc_record_event_request now;
    wire::cuda::ipc_record_event_reply r;
    now.event = e->wire_id;
    now.stream = stream_wire_id(s);
    now.flags = flags;
    return c->session->call(c, now, r);
  }
  wire::cuda::event_record_request m;
  m.event = e->wire_id;
  m.stream = stream_wire_id(s);
  m.flags = flags;
  return c->session->enqueue(c, m);
}

CUresult record(CUevent hEvent, CUstream hStream, unsigned flags) {
  Context* c = nullptr;
  Stream* s = nullptr;
  TENDRIL_TRY(require_stream_context(hStream, &c, &s));
  Event* e = process()->events.find(Kind::kEvent, handle_value(hEvent));
  if (e == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if ((flags & ~unsigned{CU_EVENT_RECORD_EXTERNAL}) != 0) return CUDA_ERROR_INVALID_VALUE;
  if (e->context != c) return CUDA_ERROR_INVALID_HANDLE;
  TENDRIL_TRY(check_work(c, s));
  event_recorded(e, s, flags);
  e->recorded.store(Event::kUntold, std::memory_order_release);
  e->stream.store(s);
  e->recorded_on.store(s != nullptr ? s->wire_id : 0, std::memory_order_relaxed);
  TENDRIL_TRY(send_record(c, e, s, flags));
  // The number is taken when the record is on its way. So a wait that reads this number comes after
  // the record.
  e->recorded.store(c->session->serial.fetch_add(1) + 1, std::memory_order_release);
  return CUDA_SUCCESS;
}

}  // namespace

CUresult cuEventCreate(CUevent* phEvent, unsigned int Flags) {
  Context* c = nullptr;
  TENDRIL_TRY(require_context(&c));
  if (phEvent == nullptr || (Flags & ~kEventFlags) != 0) return CUDA_ERROR_INVALID_VALUE;
  if ((Flags & CU_EVENT_INTERPROCESS) != 0 && (Flags & CU_EVENT_DISABLE_TIMING) == 0)
    return CUDA_ERROR_INVALID_VALUE;
  Event* e = process()->events.create(Kind::kEvent, c->session, c, c->session->index);
  if (e == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  e->reset(Flags);
  wire::cuda::event_create_request m;
  m.event = e->wire_id;
  m.flags = Flags;
  TENDRIL_TRY(c->session->enqueue(c, m));
  *phEvent = handle_cast<CUevent>(e);
  return CUDA_SUCCESS;
}

CUresult cuEventDestroy_v2(CUevent hEvent) {
  if (process() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  Event* e = process()->events.find(Kind::kEvent, handle_value(hEvent));
  if (e == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  wire::cuda::event_destroy_request m;
  m.event = e->wire_id;
  const CUresult result = e->session->enqueue(e->context, m);
  process()->events.destroy(e);
  return result;
}

CUresult cuEventRecord(CUevent hEvent, CUstream hStream) { return record(hEvent, hStream, 0); }

CUresult cuEventRecordWithFlags(CUevent hEvent, CUstream hStream, unsigned int flags) {
  return record(hEvent, hStream, flags);
}

namespace {

// A query or a wait: both ask the worker unless an earlier wait proved the event complete, and both
// remember that it is.
template <typename Request, typename Answer>
CUresult ask_complete(CUevent hEvent) {
  Event* e = nullptr;
  TENDRIL_TRY(event_of(hEvent, &e));
  TENDRIL_TRY(refuse_captured(e));
  if (known_complete(e)) return CUDA_SUCCESS;
  const uint64_t recorded = e->recorded.load();
  mirror_before_wait(e->session, e->context);
  Request m;
  Answer r;
  m.event = e->wire_id;
  const CUresult result = e->session->call(e->context, m, r);
  // Remembered until the next record: later queries are free.
  if (result == CUDA_SUCCESS) {
    mirror_after_wait(e->session, e->context);
    uint64_t expected = recorded;
    e->recorded.compare_exchange_strong(expected, 0);
  }
  return result;
}

}  // namespace

CUresult cuEventQuery(CUevent hEvent) {
  return ask_complete<wire::cuda::event_query_request, wire::cuda::event_query_reply>(hEvent);
}

CUresult cuEventSynchronize(CUevent hEvent) {
  return ask_complete<wire::cuda::event_synchronize_request, wire::cuda::event_synchronize_reply>(
      hEvent);
}

CUresult cuEventElapsedTime_v2(float* pMilliseconds, CUevent hStart, CUevent hEnd) {
  Event *start = nullptr, *end = nullptr;
  TENDRIL_TRY(event_of(hStart, &start));
  TENDRIL_TRY(event_of(hEnd, &end));
  if (pMilliseconds == nullptr) return CUDA_ERROR_INVALID_HANDLE;  // as the driver has it
  if (start->session != end->session) return CUDA_ERROR_INVALID_HANDLE;
  wire::cuda::event_elapsed_request m;
  wire::cuda::event_elapsed_reply r;
  m.start = start->wire_id;
  m.end = end->wire_id;
  TENDRIL_TRY(start->session->call(start->context, m, r));
  *pMilliseconds = r.milliseconds;
  return CUDA_SUCCESS;
}

}  // namespace tendril::client::cuda
