// SPDX-License-Identifier: Apache-2.0
// Handlers of api/cuda/green_context.spec. A green context and the context of it are bound
// together. Executor thread.
#include <cstring>

#include "api/cuda_handlers.gen.h"
#include "worker/cuda/executor/scope.h"
#include "worker/cuda/executor/waits.h"

namespace tendril::worker::cuda {
namespace {

constexpr uint32_t kGroupsMax = 1024;  // more than any device has multiprocessors

}  // namespace

CUresult handle(Executor& w, const wire::cuda::sm_resource_split_request& m,
                wire::cuda::sm_resource_split_reply& r) {
  Scope s(w);
  CUdevResource input;
  if (!s.image(m.input, &input)) return s.error();
  if (w.driver().cuDevSmResourceSplitByCount == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  unsigned groups = m.groups < kGroupsMax ? m.groups : kGroupsMax;
  CUdevResource* results = m.count_only != 0 ? nullptr : s.scratch<CUdevResource>(groups);
  CUdevResource* remaining = s.scratch<CUdevResource>(1);
  if (!s.ok()) return s.error();
  const CUresult result = w.driver().cuDevSmResourceSplitByCount(results, &groups, &input,
                                                                 remaining, m.flags, m.minimum);
  if (result != CUDA_SUCCESS) return result;
  r.groups = groups;
  if (results != nullptr)
    r.results = {reinterpret_cast<const uint8_t*>(results), groups * sizeof *results};
  r.remaining = {reinterpret_cast<const uint8_t*>(remaining), sizeof *remaining};
  return CUDA_SUCCESS;
}

CUresult handle(Executor& w, const wire::cuda::green_context_create_request& m,
                wire::cuda::green_context_create_reply&) {
  Scope s(w);
  const CUdevice device = s.device(m.slot);
  CUdevResourceDesc description = s.get<CUdevResourceDesc>(Kind::kResourceDesc, m.description);
  if (!s.ok()) return s.error();
  gpu::Driver& d = w.driver();
  if (d.cuGreenCtxCreate == nullptr || d.cuCtxFromGreenCtx == nullptr)
    return CUDA_ERROR_NOT_SUPPORTED;
  CUgreenCtx green = nullptr;
  CUcontext made = nullptr;
  CUresult result = d.cuGreenCtxCreate(&green, description, device, m.flags);
  if (result != CUDA_SUCCESS) return result;
  result = d.cuCtxFromGreenCtx(&made, green);
  WorkerContext* context = result == CUDA_SUCCESS ? w.contexts().add(m.context) : nullptr;
  if (context == nullptr || !w.objects().bind(Kind::kGreenContext, m.green, green)) {
    if (context != nullptr) w.remove_context(m.context);
    d.cuGreenCtxDestroy(green);
    return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_HANDLE;
  }
  context->context = made;
  context->slot = m.slot;
  w.objects().bind(Kind::kContext, m.context, made);
  w.gate().has_context(m.slot);
  return CUDA_SUCCESS;
}

CUresult handle(Executor& w, const wire::cuda::green_context_destroy_request& m,
                wire::cuda::green_context_destroy_reply&) {
  Scope s(w);
  CUgreenCtx green = s.get<CUgreenCtx>(Kind::kGreenContext, m.green);
  WorkerContext* context = w.contexts().find(m.context);
  if (!s.ok() || context == nullptr || context->primary)
    return s.ok() ? CUDA_ERROR_INVALID_CONTEXT : s.error();
  w.contexts().use(context->context);
  w.waiters().deliver_all();
  w.waiters().reclaim(0);
  const CUresult result = w.driver().cuGreenCtxDestroy(green);
  w.objects().unbind(Kind::kGreenContext, m.green);
  w.objects().unbind(Kind::kContext, m.context);
  w.remove_context(m.context);
  w.contexts().forget_current();
  return result;
}

CUresult handle(Executor& w, const wire::cuda::green_stream_create_request& m,
                wire::cuda::green_stream_create_reply&) {
  Scope s(w);
  CUgreenCtx green = s.get<CUgreenCtx>(Kind::kGreenContext, m.green);
  if (!s.ok()) return s.error();
  CUstream stream = nullptr;
  const CUresult result = w.driver().cuGreenCtxStreamCreate(&stream, green, m.flags, m.priority);
  if (result != CUDA_SUCCESS) return result;
  if (w.objects().bind(Kind::kStream, m.stream, stream)) return w.streams().begin_apart(stream);
  w.driver().cuStreamDestroy_v2(stream);
  return CUDA_ERROR_INVALID_HANDLE;
}

CUresult handle(Executor& w, const wire::cuda::context_event_request& m,
                wire::cuda::context_event_reply&) {
  Scope s(w);
  CUevent event = s.get<CUevent>(Kind::kEvent, m.event);
  if (!s.ok()) return s.error();
  if (w.context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  CUcontext context = w.context()->context;
  if (w.driver().cuCtxRecordEvent == nullptr || w.driver().cuCtxWaitEvent == nullptr)
    return CUDA_ERROR_NOT_SUPPORTED;
  return m.action == wire::cuda::ContextEventAction::kRecord
             ? w.driver().cuCtxRecordEvent(context, event)
             : w.driver().cuCtxWaitEvent(context, event);
}

}  // namespace tendril::worker::cuda
