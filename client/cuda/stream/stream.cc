// SPDX-License-Identifier: Apache-2.0
// Streams. Creating, destroying and ordering them is enqueued; only waiting and querying ask the
// worker.
#include "client/cuda/stream/stream.h"
#include "client/cuda/bodies.h"
#include "client/cuda/memory/memory.h"
#include "client/cuda/memory/mirror.h"
#include "client/cuda/stream/callback.h"
#include "client/cuda/stream/capture.h"

namespace tendril::client::cuda {
namespace {

CUresult create(CUstream* phStream, unsigned flags, int priority) {
  Context* c = nullptr;
  TENDRIL_TRY(require_context(&c));
  if (phStream == nullptr || (flags & ~unsigned{CU_STREAM_NON_BLOCKING}) != 0)
    return CUDA_ERROR_INVALID_VALUE;
  Stream* s = new_stream(c, flags, priority);
  if (s == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  wire::cuda::stream_create_request m;
  m.stream = s->wire_id;
  m.flags = flags;
  m.priority = s->priority;
  TENDRIL_TRY(c->session->enqueue(c, m));
  *phStream = handle_cast<CUstream>(s);
  return CUDA_SUCCESS;
}

// The first version of the memory operations is off in drivers unless an administrator turned it
// on.
CUresult first_version_allowed(CUdevice_attribute which) {
  Context* c = nullptr;
  TENDRIL_TRY(require_context(&c));
  return c->device->attributes[which] != 0 ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

}  // namespace

Stream* new_stream(Context* context, unsigned flags, int priority) {
  Stream* s =
      process()->streams.create(Kind::kStream, context->session, context, context->session->index);
  if (s == nullptr) return nullptr;
  // Priorities outside the device's range are clamped, as the driver does.
  const int least = context->device->least_priority, greatest = context->device->greatest_priority;
  s->priority = priority > least ? least : (priority < greatest ? greatest : priority);
  s->flags = flags;
  if ((flags & CU_STREAM_NON_BLOCKING) != 0) process()->streams_apart.store(true);
  s->synchronised.store(0);
  s->id = process()->next_stream_id.fetch_add(1);
  s->capture.store(nullptr);
  return s;
}

CUresult cuStreamWaitValue32(CUstream stream, CUdeviceptr addr, cuuint32_t value,
                             unsigned int flags) {
  TENDRIL_TRY(first_version_allowed(CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_MEM_OPS_V1));
  return cuStreamWaitValue32_v2(stream, addr, value, flags);
}
CUresult cuStreamWaitValue64(CUstream stream, CUdeviceptr addr, cuuint64_t value,
                             unsigned int flags) {
  TENDRIL_TRY(first_version_allowed(CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS_V1));
  return cuStreamWaitValue64_v2(stream, addr, value, flags);
}
CUresult cuStreamWriteValue32(CUstream stream, CUdeviceptr addr, cuuint32_t value,
                              unsigned int flags) {
  TENDRIL_TRY(first_version_allowed(CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_MEM_OPS_V1));
  return cuStreamWriteValue32_v2(stream, addr, value, flags);
}
CUresult cuStreamWriteValue64(CUstream stream, CUdeviceptr addr, cuuint64_t value,
                              unsigned int flags) {
  TENDRIL_TRY(first_version_allowed(CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS_V1));
  return cuStreamWriteValue64_v2(stream, addr, value, flags);
}
CUresult cuStreamBatchMemOp(CUstream stream, unsigned int count,
                            CUstreamBatchMemOpParams* paramArray, unsigned int flags) {
  TENDRIL_TRY(first_version_allowed(CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_MEM_OPS_V1));
  return cuStreamBatchMemOp_v2(stream, count, paramArray, flags);
}

CUresult cuStreamCreate(CUstream* phStream, unsigned int Flags) {
  return create(phStream, Flags, 0);
}

CUresult cuStreamCreateWithPriority(CUstream* phStream, unsigned int flags, int priority) {
  return create(phStream, flags, priority);
}

CUresult cuStreamDestroy_v2(CUstream hStream) {
  Context* c = nullptr;
  const uint64_t value = handle_value(hStream);
  Stream* s =
      value > 2 && process() != nullptr ? process()->streams.find(Kind::kStream, value) : nullptr;
  TENDRIL_TRY(require_context_of(s != nullptr ? s->context : nullptr, &c));
  if (s == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  wire::cuda::stream_destroy_request m;
  m.stream = s->wire_id;
  stream_leaves(s);
  s->session->send_frees(s->wire_id);
  const CUresult result = s->session->enqueue(s->context, m);
  s->context->stream_ended.store(s->session->calls());
  process()->streams.destroy(s);
  return result;
}

CUresult cuStreamGetPriority(CUstream hStream, int* priority) {
  Context* c = nullptr;
  Stream* s = nullptr;
  TENDRIL_TRY(require_stream_context(hStream, &c, &s));
  if (priority == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *priority = s != nullptr ? s->priority : 0;
  return CUDA_SUCCESS;
}

CUresult cuStreamGetFlags(CUstream hStream, unsigned int* flags) {
  Context* c = nullptr;
  Stream* s = nullptr;
  TENDRIL_TRY(require_stream_context(hStream, &c, &s));
  if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *flags = s != nullptr ? s->flags : 0;
  return CUDA_SUCCESS;
}

CUresult cuStreamGetId(CUstream hStream, unsigned long long* streamId) {
  Context* c = nullptr;
  Stream* s = nullptr;
  TENDRIL_TRY(require_stream_context(hStream, &c, &s));
  if (streamId == nullptr) return CUDA_ERROR_INVALID_VALUE;
  // The legacy stream of each context needs an id of its own; created streams are numbered from 10
  // upwards in steps of one.
  *streamId = s != nullptr ? s->id : (uint64_t{1} << 32) + c->id;
  return CUDA_SUCCESS;
}

CUresult cuStreamGetCtx(CUstream hStream, CUcontext* pctx) {
  Context* c = nullptr;
  Stream* s = nullptr;
  TENDRIL_TRY(require_stream_context(hStream, &c, &s));
  if (pctx == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *pctx = handle_cast<CUcontext>(c);
  return CUDA_SUCCESS;
}

CUresult cuStreamGetCtx_v2(CUstream hStream, CUcontext* pCtx, CUgreenCtx* pGreenCtx) {
  TENDRIL_TRY(cuStreamGetCtx(hStream, pCtx));
  if (pGreenCtx != nullptr) *pGreenCtx = nullptr;
  return CUDA_SUCCESS;
}

CUresult cuStreamGetDevice(CUstream hStream, CUdevice* device) {
  Context* c = nullptr;
  Stream* s = nullptr;
  TENDRIL_TRY(require_stream_context(hStream, &c, &s));
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *device = c->device->ordinal;
  return CUDA_SUCCESS;
}

CUresult cuStreamQuery(CUstream hStream) {
  Context* c = nullptr;
  Stream* s = nullptr;
  TENDRIL_TRY(require_stream_context(hStream, &c, &s));
  TENDRIL_TRY(check_work(c, s, true));
  mirror_before_wait(c->session, c);
  wire::cuda::stream_query_request m;
  wire::cuda::stream_query_reply r;
  m.stream = stream_wire_id(s);
  TENDRIL_TRY(c->session->call(c, m, r));
  mirror_after_wait(c->session, c);
  return CUDA_SUCCESS;
}

CUresult cuStreamSynchronize(CUstream hStream) {
  Context* c = nullptr;
  Stream* s = nullptr;
  TENDRIL_TRY(require_stream_context(hStream, &c, &s));
  TENDRIL_TRY(check_work(c, s, true));
  TENDRIL_TRY(check_unsafe_call());
  mirror_before_wait(c->session, c);
  TENDRIL_TRY(synchronize_stream(c, s));
  mirror_after_wait(c->session, c);
  return CUDA_SUCCESS;
}

namespace {

// A stream waits for an event of another server. This thread waits in its place, which orders at
// least as much.
CUresult wait_here(const Event* event) {
  TENDRIL_TRY(look_before_wait("cuStreamWaitEvent for an event of another server", event));
  wire::cuda::event_synchronize_request m;
  wire::cuda::event_synchronize_reply r;
  m.event = event->wire_id;
  return event->session->call(event->context, m, r);
}

}  // namespace

CUresult cuStreamWaitEvent(CUstream hStream, CUevent hEvent, unsigned int Flags) {
  Context* c = nullptr;
  Stream* s = nullptr;
  TENDRIL_TRY(require_stream_context(hStream, &c, &s));
  Event* e = process()->events.find(Kind::kEvent, handle_value(hEvent));
  if (e == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if ((Flags & ~unsigned{CU_EVENT_WAIT_EXTERNAL}) != 0) return CUDA_ERROR_INVALID_VALUE;
  TENDRIL_TRY(join_capture(s, e, Flags));
  if (e->session != c->session) return wait_here(e);
  wire::cuda::stream_wait_event_request m;
  m.stream = stream_wire_id(s);
  m.event = e->wire_id;
  m.flags = Flags;
  return c->session->enqueue(c, m);
}

CUresult cuStreamAttachMemAsync(CUstream hStream, CUdeviceptr, size_t, unsigned int) {
  Context* c = nullptr;
  Stream* s = nullptr;
  return require_stream_context(hStream, &c, &s);  // a hint for managed memory; nothing to order
}

// The legacy stream waits for all streams except non-blocking ones. A stream destroyed while busy
// is unknown to us: its context counts the ends of streams.
void note_idle(Context* c, Stream* stream, uint64_t before) {
  const uint64_t now = c->session->calls();
  (stream != nullptr ? stream->idle : c->legacy_idle).note(before, now);
  const bool all = stream == nullptr && !process()->streams_apart.load() &&
                   c->stream_ended.load() <= c->waited.load();
  if (all) c->idle.note(before, now);
}

CUresult synchronize_stream(Context* c, Stream* stream) {
  wire::cuda::stream_synchronize_request m;
  wire::cuda::stream_synchronize_reply r;
  m.stream = stream_wire_id(stream);
  Context* context = stream != nullptr ? stream->context : c;
  Session* session = context->session;
  if (!session->freed.empty()) session->send_frees();
  const uint64_t serial = session->serial.load();
  const uint64_t before = session->calls();
  IdleSince& idle = stream != nullptr ? stream->idle : context->legacy_idle;
  if (!idle.use(before)) {
    TENDRIL_TRY(session->call(context, m, r));
    note_idle(context, stream, before);
    process()->reads.forget_stream(stream);
  }
  std::atomic<uint64_t>& synchronised =
      stream != nullptr ? stream->synchronised : context->legacy_synchronised;
  synchronised.store(serial, std::memory_order_release);
  return CUDA_SUCCESS;
}

}  // namespace tendril::client::cuda
