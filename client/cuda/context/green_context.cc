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
CUresult context_event(Context* context, CUevent hEvent, ContextEventAction action) {
  Event* event = process()->events.find(Kind::kEvent, handle_value(hEvent));
  if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (event->session != context->session) return CUDA_ERROR_INVALID_HANDLE;
  if (action == ContextEventAction::kRecord) {
    event->external.store(true, std::memory_order_relaxed);
    event->stream.store(nullptr);
    event->recorded.store(Event::kUntold, std::memory_order_release);
  }
  wire::cuda::context_event_request request;
  wire::cuda::context_event_reply reply;
  request.action = action;
  request.event = event->wire_id;
  return context->session->call(context, request, reply);
}

CUresult event_of_context(CUcontext handle, CUevent hEvent, ContextEventAction action) {
  Context* context = nullptr;
  if (process() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (handle == nullptr)
    TENDRIL_TRY(require_context(&context));
  else
    context = process()->contexts.find(Kind::kContext, handle_value(handle));
  return context != nullptr ? context_event(context, hEvent, action) : CUDA_ERROR_INVALID_CONTEXT;
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
  Context* context = current_context();
  Process* program = process();
  if (program == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (nbGroups == nullptr || input == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Session* session = any_session();
  if (session == nullptr) return Session::lost_result();
  wire::cuda::sm_resource_split_request request;
  wire::cuda::sm_resource_split_reply reply;
  request.input = {reinterpret_cast<const uint8_t*>(input), sizeof *input};
  request.groups = result != nullptr ? *nbGroups : 0;
  request.count_only = result == nullptr;
  request.flags = useFlags;
  request.minimum = minCount;
  TENDRIL_TRY(session->call(static_cast<const Context*>(context), request, reply));
  if (result != nullptr && reply.results.count > request.groups * sizeof *result)
    return CUDA_ERROR_UNKNOWN;
  if (result != nullptr && reply.results.count != 0)
    memcpy(result, reply.results.data, reply.results.count);
  if (remaining != nullptr && reply.remaining.count == sizeof *remaining)
    memcpy(remaining, reply.remaining.data, sizeof *remaining);
  *nbGroups = reply.groups;
  return CUDA_SUCCESS;
}

CUresult cuGreenCtxCreate(CUgreenCtx* phCtx, CUdevResourceDesc desc, CUdevice dev,
                          unsigned int flags) {
  if (process() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  Device* device = device_of(dev);
  Object* described = find_object(Kind::kResourceDesc, handle_value(desc));
  if (phCtx == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  if (described == nullptr || described->session != device->session)
    return CUDA_ERROR_INVALID_HANDLE;
  Context* context = new_context(device);
  if (context == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  Object* green = create_object(Kind::kGreenContext, device->session, context);
  wire::cuda::green_context_create_request request;
  wire::cuda::green_context_create_reply reply;
  request.green = green != nullptr ? green->wire_id : 0;
  request.context = context->wire_id;
  request.description = described->wire_id;
  request.slot = device->slot;
  request.flags = flags;
  const CUresult result =
      green != nullptr ? device->session->call(static_cast<const Context*>(nullptr), request, reply)
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
  wire::cuda::green_context_destroy_request request;
  wire::cuda::green_context_destroy_reply reply;
  request.green = green->wire_id;
  request.context = context->wire_id;
  sweep_context(context);
  const CUresult result =
      green->session->call(static_cast<const Context*>(nullptr), request, reply);
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
  Stream* stream = new_stream(green->context, flags, priority);
  if (stream == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  wire::cuda::green_stream_create_request request;
  wire::cuda::green_stream_create_reply reply;
  request.green = green->wire_id;
  request.stream = stream->wire_id;
  request.flags = flags;
  request.priority = stream->priority;
  const CUresult result = green->session->call(green->context, request, reply);
  if (result == CUDA_SUCCESS)
    *phStream = handle_cast<CUstream>(stream);
  else
    process()->streams.destroy(stream);
  return result;
}

CUresult cuStreamGetGreenCtx(CUstream hStream, CUgreenCtx* phCtx) {
  Context* context = nullptr;
  Stream* stream = nullptr;
  TENDRIL_TRY(require_context(&context));
  TENDRIL_TRY(require_stream(context, hStream, &stream));
  if (phCtx == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Context* at = stream != nullptr ? stream->context : context;
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
