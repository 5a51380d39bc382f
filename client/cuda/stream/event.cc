// SPDX-License-Identifier: Apache-2.0
// Events. A record is enqueued. A query is answered here if an earlier wait proved the event
// complete.
#include "client/cuda/stream/event.h"

#include "base/clock.h"
#include "client/cuda/bodies.h"
#include "client/cuda/memory/mirror.h"
#include "client/cuda/stream/capture.h"

namespace tendril::client::cuda {
namespace {

constexpr unsigned kEventFlags =
    CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;

CUresult event_of(CUevent handle, Event** out) {
  Process* program = process();
  if (program == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  *out = program->events.find(Kind::kEvent, handle_value(handle));
  if (*out == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return static_cast<CUresult>((*out)->context->sticky.load(std::memory_order_relaxed));
}

bool known_complete(const Event* event) {
  if (event->external.load(std::memory_order_relaxed)) return false;
  const uint64_t recorded = event->recorded.load(std::memory_order_acquire);
  if (recorded == 0 || recorded <= event->context->synchronised.load(std::memory_order_acquire))
    return true;
  // The record of a destroyed stream may be reused by another stream. The id shows that.
  const Stream* stream = event->stream.load();
  return recorded != Event::kUntold && stream != nullptr &&
         recorded <= stream->synchronised.load(std::memory_order_acquire) &&
         stream->wire_id == event->recorded_on.load(std::memory_order_relaxed);
}

// Answers of the worker that are older than this are too old for a program that asks once.
constexpr uint64_t kFreshNs = 250'000;

// By all servers, because streams of one may wait for another.
uint64_t told_so_far() {
  uint64_t sum = 0;
  for (const Session* session : process()->sessions) sum += session->told_so_far();
  return sum;
}

// Comes before what is looked at is sent. `own`: answers to this thread that will be counted.
void look(Event::Look* at, uint64_t own = 0) {
  at->told.store(told_so_far() + own, std::memory_order_relaxed);
  at->at_ns.store(base::now_ns(), std::memory_order_relaxed);
}

// Has the program had no reason since to believe that anything is complete?
bool is_fresh(const Event::Look& at) {
  return told_so_far() == at.told.load(std::memory_order_relaxed) &&
         base::now_ns() - at.at_ns.load(std::memory_order_relaxed) < kFreshNs;
}

// Programs ask again and again whether old work is complete, before each allocation for example.
// Waiting for "not yet" keeps the program from running ahead. So a query that follows the record,
// or an earlier query, within a moment is answered "not yet" from here, and asks the worker
// meanwhile. Where the GPU's memory is at hand, asking takes no longer than that, and the program
// may see by itself what is complete.
bool may_answer_ahead(const Event* event) {
  return !event->session->window.valid() && !event->external.load(std::memory_order_relaxed) &&
         !event->shared.load(std::memory_order_relaxed);
}

// What the question under way has come to. False: there is no answer about this record.
bool take_answer(Event* event, uint64_t recorded, CUresult* result) {
  Event::Question& question = event->question;
  if (question.reply_id == 0) return false;
  int32_t answer = CUDA_SUCCESS;
  event->session->lane->pump();
  if (!event->session->lane->take_result(question.reply_id, &answer)) return false;
  question.reply_id = 0;
  if (question.recorded != recorded || answer == CUDA_ERROR_NOT_READY) return false;
  *result = static_cast<CUresult>(answer);
  Session::note(event->context, *result);
  if (*result != CUDA_SUCCESS) return true;
  mirror_after_wait(event->session, event->context);
  uint64_t expected = recorded;
  event->recorded.compare_exchange_strong(expected, 0);
  return true;
}

void ask_ahead(Event* event, uint64_t recorded) {
  Session* session = event->session;
  Event::Question& question = event->question;
  if (question.reply_id != 0) return;
  if (!session->freed.empty()) session->send_frees();
  mirror_before_wait(session, event->context);
  wire::cuda::event_query_request request;
  request.event = event->wire_id;
  const uint32_t reply_id = session->lane->new_reply_id();
  look(&question.asked);
  if (!session->append(event->context, request, reply_id)) return;
  session->lane->flush();
  question.reply_id = reply_id;
  question.recorded = recorded;
}

// False: the worker is to be asked, and waited for.
bool answer_ahead(Event* event, CUresult* result) {
  Event::Question& question = event->question;
  if (!may_answer_ahead(event) || !question.lock.try_lock()) return false;
  const uint64_t recorded = event->recorded.load(std::memory_order_acquire);
  bool answered = take_answer(event, recorded, result);
  const Event::Look& last = question.recorded == recorded ? question.asked : event->sent;
  if (!answered && recorded != Event::kUntold && is_fresh(last)) {
    ask_ahead(event, recorded);
    *result = CUDA_ERROR_NOT_READY;
    answered = true;
  }
  question.lock.unlock();
  return answered;
}

// The worker has just answered "not yet" to what was asked at `asked`.
void note_not_ready(Event* event, uint64_t recorded, const Event::Look& asked) {
  Event::Question& question = event->question;
  if (!question.lock.try_lock()) return;
  if (question.reply_id == 0) {
    question.recorded = recorded;
    question.asked.told.store(asked.told.load(), std::memory_order_relaxed);
    question.asked.at_ns.store(asked.at_ns.load(), std::memory_order_relaxed);
  }
  question.lock.unlock();
}

CUresult send_record(Context* context, const Event* event, const Stream* stream, unsigned flags) {
  // A stream that waits for the event may be given what was freed before it.
  if (!context->session->freed.empty())
    context->session->send_frees(stream != nullptr ? stream->wire_id : FreedBlocks::kAnyStream);
  if (event->shared.load(std::memory_order_relaxed)) {
    wire::cuda::ipc_record_event_request now;
    wire::cuda::ipc_record_event_reply reply;
    now.event = event->wire_id;
    now.stream = stream_wire_id(stream);
    now.flags = flags;
    return context->session->call(context, now, reply);
  }
  wire::cuda::event_record_request request;
  request.event = event->wire_id;
  request.stream = stream_wire_id(stream);
  request.flags = flags;
  return context->session->enqueue(context, request);
}

CUresult record(CUevent hEvent, CUstream hStream, unsigned flags) {
  Context* context = nullptr;
  Stream* stream = nullptr;
  TENDRIL_TRY(require_stream_context(hStream, &context, &stream));
  Event* event = process()->events.find(Kind::kEvent, handle_value(hEvent));
  if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if ((flags & ~unsigned{CU_EVENT_RECORD_EXTERNAL}) != 0) return CUDA_ERROR_INVALID_VALUE;
  if (event->context != context) return CUDA_ERROR_INVALID_HANDLE;
  TENDRIL_TRY(check_work(context, stream));
  event_recorded(event, stream, flags);
  event->recorded.store(Event::kUntold, std::memory_order_release);
  event->stream.store(stream);
  event->recorded_on.store(stream != nullptr ? stream->wire_id : 0, std::memory_order_relaxed);
  if (!context->session->window.valid()) look(&event->sent);
  TENDRIL_TRY(send_record(context, event, stream, flags));
  // The number is taken after the record has been sent. So a wait that reads this number comes
  // after the record.
  event->recorded.store(context->session->serial.fetch_add(1) + 1, std::memory_order_release);
  return CUDA_SUCCESS;
}

}  // namespace

CUresult cuEventCreate(CUevent* phEvent, unsigned int Flags) {
  Context* context = nullptr;
  TENDRIL_TRY(require_context(&context));
  if (phEvent == nullptr || (Flags & ~kEventFlags) != 0) return CUDA_ERROR_INVALID_VALUE;
  if ((Flags & CU_EVENT_INTERPROCESS) != 0 && (Flags & CU_EVENT_DISABLE_TIMING) == 0)
    return CUDA_ERROR_INVALID_VALUE;
  Event* event =
      process()->events.create(Kind::kEvent, context->session, context, context->session->index);
  if (event == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  event->reset(Flags);
  wire::cuda::event_create_request request;
  request.event = event->wire_id;
  request.flags = Flags;
  TENDRIL_TRY(context->session->enqueue(context, request));
  *phEvent = handle_cast<CUevent>(event);
  return CUDA_SUCCESS;
}

CUresult cuEventDestroy_v2(CUevent hEvent) {
  if (process() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  Event* event = process()->events.find(Kind::kEvent, handle_value(hEvent));
  if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  wire::cuda::event_destroy_request request;
  request.event = event->wire_id;
  const CUresult result = event->session->enqueue(event->context, request);
  forget_question(event);
  process()->events.destroy(event);
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
CUresult ask_complete(CUevent hEvent, bool may_be_early) {
  Event* event = nullptr;
  TENDRIL_TRY(event_of(hEvent, &event));
  TENDRIL_TRY(refuse_captured(event));
  if (known_complete(event)) return CUDA_SUCCESS;
  CUresult ahead = CUDA_SUCCESS;
  if (may_be_early && answer_ahead(event, &ahead)) return ahead;
  const uint64_t recorded = event->recorded.load();
  mirror_before_wait(event->session, event->context);
  Request m;
  Answer r;
  m.event = event->wire_id;
  Event::Look asked;
  if (may_be_early) look(&asked, 1);
  const CUresult result = event->session->call(event->context, m, r);
  // Remembered until the next record: later queries are free.
  if (result == CUDA_SUCCESS) {
    mirror_after_wait(event->session, event->context);
    uint64_t expected = recorded;
    event->recorded.compare_exchange_strong(expected, 0);
  }
  if (result == CUDA_ERROR_NOT_READY && may_be_early) note_not_ready(event, recorded, asked);
  return result;
}

}  // namespace

void forget_question(Event* event) {
  if (event->question.reply_id != 0) event->session->lane->drop_reply(event->question.reply_id);
  event->question.reply_id = 0;
}

CUresult cuEventQuery(CUevent hEvent) {
  return ask_complete<wire::cuda::event_query_request, wire::cuda::event_query_reply>(hEvent, true);
}

CUresult cuEventSynchronize(CUevent hEvent) {
  return ask_complete<wire::cuda::event_synchronize_request, wire::cuda::event_synchronize_reply>(
      hEvent, false);
}

CUresult cuEventElapsedTime_v2(float* pMilliseconds, CUevent hStart, CUevent hEnd) {
  Event *start = nullptr, *end = nullptr;
  TENDRIL_TRY(event_of(hStart, &start));
  TENDRIL_TRY(event_of(hEnd, &end));
  if (pMilliseconds == nullptr) return CUDA_ERROR_INVALID_HANDLE;  // as in the driver
  if (start->session != end->session) return CUDA_ERROR_INVALID_HANDLE;
  wire::cuda::event_elapsed_request request;
  wire::cuda::event_elapsed_reply reply;
  request.start = start->wire_id;
  request.end = end->wire_id;
  TENDRIL_TRY(start->session->call(start->context, request, reply));
  *pMilliseconds = reply.milliseconds;
  return CUDA_SUCCESS;
}

}  // namespace tendril::client::cuda
