// SPDX-License-Identifier: Apache-2.0
// See ahead.h.
#include "client/cuda/stream/ahead.h"

#include "client/cuda/bodies.h"

namespace tendril::client::cuda {
namespace {

// With three marks at most 768 launches are ahead of the GPU.
constexpr uint32_t kUnitsBetweenMarks = 192;

Event* new_mark(Context* context) {
  Session* session = context->session;
  Event* event = process()->events.create(Kind::kEvent, session, context, session->index);
  if (event == nullptr) return nullptr;
  event->reset(CU_EVENT_DISABLE_TIMING);
  wire::cuda::event_create_request request;
  request.event = event->wire_id;
  request.flags = CU_EVENT_DISABLE_TIMING;
  if (session->enqueue(context, request) == CUDA_SUCCESS) return event;
  process()->events.destroy(event);
  return nullptr;
}

}  // namespace

// False: there are too many events, or the session is lost.
bool Ahead::place(Mark* mark, Context* context, Stream* stream) {
  if (mark->event == nullptr) mark->event = new_mark(context);
  if (mark->event == nullptr) return false;
  Session* session = context->session;
  wire::cuda::event_record_request record;
  record.event = mark->event->wire_id;
  record.stream = stream_wire_id(stream);
  if (session->enqueue(context, record) != CUDA_SUCCESS) return false;
  wire::cuda::event_synchronize_request wait;
  wait.event = mark->event->wire_id;
  const uint32_t reply_id = session->lane->new_reply_id();
  if (!session->append(context, wait, reply_id)) return false;
  mark->reply_id = reply_id;
  return true;
}

void Ahead::make_room(Context* context, Stream* stream, uint32_t units) {
  const base::Locked held(lock_);
  units_ += units;
  if (units_ < kUnitsBetweenMarks) return;
  units_ = 0;
  Mark& mark = marks_[next_++ % kMarks];
  if (mark.reply_id != 0) context->session->wait(mark.reply_id);
  mark.reply_id = 0;
  (void)place(&mark, context, stream);
}

void Ahead::end() {
  const base::Locked held(lock_);
  for (Mark& mark : marks_) {
    if (mark.event == nullptr) continue;
    Session* session = mark.event->session;
    if (mark.reply_id != 0) session->lane->drop_reply(mark.reply_id);
    wire::cuda::event_destroy_request request;
    request.event = mark.event->wire_id;
    (void)session->enqueue(mark.event->context, request);
    process()->events.destroy(mark.event);
    mark = {};
  }
  units_ = 0;
}

void make_room_slowly(Context* context, Stream* stream, uint32_t units) {
  // While anybody captures, a driver may forbid what a mark needs, and spoil that capture.
  if (process()->open_captures.load(std::memory_order_relaxed) != 0) return;
  (stream != nullptr ? stream->ahead : context->legacy_ahead).make_room(context, stream, units);
}

}  // namespace tendril::client::cuda
