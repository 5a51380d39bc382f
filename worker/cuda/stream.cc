// SPDX-License-Identifier: Apache-2.0
// Handlers of api/cuda/stream.spec. Those of captures are in capture.cc.
#include "api/cuda_handlers.gen.h"
#include "worker/cuda/executor/callbacks.h"
#include "worker/cuda/executor/scope.h"
#include "worker/cuda/executor/waits.h"

namespace tendril::worker::cuda {

CUresult handle(Executor& w, const wire::cuda::stream_create_request& m) {
  CUstream stream = nullptr;
  const CUresult result = w.driver().cuStreamCreateWithPriority(&stream, m.flags, m.priority);
  if (result != CUDA_SUCCESS) return result;
  const bool apart = (m.flags & CU_STREAM_NON_BLOCKING) != 0;
  if (w.objects().bind(Kind::kStream, m.stream, stream))
    return apart ? w.streams().begin_apart(stream) : CUDA_SUCCESS;
  w.driver().cuStreamDestroy_v2(stream);
  return CUDA_ERROR_INVALID_HANDLE;
}

CUresult handle(Executor& w, const wire::cuda::stream_destroy_request& m) {
  void* stream = w.objects().unbind(Kind::kStream, m.stream);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  w.forget_stream(static_cast<CUstream>(stream));
  return w.driver().cuStreamDestroy_v2(static_cast<CUstream>(stream));
}

CUresult handle(Executor& w, const wire::cuda::stream_query_request& m,
                wire::cuda::stream_query_reply&) {
  Scope s(w);
  CUstream stream = s.stream(m.stream);
  if (!s.ok()) return s.error();
  const CUresult result = w.driver().cuStreamQuery(stream);
  if (result == CUDA_ERROR_NOT_READY) return result;
  w.waiters().send_news(true);
  return result != CUDA_SUCCESS ? result : Contexts::take_deferred_of(w.context());
}

CUresult handle(Executor& w, const wire::cuda::stream_synchronize_request& m,
                wire::cuda::stream_synchronize_reply&) {
  Scope s(w);
  CUstream stream = s.stream(m.stream);
  if (!s.ok()) return s.error();
  return w.waiters().answer_after(WaitKind::kStream, stream);
}

CUresult handle(Executor& w, const wire::cuda::stream_wait_event_request& m) {
  Scope s(w);
  CUstream stream = s.stream(m.stream);
  CUevent event = s.get<CUevent>(Kind::kEvent, m.event);
  if (!s.ok()) return s.error();
  if (w.streams().capturing())
    w.gate().mark_everything();  // the stream may begin to capture by this
  return w.driver().cuStreamWaitEvent(stream, event, m.flags);
}

CUresult handle(Executor& w, const wire::cuda::host_function_request& m) {
  Scope s(w);
  CUstream stream = s.stream(m.stream);
  if (!s.ok()) return s.error();
  w.gate().pass_host_function(w.context(), stream);
  if (m.persistent != 0) return w.callbacks().capture(&w.driver(), stream, m.token);
  return w.callbacks().launch(&w.driver(), stream, m.token, w.waiters().last_delivery());
}

CUresult handle(Executor& w, const wire::cuda::host_function_done_request& m) {
  w.callbacks().done(m.invocation);
  return CUDA_SUCCESS;
}

}  // namespace tendril::worker::cuda
