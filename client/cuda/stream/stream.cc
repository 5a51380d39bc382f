// SPDX-License-Identifier: Apache-2.0
// Streams. Creating, destroying and ordering them is enqueued; only waiting and querying ask the
// worker.
#include "client/cuda/stream/stream.h"
#include "client/cuda/bodies.h"
#include "client/cuda/copy/passages.h"
#include "client/cuda/memory/memory.h"
#include "client/cuda/memory/mirror.h"
#include "client/cuda/stream/callback.h"
#include "client/cuda/stream/capture.h"

namespace tendril::client::cuda {
namespace {

CUresult create(CUstream* phStream, unsigned flags, int priority) {
  Context* context = nullptr;
  TENDRIL_TRY(require_context(&context));
  if (phStream == nullptr || (flags & ~unsigned{CU_STREAM_NON_BLOCKING}) != 0)
    return CUDA_ERROR_INVALID_VALUE;
  Stream* stream = new_stream(context, flags, priority);
  if (stream == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  wire::cuda::stream_create_request request;
  request.stream = stream->wire_id;
  request.flags = flags;
  request.priority = stream->priority;
  TENDRIL_TRY(context->session->enqueue(context, request));
  *phStream = handle_cast<CUstream>(stream);
  return CUDA_SUCCESS;
}

// The first version of the memory operations is off in drivers unless an administrator turned it
// on.
CUresult first_version_allowed(CUdevice_attribute which) {
  Context* context = nullptr;
  TENDRIL_TRY(require_context(&context));
  return context->device->attributes[which] != 0 ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

}  // namespace

Stream* new_stream(Context* context, unsigned flags, int priority) {
  Stream* stream =
      process()->streams.create(Kind::kStream, context->session, context, context->session->index);
  if (stream == nullptr) return nullptr;
  // Priorities outside the device's range are clamped, as the driver does.
  const int least = context->device->least_priority, greatest = context->device->greatest_priority;
  stream->priority = priority > least ? least : (priority < greatest ? greatest : priority);
  stream->flags = flags;
  if ((flags & CU_STREAM_NON_BLOCKING) != 0) process()->streams_apart.store(true);
  stream->synchronised.store(0);
  stream->id = process()->next_stream_id.fetch_add(1);
  stream->capture.store(nullptr);
  return stream;
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
  Context* context = nullptr;
  const uint64_t value = handle_value(hStream);
  Stream* stream =
      value > 2 && process() != nullptr ? process()->streams.find(Kind::kStream, value) : nullptr;
  TENDRIL_TRY(require_context_of(stream != nullptr ? stream->context : nullptr, &context));
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  wire::cuda::stream_destroy_request request;
  request.stream = stream->wire_id;
  stream_leaves(stream);
  stream->ahead.end();
  stream->session->send_frees(stream->wire_id);
  const CUresult result = stream->session->enqueue(stream->context, request);
  stream->context->stream_ended.store(stream->session->calls());
  process()->streams.destroy(stream);
  return result;
}

CUresult cuStreamGetPriority(CUstream hStream, int* priority) {
  Context* context = nullptr;
  Stream* stream = nullptr;
  TENDRIL_TRY(require_stream_context(hStream, &context, &stream));
  if (priority == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *priority = stream != nullptr ? stream->priority : 0;
  return CUDA_SUCCESS;
}

CUresult cuStreamGetFlags(CUstream hStream, unsigned int* flags) {
  Context* context = nullptr;
  Stream* stream = nullptr;
  TENDRIL_TRY(require_stream_context(hStream, &context, &stream));
  if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *flags = stream != nullptr ? stream->flags : 0;
  return CUDA_SUCCESS;
}

CUresult cuStreamGetId(CUstream hStream, unsigned long long* streamId) {
  Context* context = nullptr;
  Stream* stream = nullptr;
  TENDRIL_TRY(require_stream_context(hStream, &context, &stream));
  if (streamId == nullptr) return CUDA_ERROR_INVALID_VALUE;
  // The legacy stream of each context needs an id of its own; created streams are numbered from 10
  // upwards in steps of one.
  *streamId = stream != nullptr ? stream->id : (uint64_t{1} << 32) + context->id;
  return CUDA_SUCCESS;
}

CUresult cuStreamGetCtx(CUstream hStream, CUcontext* pctx) {
  Context* context = nullptr;
  Stream* stream = nullptr;
  TENDRIL_TRY(require_stream_context(hStream, &context, &stream));
  if (pctx == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *pctx = handle_cast<CUcontext>(context);
  return CUDA_SUCCESS;
}

CUresult cuStreamGetCtx_v2(CUstream hStream, CUcontext* pCtx, CUgreenCtx* pGreenCtx) {
  TENDRIL_TRY(cuStreamGetCtx(hStream, pCtx));
  if (pGreenCtx != nullptr) *pGreenCtx = nullptr;
  return CUDA_SUCCESS;
}

CUresult cuStreamGetDevice(CUstream hStream, CUdevice* device) {
  Context* context = nullptr;
  Stream* stream = nullptr;
  TENDRIL_TRY(require_stream_context(hStream, &context, &stream));
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *device = context->device->ordinal;
  return CUDA_SUCCESS;
}

CUresult cuStreamQuery(CUstream hStream) {
  Context* context = nullptr;
  Stream* stream = nullptr;
  TENDRIL_TRY(require_stream_context(hStream, &context, &stream));
  TENDRIL_TRY(check_work(context, stream, true));
  mirror_before_wait(context->session, context);
  wire::cuda::stream_query_request request;
  wire::cuda::stream_query_reply reply;
  request.stream = stream_wire_id(stream);
  TENDRIL_TRY(context->session->call(context, request, reply));
  mirror_after_wait(context->session, context);
  return CUDA_SUCCESS;
}

CUresult cuStreamSynchronize(CUstream hStream) {
  Context* context = nullptr;
  Stream* stream = nullptr;
  TENDRIL_TRY(require_stream_context(hStream, &context, &stream));
  TENDRIL_TRY(check_work(context, stream, true));
  TENDRIL_TRY(check_unsafe_call());
  mirror_before_wait(context->session, context);
  TENDRIL_TRY(synchronize_stream(context, stream));
  mirror_after_wait(context->session, context);
  return CUDA_SUCCESS;
}

namespace {

// A stream waits for an event of another server. Without a passage between the servers this thread
// waits in its place, which orders at least as much.
CUresult wait_for_other_server(Context* context, Stream* stream, const Event* event) {
  CUresult result = CUDA_SUCCESS;
  if (wait_over_passage(context, stream, event, &result)) return result;
  TENDRIL_TRY(look_before_wait("cuStreamWaitEvent for an event of another server", event));
  wire::cuda::event_synchronize_request request;
  wire::cuda::event_synchronize_reply reply;
  request.event = event->wire_id;
  return event->session->call(event->context, request, reply);
}

}  // namespace

CUresult cuStreamWaitEvent(CUstream hStream, CUevent hEvent, unsigned int Flags) {
  Context* context = nullptr;
  Stream* stream = nullptr;
  TENDRIL_TRY(require_stream_context(hStream, &context, &stream));
  Event* event = process()->events.find(Kind::kEvent, handle_value(hEvent));
  if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if ((Flags & ~unsigned{CU_EVENT_WAIT_EXTERNAL}) != 0) return CUDA_ERROR_INVALID_VALUE;
  TENDRIL_TRY(join_capture(stream, event, Flags));
  if (event->session != context->session) return wait_for_other_server(context, stream, event);
  wire::cuda::stream_wait_event_request request;
  request.stream = stream_wire_id(stream);
  request.event = event->wire_id;
  request.flags = Flags;
  return context->session->enqueue(context, request);
}

CUresult cuStreamAttachMemAsync(CUstream hStream, CUdeviceptr, size_t, unsigned int) {
  Context* context = nullptr;
  Stream* stream = nullptr;
  return require_stream_context(hStream, &context,
                                &stream);  // a hint for managed memory; nothing to order
}

// The legacy stream waits for all streams except non-blocking ones. A stream that was destroyed
// while busy is unknown here. So its context counts the ends of streams.
void note_idle(Context* context, Stream* stream, uint64_t before) {
  const uint64_t now = context->session->calls();
  (stream != nullptr ? stream->idle : context->legacy_idle).note(before, now);
  const bool all = stream == nullptr && !process()->streams_apart.load() &&
                   context->stream_ended.load() <= context->waited.load();
  if (all) context->idle.note(before, now);
}

CUresult synchronize_stream(Context* c, Stream* stream) {
  wire::cuda::stream_synchronize_request request;
  wire::cuda::stream_synchronize_reply reply;
  request.stream = stream_wire_id(stream);
  Context* context = stream != nullptr ? stream->context : c;
  Session* session = context->session;
  if (!session->freed.empty()) session->send_frees();
  const uint64_t serial = session->serial.load();
  const uint64_t before = session->calls();
  IdleSince& idle = stream != nullptr ? stream->idle : context->legacy_idle;
  if (!idle.use(before)) {
    TENDRIL_TRY(session->call(context, request, reply));
    note_idle(context, stream, before);
    process()->reads.forget_stream(stream);
  }
  std::atomic<uint64_t>& synchronised =
      stream != nullptr ? stream->synchronised : context->legacy_synchronised;
  synchronised.store(serial, std::memory_order_release);
  return CUDA_SUCCESS;
}

}  // namespace tendril::client::cuda
