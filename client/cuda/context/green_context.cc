// SPDX-License-Identifier: Apache-2.0
// Green contexts: parts of a device's multiprocessors. Resources are the driver's own records,
// which the program carries from call to call. Descriptions and green contexts have handles made
// here. Streams and memory of a green context are reached through an ordinary context that each of
// them has.
#include <string.h>

#include "client/cuda/context/context.h"
#include "client/cuda/stream/stream.h"

namespace tendril::client::cuda {
namespace {

CUresult green_of(CUgreenCtx handle, Object** out) {
  if (process() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  *out = find_object(Kind::kGreenContext, handle_value(handle));
  return *out != nullptr ? CUDA_SUCCESS : no_object(Kind::kGreenContext);
}

using wire::cuda::ContextEventAction;

// An event of all streams of a context. Only the worker can say when it is complete.
CUresult context_event(Context* c, CUevent hEvent, ContextEventAction action) {
  Event* e = process()->events.find(Kind::kEvent, handle_value(hEvent));
  if (e == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (e->session != c->session) return CUDA_ERROR_INVALID_HANDLE;
  if (action == ContextEventAction::kRecord) {
    e->external.store(true, std::memory_order_relaxed);
    e->stream.store(nullptr);
    e->recorded.store(Event::kUntold, std::memory_order_release);
  }
  wire::cuda::context_event_request m;
  wire::cuda::context_event_reply r;
  m.action = action;
  m.event = e->wire_id;
  return c->session->call(c, m, r);
}

CUresult event_of_context(CUcontext handle, CUevent hEvent, ContextEventAction action) {
  Context* c = nullptr;
  if (process() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (handle == nullptr)
    TENDRIL_TRY(require_context(&c));
  else
    c = process()->contexts.find(Kind::kContext, handle_value(handle));
  return c != nullptr ? context_event(c, hEvent, action) : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult event_of_green(CUgreenCtx handle, CUevent hEvent, ContextEventAction action) {
  Object* green = nullptr;
  TENDRIL_TRY(green_of(handle, &green));
  return context_event(green->context, hEvent, action);
}

}  // namespace

CUresult cuDevSmResourceSplitByCount(CUdevResource* result, unsigned int* nbGroups,
                                     const CUdevResource* input, CUdevResource* remaining,
                                     unsigned int useFlags, unsigned int minCount) {
  Context* c = current_context();
  Process* p = process();
  if (p == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (nbGroups == nullptr || input == nullptr || p->sessions.empty())
    return CUDA_ERROR_INVALID_VALUE;
  Session* session = c != nullptr ? c->session : p->sessions.front();
  wire::cuda::sm_resource_split_request m;
  wire::cuda::sm_resource_split_reply r;
  m.input = {reinterpret_cast<const uint8_t*>(input), sizeof *input};
  m.groups = result != nullptr ? *nbGroups : 0;
  m.count_only = result == nullptr;
  m.flags = useFlags;
  m.minimum = minCount;
  TENDRIL_TRY(session->call(static_cast<const Context*>(c), m, r));
  if (result != nullptr && r.results.count > m.groups * sizeof *result) return CUDA_ERROR_UNKNOWN;
  if (result != nullptr && r.results.count != 0) memcpy(result, r.results.data, r.results.count);
  if (remaining != nullptr && r.remaining.count == sizeof *remaining)
    memcpy(remaining, r.remaining.data, sizeof *remaining);
  *nbGroups = r.groups;
  return CUDA_SUCCESS;
}

CUresult cuGreenCtxCreate(CUgreenCtx* phCtx, CUdevResourceDesc desc, CUdevice dev,
                          unsigned int flags) {
  if (process() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  Device* d = device_of(dev);
  Object* described = find_object(Kind::kResourceDesc, handle_value(desc));
  if (phCtx == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (d == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  if (described == nullptr || described->session != d->session) return CUDA_ERROR_INVALID_HANDLE;
  Context* context = new_context(d);
  if (context == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  Object* green = create_object(Kind::kGreenContext, d->session, context);
  wire::cuda::green_context_create_request m;
  wire::cuda::green_context_create_reply r;
  m.green = green != nullptr ? green->wire_id : 0;
  m.context = context->wire_id;
  m.description = described->wire_id;
  m.slot = d->slot;
  m.flags = flags;
  const CUresult result = green != nullptr
                              ? d->session->call(static_cast<const Context*>(nullptr), m, r)
                              : CUDA_ERROR_OUT_OF_MEMORY;
  if (result != CUDA_SUCCESS) {
    if (green != nullptr) destroy_object(Kind::kGreenContext, green);
    process()->contexts.destroy(context);
    return result;
  }
  context_comes(context);
  *phCtx = handle_cast<CUgreenCtx>(green);
  return CUDA_SUCCESS;
}

CUresult cuGreenCtxDestroy(CUgreenCtx hCtx) {
  Object* green = nullptr;
  TENDRIL_TRY(green_of(hCtx, &green));
  Context* context = green->context;
  wire::cuda::green_context_destroy_request m;
  wire::cuda::green_context_destroy_reply r;
  m.green = green->wire_id;
  m.context = context->wire_id;
  sweep_context(context);
  const CUresult result = green->session->call(static_cast<const Context*>(nullptr), m, r);
  destroy_object(Kind::kGreenContext, green);
  process()->contexts.destroy(context);
  return result;
}

CUresult cuCtxFromGreenCtx(CUcontext* pContext, CUgreenCtx hCtx) {
  Object* green = nullptr;
  TENDRIL_TRY(green_of(hCtx, &green));
  if (pContext == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *pContext = handle_cast<CUcontext>(green->context);
  return CUDA_SUCCESS;
}

CUresult cuGreenCtxStreamCreate(CUstream* phStream, CUgreenCtx greenCtx, unsigned int flags,
                                int priority) {
  Object* green = nullptr;
  TENDRIL_TRY(green_of(greenCtx, &green));
  if (phStream == nullptr || flags != CU_STREAM_NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
  Stream* s = new_stream(green->context, flags, priority);
  if (s == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  wire::cuda::green_stream_create_request m;
  wire::cuda::green_stream_create_reply r;
  m.green = green->wire_id;
  m.stream = s->wire_id;
  m.flags = flags;
  m.priority = s->priority;
  const CUresult result = green->session->call(green->context, m, r);
  if (result == CUDA_SUCCESS)
    *phStream = handle_cast<CUstream>(s);
  else
    process()->streams.destroy(s);
  return result;
}

CUresult cuStreamGetGreenCtx(CUstream hStream, CUgreenCtx* phCtx) {
  Context* c = nullptr;
  Stream* s = nullptr;
  TENDRIL_TRY(require_context(&c));
  TENDRIL_TRY(require_stream(c, hStream, &s));
  if (phCtx == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Context* at = s != nullptr ? s->context : c;
  *phCtx = nullptr;  // not a stream of a green context
  process()->others[static_cast<int>(Kind::kGreenContext)].for_each([&](Object* green) {
    if (green->context == at) *phCtx = handle_cast<CUgreenCtx>(green);
  });
  return CUDA_SUCCESS;
}

CUresult cuCtxRecordEvent(CUcontext hCtx, CUevent hEvent) {
  return event_of_context(hCtx, hEvent, ContextEventAction::kRecord);
}
CUresult cuCtxWaitEvent(CUcontext hCtx, CUevent hEvent) {
  return event_of_context(hCtx, hEvent, ContextEventAction::kWait);
}
CUresult cuGreenCtxRecordEvent(CUgreenCtx hCtx, CUevent hEvent) {
  return event_of_green(hCtx, hEvent, ContextEventAction::kRecord);
}
CUresult cuGreenCtxWaitEvent(CUgreenCtx hCtx, CUevent hEvent) {
  return event_of_green(hCtx, hEvent, ContextEventAction::kWait);
}

}  // namespace tendril::client::cuda
