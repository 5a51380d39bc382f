// SPDX-License-Identifier: Apache-2.0
// Handlers of api/cuda/stream.spec. Those of captures are in capture.cc.
#include "api/cuda_handlers.gen.h"
#include "worker/cuda/executor/callbacks.h"
#include "worker/cuda/executor/scope.h"
#include "worker/cuda/executor/waits.h"
#include "worker/cuda/memory/context_memory.h"

namespace tendril::worker::cuda {

CUresult handle(Executor& executor, const wire::cuda::stream_create_request& request) {
  if (executor.context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (executor.objects().full()) return CUDA_ERROR_OUT_OF_MEMORY;
  if (!executor.context_memory().take_stream()) return CUDA_ERROR_OUT_OF_MEMORY;
  CUstream stream = nullptr;
  const CUresult result =
      executor.driver().cuStreamCreateWithPriority(&stream, request.flags, request.priority);
  if (result != CUDA_SUCCESS) {
    executor.context_memory().refused_stream();
    return result;
  }
  executor.context_memory().began(stream);
  const bool apart = (request.flags & CU_STREAM_NON_BLOCKING) != 0;
  if (executor.objects().bind(Kind::kStream, request.stream, stream, executor.context()->context))
    return apart ? executor.streams().begin_apart(stream) : CUDA_SUCCESS;
  executor.context_memory().ended(stream);
  executor.driver().cuStreamDestroy_v2(stream);
  return CUDA_ERROR_INVALID_HANDLE;
}

CUresult handle(Executor& executor, const wire::cuda::stream_destroy_request& request) {
  void* stream = executor.objects().gone(Kind::kStream, request.stream);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  executor.forget_stream(static_cast<CUstream>(stream));
  if (executor.waiters().end_after_use(WaitKind::kStream, stream)) return CUDA_SUCCESS;
  return executor.driver().cuStreamDestroy_v2(static_cast<CUstream>(stream));
}

CUresult handle(Executor& executor, const wire::cuda::stream_query_request& request,
                wire::cuda::stream_query_reply&) {
  Scope scope(executor);
  CUstream stream = scope.stream(request.stream);
  if (!scope.ok()) return scope.error();
  const CUresult result = executor.driver().cuStreamQuery(stream);
  if (result == CUDA_ERROR_NOT_READY) return result;
  executor.waiters().send_news(true);
  return result != CUDA_SUCCESS ? result : Contexts::take_deferred_of(executor.context());
}

CUresult handle(Executor& executor, const wire::cuda::stream_synchronize_request& request,
                wire::cuda::stream_synchronize_reply&) {
  Scope scope(executor);
  CUstream stream = scope.stream(request.stream);
  if (!scope.ok()) return scope.error();
  return executor.waiters().answer_after(WaitKind::kStream, stream);
}

CUresult handle(Executor& executor, const wire::cuda::stream_wait_event_request& request) {
  Scope scope(executor);
  CUstream stream = scope.stream(request.stream);
  CUevent event = scope.get<CUevent>(Kind::kEvent, request.event);
  if (!scope.ok()) return scope.error();
  if (executor.streams().capturing())
    executor.gate().mark_everything();  // this wait may make the stream capture
  return executor.driver().cuStreamWaitEvent(stream, event, request.flags);
}

CUresult handle(Executor& executor, const wire::cuda::host_function_request& request) {
  Scope scope(executor);
  CUstream stream = scope.stream(request.stream);
  if (!scope.ok()) return scope.error();
  executor.gate().pass_host_function(executor.context(), stream);
  if (request.persistent != 0)
    return executor.callbacks().capture(&executor.driver(), stream, request.token);
  return executor.callbacks().launch(&executor.driver(), stream, request.token,
                                     executor.waiters().last_delivery());
}

CUresult handle(Executor& executor, const wire::cuda::host_function_done_request& request) {
  executor.callbacks().done(request.invocation);
  return CUDA_SUCCESS;
}

}  // namespace tendril::worker::cuda
