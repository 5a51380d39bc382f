// SPDX-License-Identifier: Apache-2.0
// Handlers of api/cuda/green_context.spec. A green context and its ordinary context are bound
// together. Executor thread.
#include <cstring>

#include "api/cuda_handlers.gen.h"
#include "worker/cuda/executor/scope.h"
#include "worker/cuda/executor/waits.h"
#include "worker/cuda/memory/context_memory.h"

namespace tendril::worker::cuda {
namespace {

constexpr uint32_t kGroupsMax = 1024;  // more than any device has multiprocessors

}  // namespace

CUresult handle(Executor& executor, const wire::cuda::sm_resource_split_request& request,
                wire::cuda::sm_resource_split_reply& reply) {
  Scope scope(executor);
  CUdevResource input;
  if (!scope.image(request.input, &input)) return scope.error();
  if (executor.driver().cuDevSmResourceSplitByCount == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  unsigned groups = request.groups < kGroupsMax ? request.groups : kGroupsMax;
  CUdevResource* results = request.count_only != 0 ? nullptr : scope.scratch<CUdevResource>(groups);
  CUdevResource* remaining = scope.scratch<CUdevResource>(1);
  if (!scope.ok()) return scope.error();
  const CUresult result = executor.driver().cuDevSmResourceSplitByCount(
      results, &groups, &input, remaining, request.flags, request.minimum);
  if (result != CUDA_SUCCESS) return result;
  reply.groups = groups;
  if (results != nullptr)
    reply.results = {reinterpret_cast<const uint8_t*>(results), groups * sizeof *results};
  reply.remaining = {reinterpret_cast<const uint8_t*>(remaining), sizeof *remaining};
  return CUDA_SUCCESS;
}

CUresult handle(Executor& executor, const wire::cuda::green_context_create_request& request,
                wire::cuda::green_context_create_reply&) {
  Scope scope(executor);
  const CUdevice device = scope.device(request.slot);
  CUdevResourceDesc description =
      scope.get<CUdevResourceDesc>(Kind::kResourceDesc, request.description);
  scope.reserve(Kind::kGreenContext, request.green);
  scope.reserve(Kind::kContext, request.context);
  if (!scope.ok()) return scope.error();
  gpu::Driver& driver = executor.driver();
  if (driver.cuGreenCtxCreate == nullptr || driver.cuCtxFromGreenCtx == nullptr)
    return CUDA_ERROR_NOT_SUPPORTED;
  ContextMemory& memory = executor.context_memory();
  if (!memory.take_context(request.slot)) return CUDA_ERROR_OUT_OF_MEMORY;
  CUgreenCtx green = nullptr;
  CUcontext made = nullptr;
  CUresult result = driver.cuGreenCtxCreate(&green, description, device, request.flags);
  if (result != CUDA_SUCCESS) {
    memory.give_back_context(request.slot);
    return result;
  }
  result = driver.cuCtxFromGreenCtx(&made, green);
  if (result == CUDA_SUCCESS && !memory.began(made, request.slot))
    result = CUDA_ERROR_OUT_OF_MEMORY;
  if (result != CUDA_SUCCESS) {
    driver.cuGreenCtxDestroy(green);
    memory.give_back_context(request.slot);
    return result;
  }
  WorkerContext* context = executor.contexts().add(request.context);
  if (context == nullptr || !executor.objects().bind(Kind::kGreenContext, request.green, green)) {
    if (context != nullptr) executor.remove_context(request.context);
    driver.cuGreenCtxDestroy(green);
    memory.ended(made);
    return CUDA_ERROR_INVALID_HANDLE;
  }
  context->context = made;
  context->slot = request.slot;
  executor.objects().bind(Kind::kContext, request.context, made, green);
  executor.gate().has_context(request.slot);
  return CUDA_SUCCESS;
}

CUresult handle(Executor& executor, const wire::cuda::green_context_destroy_request& request,
                wire::cuda::green_context_destroy_reply&) {
  Scope scope(executor);
  CUgreenCtx green = scope.get<CUgreenCtx>(Kind::kGreenContext, request.green);
  WorkerContext* context = executor.contexts().find(request.context);
  if (!scope.ok() || context == nullptr || executor.objects().owner(request.context) != green)
    return scope.ok() ? CUDA_ERROR_INVALID_CONTEXT : scope.error();
  if (!executor.prepare_to_end(context->context)) return CUDA_ERROR_UNKNOWN;
  const CUresult result = executor.driver().cuGreenCtxDestroy(green);
  executor.objects().gone(Kind::kGreenContext, request.green);
  executor.remove_context(request.context);
  executor.contexts().forget_current();
  return result;
}

CUresult handle(Executor& executor, const wire::cuda::green_stream_create_request& request,
                wire::cuda::green_stream_create_reply&) {
  Scope scope(executor);
  CUgreenCtx green = scope.get<CUgreenCtx>(Kind::kGreenContext, request.green);
  scope.reserve(Kind::kStream, request.stream);
  if (!scope.ok()) return scope.error();
  if (!executor.context_memory().take_stream()) return CUDA_ERROR_OUT_OF_MEMORY;
  CUstream stream = nullptr;
  CUcontext owner = nullptr;
  CUresult result = executor.driver().cuCtxFromGreenCtx(&owner, green);
  if (result == CUDA_SUCCESS)
    result =
        executor.driver().cuGreenCtxStreamCreate(&stream, green, request.flags, request.priority);
  if (result != CUDA_SUCCESS) {
    executor.context_memory().refused_stream();
    return result;
  }
  executor.context_memory().began(stream);
  if (executor.objects().bind(Kind::kStream, request.stream, stream, owner))
    return executor.streams().begin_apart(stream);
  executor.context_memory().ended(stream);
  executor.driver().cuStreamDestroy_v2(stream);
  return CUDA_ERROR_INVALID_HANDLE;
}

CUresult handle(Executor& executor, const wire::cuda::context_event_request& request,
                wire::cuda::context_event_reply&) {
  Scope scope(executor);
  CUevent event = scope.get<CUevent>(Kind::kEvent, request.event);
  if (!scope.ok()) return scope.error();
  if (executor.context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  CUcontext context = executor.context()->context;
  if (executor.driver().cuCtxRecordEvent == nullptr || executor.driver().cuCtxWaitEvent == nullptr)
    return CUDA_ERROR_NOT_SUPPORTED;
  return request.action == wire::cuda::ContextEventAction::kRecord
             ? executor.driver().cuCtxRecordEvent(context, event)
             : executor.driver().cuCtxWaitEvent(context, event);
}

}  // namespace tendril::worker::cuda
