// SPDX-License-Identifier: Apache-2.0
// Handlers of api/cuda/context.spec. Primary contexts are in device.cc.
#include "api/cuda_handlers.gen.h"
#include "worker/cuda/executor/scope.h"
#include "worker/cuda/executor/waits.h"
#include "worker/cuda/memory/context_memory.h"
#include "worker/cuda/memory/device_blocks.h"
#include "worker/cuda/memory/kept_memory.h"

namespace tendril::worker::cuda {

CUresult handle(Executor& executor, const wire::cuda::context_create_request& request,
                wire::cuda::context_create_reply&) {
  Scope scope(executor);
  const CUdevice device = scope.device(request.slot);
  if (!scope.ok()) return scope.error();
  scope.reserve(Kind::kContext, request.context);
  if (!scope.ok()) return scope.error();
  ContextMemory& memory = executor.context_memory();
  if (!memory.take_context(request.slot)) return CUDA_ERROR_OUT_OF_MEMORY;
  WorkerContext* context = executor.contexts().add(request.context);
  if (context == nullptr) {
    memory.give_back_context(request.slot);
    return CUDA_ERROR_INVALID_CONTEXT;
  }
  CUcontext driver_context = nullptr;
  const CUresult result = executor.driver().cuCtxCreate_v2(
      &driver_context, request.flags & ~unsigned{CU_CTX_COREDUMP_ENABLE}, device);
  executor.contexts().forget_current();  // creation made it current in the driver
  if (result != CUDA_SUCCESS) {
    memory.give_back_context(request.slot);
    executor.remove_context(request.context);
    return result;
  }
  CUcontext popped = nullptr;
  executor.driver().cuCtxPopCurrent_v2(&popped);
  if (!memory.began(driver_context, request.slot)) {
    executor.driver().cuCtxDestroy_v2(driver_context);
    memory.give_back_context(request.slot);
    executor.remove_context(request.context);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  context->context = driver_context;
  context->slot = request.slot;
  executor.objects().bind(Kind::kContext, request.context, driver_context);
  executor.gate().has_context(request.slot);
  return CUDA_SUCCESS;
}

CUresult handle(Executor& executor, const wire::cuda::context_destroy_request& request,
                wire::cuda::context_destroy_reply&) {
  WorkerContext* context = executor.contexts().find(request.context);
  if (context == nullptr || context->primary) return CUDA_ERROR_INVALID_CONTEXT;
  // A green context ends with the call for it.
  if (executor.objects().find(Kind::kContext, request.context) == nullptr ||
      executor.objects().owner(request.context) != nullptr)
    return CUDA_ERROR_INVALID_CONTEXT;
  if (!executor.prepare_to_end(context->context)) return CUDA_ERROR_UNKNOWN;
  const CUresult result = executor.driver().cuCtxDestroy_v2(context->context);
  executor.objects().unbind(Kind::kContext, request.context);
  executor.remove_context(request.context);
  executor.contexts().forget_current();
  return result;
}

CUresult handle(Executor& executor, const wire::cuda::context_set_limit_request& request,
                wire::cuda::context_set_limit_reply& reply) {
  const auto limit = static_cast<CUlimit>(request.limit);
  const CUresult result = executor.kept_memory().set_limit(limit, request.value);
  size_t actual = 0;
  if (result == CUDA_SUCCESS && executor.driver().cuCtxGetLimit(&actual, limit) == CUDA_SUCCESS)
    reply.actual = actual;
  return result;
}

CUresult handle(Executor& executor, const wire::cuda::context_set_cache_config_request& request) {
  return executor.driver().cuCtxSetCacheConfig(static_cast<CUfunc_cache>(request.config));
}

CUresult handle(Executor& executor, const wire::cuda::context_synchronize_request&,
                wire::cuda::context_synchronize_reply&) {
  if (executor.context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  return executor.waiters().answer_after(WaitKind::kContext, nullptr);
}

CUresult handle(Executor& executor, const wire::cuda::deferred_error_request&,
                wire::cuda::deferred_error_reply&) {
  return Contexts::take_deferred_of(executor.context());
}

CUresult handle(Executor& executor, const wire::cuda::peer_access_request& request,
                wire::cuda::peer_access_reply&) {
  Scope scope(executor);
  CUcontext peer = scope.get<CUcontext>(Kind::kContext, request.context);
  if (!scope.ok()) return scope.error();
  const bool enable = request.enable != 0;
  const CUresult result = enable ? executor.driver().cuCtxEnablePeerAccess(peer, request.flags)
                                 : executor.driver().cuCtxDisablePeerAccess(peer);
  if (result != CUDA_SUCCESS) return result;
  const WorkerContext* const other = executor.contexts().find(request.context);
  if (executor.context() == nullptr || other == nullptr) return CUDA_SUCCESS;
  return executor.blocks().let_reach(executor.context(), other, enable);
}

}  // namespace tendril::worker::cuda
