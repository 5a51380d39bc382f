// SPDX-License-Identifier: Apache-2.0
// Handlers of api/cuda/event.spec.
#include "api/cuda_handlers.gen.h"
#include "worker/cuda/executor/scope.h"
#include "worker/cuda/executor/waits.h"

namespace tendril::worker::cuda {

CUresult handle(Executor& executor, const wire::cuda::event_create_request& request) {
  if (executor.context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (executor.objects().full()) return CUDA_ERROR_OUT_OF_MEMORY;
  CUevent event = nullptr;
  const CUresult result = executor.driver().cuEventCreate(&event, request.flags);
  if (result != CUDA_SUCCESS) return result;
  if (executor.objects().bind(Kind::kEvent, request.event, event, executor.context()->context))
    return CUDA_SUCCESS;
  executor.driver().cuEventDestroy_v2(event);
  return CUDA_ERROR_INVALID_HANDLE;
}

CUresult handle(Executor& executor, const wire::cuda::event_destroy_request& request) {
  void* event = executor.objects().gone(Kind::kEvent, request.event);
  if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (executor.waiters().end_after_use(WaitKind::kEvent, event)) return CUDA_SUCCESS;
  return executor.driver().cuEventDestroy_v2(static_cast<CUevent>(event));
}

CUresult handle(Executor& executor, const wire::cuda::event_record_request& request) {
  Scope scope(executor);
  CUevent event = scope.get<CUevent>(Kind::kEvent, request.event);
  CUstream stream = scope.stream(request.stream);
  if (!scope.ok()) return scope.error();
  if (request.flags != 0)
    return executor.driver().cuEventRecordWithFlags(event, stream, request.flags);
  return executor.driver().cuEventRecord(event, stream);
}

CUresult handle(Executor& executor, const wire::cuda::event_query_request& request,
                wire::cuda::event_query_reply&) {
  Scope scope(executor);
  CUevent event = scope.get<CUevent>(Kind::kEvent, request.event);
  if (!scope.ok()) return scope.error();
  const CUresult result = executor.driver().cuEventQuery(event);
  if (result == CUDA_ERROR_NOT_READY) return result;
  executor.waiters().send_news(true);
  return result;
}

CUresult handle(Executor& executor, const wire::cuda::event_synchronize_request& request,
                wire::cuda::event_synchronize_reply&) {
  Scope scope(executor);
  CUevent event = scope.get<CUevent>(Kind::kEvent, request.event);
  if (!scope.ok()) return scope.error();
  return executor.waiters().answer_after(WaitKind::kEvent, event);
}

CUresult handle(Executor& executor, const wire::cuda::event_elapsed_request& request,
                wire::cuda::event_elapsed_reply& reply) {
  Scope scope(executor);
  CUevent start = scope.get<CUevent>(Kind::kEvent, request.start),
          end = scope.get<CUevent>(Kind::kEvent, request.end);
  if (!scope.ok()) return scope.error();
  if (executor.driver().cuEventElapsedTime_v2 != nullptr)
    return executor.driver().cuEventElapsedTime_v2(&reply.milliseconds, start, end);
  return executor.driver().cuEventElapsedTime(&reply.milliseconds, start, end);
}

}  // namespace tendril::worker::cuda
