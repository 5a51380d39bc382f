// SPDX-License-Identifier: Apache-2.0
// Handlers of api/cuda/event.spec.
#include "api/cuda_handlers.gen.h"
#include "worker/cuda/executor/scope.h"
#include "worker/cuda/executor/waits.h"
#include "worker/cuda/ipc.h"

namespace tendril::worker::cuda {

CUresult handle(Executor& w, const wire::cuda::event_create_request& m) {
  CUevent event = nullptr;
  const CUresult result = w.driver().cuEventCreate(&event, m.flags);
  if (result != CUDA_SUCCESS) return result;
  if (w.objects().bind(Kind::kEvent, m.event, event)) return CUDA_SUCCESS;
  w.driver().cuEventDestroy_v2(event);
  return CUDA_ERROR_INVALID_HANDLE;
}

CUresult handle(Executor& w, const wire::cuda::event_destroy_request& m) {
  void* event = w.objects().unbind(Kind::kEvent, m.event);
  if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  w.ipc().gone(reinterpret_cast<uint64_t>(event));
  return w.driver().cuEventDestroy_v2(static_cast<CUevent>(event));
}

CUresult handle(Executor& w, const wire::cuda::event_record_request& m) {
  Scope s(w);
  CUevent event = s.get<CUevent>(Kind::kEvent, m.event);
  CUstream stream = s.stream(m.stream);
  if (!s.ok()) return s.error();
  if (m.flags != 0) return w.driver().cuEventRecordWithFlags(event, stream, m.flags);
  return w.driver().cuEventRecord(event, stream);
}

CUresult handle(Executor& w, const wire::cuda::event_query_request& m,
                wire::cuda::event_query_reply&) {
  Scope s(w);
  CUevent event = s.get<CUevent>(Kind::kEvent, m.event);
  if (!s.ok()) return s.error();
  const CUresult result = w.driver().cuEventQuery(event);
  if (result == CUDA_ERROR_NOT_READY) return result;
  w.waiters().send_news(true);
  return result;
}

CUresult handle(Executor& w, const wire::cuda::event_synchronize_request& m,
                wire::cuda::event_synchronize_reply&) {
  Scope s(w);
  CUevent event = s.get<CUevent>(Kind::kEvent, m.event);
  if (!s.ok()) return s.error();
  return w.waiters().answer_after(WaitKind::kEvent, event);
}

CUresult handle(Executor& w, const wire::cuda::event_elapsed_request& m,
                wire::cuda::event_elapsed_reply& r) {
  Scope s(w);
  CUevent start = s.get<CUevent>(Kind::kEvent, m.start), end = s.get<CUevent>(Kind::kEvent, m.end);
  if (!s.ok()) return s.error();
  if (w.driver().cuEventElapsedTime_v2 != nullptr)
    return w.driver().cuEventElapsedTime_v2(&r.milliseconds, start, end);
  return w.driver().cuEventElapsedTime(&r.milliseconds, start, end);
}

}  // namespace tendril::worker::cuda
