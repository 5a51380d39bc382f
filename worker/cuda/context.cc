// SPDX-License-Identifier: Apache-2.0
// Handlers of api/cuda/context.spec. Primary contexts are in device.cc.
#include "api/cuda_handlers.gen.h"
#include "worker/cuda/executor/scope.h"
#include "worker/cuda/executor/waits.h"
#include "worker/cuda/memory/kept_memory.h"

namespace tendril::worker::cuda {

CUresult handle(Executor& w, const wire::cuda::context_create_request& m,
                wire::cuda::context_create_reply&) {
  Scope s(w);
  const CUdevice device = s.device(m.slot);
  if (!s.ok()) return s.error();
  WorkerContext* context = w.contexts().add(m.context);
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  CUcontext driver_context = nullptr;
  const CUresult result = w.driver().cuCtxCreate_v2(
      &driver_context, m.flags & ~unsigned{CU_CTX_COREDUMP_ENABLE}, device);
  w.contexts().forget_current();  // creation made it current; let `use` decide from now on
  if (result != CUDA_SUCCESS) {
    w.remove_context(m.context);
    return result;
  }
  CUcontext popped = nullptr;
  w.driver().cuCtxPopCurrent_v2(&popped);
  context->context = driver_context;
  context->slot = m.slot;
  w.objects().bind(Kind::kContext, m.context, driver_context);
  w.gate().has_context(m.slot);
  return CUDA_SUCCESS;
}

CUresult handle(Executor& w, const wire::cuda::context_destroy_request& m,
                wire::cuda::context_destroy_reply&) {
  WorkerContext* context = w.contexts().find(m.context);
  if (context == nullptr || context->primary) return CUDA_ERROR_INVALID_CONTEXT;
  w.contexts().use(context->context);
  w.waiters().deliver_all();
  w.waiters().reclaim(0);
  const CUresult result = w.driver().cuCtxDestroy_v2(context->context);
  w.objects().unbind(Kind::kContext, m.context);
  w.remove_context(m.context);
  w.contexts().forget_current();
  return result;
}

CUresult handle(Executor& w, const wire::cuda::context_set_limit_request& m,
                wire::cuda::context_set_limit_reply& r) {
  const auto limit = static_cast<CUlimit>(m.limit);
  const CUresult result = w.kept_memory().set_limit(limit, m.value);
  size_t actual = 0;
  if (result == CUDA_SUCCESS && w.driver().cuCtxGetLimit(&actual, limit) == CUDA_SUCCESS)
    r.actual = actual;
  return result;
}

CUresult handle(Executor& w, const wire::cuda::context_set_cache_config_request& m) {
  return w.driver().cuCtxSetCacheConfig(static_cast<CUfunc_cache>(m.config));
}

CUresult handle(Executor& w, const wire::cuda::context_synchronize_request&,
                wire::cuda::context_synchronize_reply&) {
  if (w.context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  return w.waiters().answer_after(WaitKind::kContext, nullptr);
}

CUresult handle(Executor& w, const wire::cuda::deferred_error_request&,
                wire::cuda::deferred_error_reply&) {
  return Contexts::take_deferred_of(w.context());
}

CUresult handle(Executor& w, const wire::cuda::peer_access_request& m,
                wire::cuda::peer_access_reply&) {
  Scope s(w);
  CUcontext peer = s.get<CUcontext>(Kind::kContext, m.context);
  if (!s.ok()) return s.error();
  return m.enable != 0 ? w.driver().cuCtxEnablePeerAccess(peer, m.flags)
                       : w.driver().cuCtxDisablePeerAccess(peer);
}

}  // namespace tendril::worker::cuda
