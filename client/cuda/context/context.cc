// SPDX-License-Identifier: Apache-2.0
// Contexts: primary and created ones, the thread's stack, limits. Only creating, destroying,
// resetting and raising limits ask the worker.
#include <string.h>

#include "client/cuda/code/module.h"
#include "client/cuda/context/context.h"
#include "client/cuda/copy/copy.h"
#include "client/cuda/memory/memory.h"
#include "client/cuda/memory/mirror.h"
#include "client/cuda/runtime/context_storage.h"
#include "client/cuda/stream/capture.h"
#include "client/cuda/stream/event.h"

namespace tendril::client::cuda {
namespace {

constexpr unsigned kFlagsMask = 0xff;

CUresult context_of(CUcontext handle, Context** out) {
  Process* program = process();
  if (program == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  *out = program->contexts.find(Kind::kContext, handle_value(handle));
  return *out != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

// `handle`, or the current context when it is null.
CUresult context_or_current(CUcontext handle, Context** out) {
  if (handle == nullptr) return require_context(out);
  TENDRIL_TRY(context_of(handle, out));
  return (*out)->active.load() != 0 ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

CUresult push(Context* context) {
  ThreadState& thread = thread_state();
  if (thread.depth == kStackMax) return CUDA_ERROR_INVALID_VALUE;
  thread.stack[thread.depth++] = context;
  return CUDA_SUCCESS;
}

CUresult create(CUcontext* pctx, unsigned flags, CUdevice dev) {
  Process* program = process();
  if (program == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (pctx == nullptr || (flags & ~kFlagsMask) != 0) return CUDA_ERROR_INVALID_VALUE;
  Device* device = device_of(dev);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  TENDRIL_TRY(device->session->begin());
  Context* context = new_context(device);
  if (context == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  wire::cuda::context_create_request request;
  wire::cuda::context_create_reply reply;
  request.context = context->wire_id;
  request.slot = device->slot;
  request.flags = flags;
  const CUresult result =
      device->session->call(static_cast<const Context*>(nullptr), request, reply);
  if (result != CUDA_SUCCESS) {
    program->contexts.destroy(context);
    return result;
  }
  context->flags = flags;
  context_comes(context);
  *pctx = handle_cast<CUcontext>(context);
  return push(context);
}

}  // namespace

Context* new_context(Device* device) {
  Process* program = process();
  Context* context =
      program->contexts.create(Kind::kContext, device->session, nullptr, device->session->index);
  if (context == nullptr) return nullptr;
  context->device = device;
  context->context = context;
  context->primary = false;
  context->flags = 0;
  context->sticky = 0;
  context->retains = 1;
  context->id = program->next_context_id.fetch_add(1);
  context->thread_streams.clear();
  memcpy(context->limits, device->limits, sizeof context->limits);
  return context;
}

void context_comes(Context* context) {
  // This comes before the look, so that of two threads at the same time one sees the other.
  context->active.store(1);
  bool others = false;
  process()->contexts.for_each([&](const Context* c) {
    others |= c != context && c->session == context->session && c->active.load() != 0;
  });
  if (others) copies_matter(&process()->contexts_share, context->session);
}

void sweep_context(Context* context) {
  Process* program = process();
  storage_end(context);
  context->active.store(0);
  forget_code(context);
  program->ranges.remove_context(context, context->device->primary);
  forget_kept_pages(context);
  context->device->arena.forget(context);
  context->session->heap.forget(context, [&](uint64_t page) { program->ranges.remove_page(page); });
  context->legacy_ahead.end();
  program->streams.for_each([&](Stream* stream) {
    if (stream->context != context) return;
    stream->ahead.end();
    program->streams.destroy(stream);
  });
  program->events.for_each([&](Event* event) {
    if (event->context != context) return;
    forget_question(event);
    program->events.destroy(event);
  });
  for (const Kind kind : {Kind::kArray, Kind::kMipmap})
    program->others[static_cast<int>(kind)].for_each([&](Object* object) {
      if (object->context == context) destroy_object(kind, object);
    });
  const base::Locked held(context->lock);
  context->thread_streams.clear();
}

namespace {

CUresult primary_of(CUdevice dev, Context** out) {
  if (process() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  Device* device = device_of(dev);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  *out = device->primary;
  return CUDA_SUCCESS;
}

CUresult reset_primary(Context* context) {
  wire::cuda::primary_reset_request request;
  wire::cuda::primary_reset_reply reply;
  request.slot = context->device->slot;
  sweep_context(context);
  context->sticky = 0;
  const CUresult result =
      context->session->call(static_cast<const Context*>(nullptr), request, reply);
  context->session->staging.context_ended(context->session, context);
  return result;
}

}  // namespace

CUresult cuDevicePrimaryCtxRetain(CUcontext* pctx, CUdevice dev) {
  Context* context = nullptr;
  TENDRIL_TRY(primary_of(dev, &context));
  if (pctx == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const base::Locked held(context->lock);
  if (context->active.load() == 0) {
    TENDRIL_TRY(context->session->begin());
    wire::cuda::primary_retain_request request;
    wire::cuda::primary_retain_reply reply;
    request.slot = context->device->slot;
    request.flags = context->flags;
    request.context = context->wire_id;
    TENDRIL_TRY(context->session->call(static_cast<const Context*>(nullptr), request, reply));
    context_comes(context);
  }
  context->retains.fetch_add(1);
  *pctx = handle_cast<CUcontext>(context);
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice dev) {
  Context* context = nullptr;
  TENDRIL_TRY(primary_of(dev, &context));
  uint32_t held = context->retains.load();
  do {
    if (held == 0) return CUDA_ERROR_INVALID_CONTEXT;
  } while (!context->retains.compare_exchange_weak(held, held - 1));
  if (held > 1 || context->session->lane->is_lost()) return CUDA_SUCCESS;
  return reset_primary(context);
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice dev) {
  Context* context = nullptr;
  TENDRIL_TRY(primary_of(dev, &context));
  if (context->active.load() == 0) return CUDA_SUCCESS;
  return reset_primary(context);
}

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice dev, unsigned int flags) {
  Context* context = nullptr;
  TENDRIL_TRY(primary_of(dev, &context));
  if ((flags & ~kFlagsMask) != 0) return CUDA_ERROR_INVALID_VALUE;
  context->flags =
      flags;  // scheduling hints are about waits of this process; the worker waits in its own way
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxGetState(CUdevice dev, unsigned int* flags, int* active) {
  Context* context = nullptr;
  TENDRIL_TRY(primary_of(dev, &context));
  if (flags == nullptr || active == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *flags = context->flags;
  *active = static_cast<int>(context->active.load());
  return CUDA_SUCCESS;
}

CUresult cuCtxCreate_v2(CUcontext* pctx, unsigned int flags, CUdevice dev) {
  return create(pctx, flags, dev);
}
CUresult cuCtxCreate(CUcontext* pctx, unsigned int flags, CUdevice dev) {
  return create(pctx, flags, dev);
}

CUresult cuCtxCreate_v3(CUcontext* pctx, CUexecAffinityParam*, int numParams, unsigned int flags,
                        CUdevice dev) {
  if (numParams != 0) return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
  return create(pctx, flags, dev);
}

CUresult cuCtxCreate_v4(CUcontext* pctx, CUctxCreateParams* params, unsigned int flags,
                        CUdevice dev) {
  if (params != nullptr && (params->numExecAffinityParams != 0 || params->cigParams != nullptr))
    return CUDA_ERROR_NOT_SUPPORTED;
  return create(pctx, flags, dev);
}

CUresult cuCtxDestroy_v2(CUcontext ctx) {
  Context* context = nullptr;
  if (process() != nullptr && ctx == nullptr) return CUDA_ERROR_INVALID_VALUE;
  TENDRIL_TRY(context_of(ctx, &context));
  if (context->primary) return CUDA_ERROR_INVALID_CONTEXT;
  wire::cuda::context_destroy_request request;
  wire::cuda::context_destroy_reply reply;
  request.context = context->wire_id;
  Session* session = context->session;
  sweep_context(context);
  ThreadState& thread = thread_state();
  if (thread.depth != 0 && thread.stack[thread.depth - 1] == context) --thread.depth;
  const CUresult result = session->call(static_cast<const Context*>(nullptr), request, reply);
  session->staging.context_ended(session, context);
  process()->contexts.destroy(context);
  return result;
}

CUresult cuCtxAttach(CUcontext* pctx, unsigned int flags) {
  Context* context = nullptr;
  TENDRIL_TRY(require_context(&context));
  if (pctx == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  context->retains.fetch_add(1);
  *pctx = handle_cast<CUcontext>(context);
  return CUDA_SUCCESS;
}

CUresult cuCtxDetach(CUcontext ctx) {
  Context* context = nullptr;
  TENDRIL_TRY(context_of(ctx, &context));
  if (context->retains.load() > 1) {
    context->retains.fetch_sub(1);
    return CUDA_SUCCESS;
  }
  return cuCtxDestroy_v2(ctx);
}

CUresult cuCtxPushCurrent_v2(CUcontext ctx) {
  Context* context = nullptr;
  if (process() != nullptr && ctx == nullptr) return CUDA_ERROR_INVALID_VALUE;
  TENDRIL_TRY(context_of(ctx, &context));
  return push(context);
}

CUresult cuCtxPopCurrent_v2(CUcontext* pctx) {
  if (process() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  ThreadState& thread = thread_state();
  if (thread.depth == 0) return CUDA_ERROR_INVALID_CONTEXT;
  Context* top = thread.stack[--thread.depth];
  if (pctx != nullptr) *pctx = top != nullptr ? handle_cast<CUcontext>(top) : nullptr;
  return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext ctx) {
  if (process() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  ThreadState& thread = thread_state();
  if (ctx == nullptr) {
    if (thread.depth != 0) --thread.depth;
    return CUDA_SUCCESS;
  }
  Context* context = nullptr;
  TENDRIL_TRY(context_of(ctx, &context));
  if (thread.depth == 0) return push(context);
  thread.stack[thread.depth - 1] = context;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext* pctx) {
  if (process() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (pctx == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Context* context = current_context();
  *pctx = context != nullptr ? handle_cast<CUcontext>(context) : nullptr;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice_v2(CUdevice* device, CUcontext ctx) {
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Context* context = nullptr;
  if (ctx == nullptr) {
    if (process() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
    context = current_context();
    if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  } else {
    TENDRIL_TRY(context_of(ctx, &context));
  }
  *device = context->device->ordinal;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice* device) { return cuCtxGetDevice_v2(device, nullptr); }

CUresult cuCtxGetFlags(unsigned int* flags) {
  Context* context = nullptr;
  TENDRIL_TRY(require_context(&context));
  if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *flags = context->flags;
  return CUDA_SUCCESS;
}

CUresult cuCtxSetFlags(unsigned int flags) {
  Context* context = nullptr;
  TENDRIL_TRY(require_context(&context));
  if ((flags & ~kFlagsMask) != 0) return CUDA_ERROR_INVALID_VALUE;
  context->flags = flags;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetId(CUcontext ctx, unsigned long long* ctxId) {
  if (ctxId == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Context* context = nullptr;
  TENDRIL_TRY(context_or_current(ctx, &context));
  *ctxId = context->id;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetApiVersion(CUcontext ctx, unsigned int* version) {
  if (version == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Context* context = nullptr;
  TENDRIL_TRY(context_or_current(ctx, &context));
  *version = 3020;  // what every driver since CUDA 3.2 answers
  return CUDA_SUCCESS;
}

CUresult cuCtxGetLimit(size_t* pvalue, CUlimit limit) {
  Context* context = nullptr;
  TENDRIL_TRY(require_context(&context));
  if (pvalue == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (limit < 0 || limit >= CU_LIMIT_MAX) return CUDA_ERROR_INVALID_VALUE;
  *pvalue = context->limits[limit];
  return CUDA_SUCCESS;
}

CUresult cuCtxSetLimit(CUlimit limit, size_t value) {
  Context* context = nullptr;
  TENDRIL_TRY(require_context(&context));
  if (limit < 0 || limit >= CU_LIMIT_MAX) return CUDA_ERROR_INVALID_VALUE;
  wire::cuda::context_set_limit_request request;
  wire::cuda::context_set_limit_reply reply;
  request.limit = static_cast<uint32_t>(limit);
  request.value = value;
  TENDRIL_TRY(context->session->call(context, request, reply));
  context->limits[limit] = reply.actual;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetCacheConfig(CUfunc_cache* pconfig) {
  Context* context = nullptr;
  TENDRIL_TRY(require_context(&context));
  if (pconfig == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *pconfig = context->cache_config;
  return CUDA_SUCCESS;
}

CUresult cuCtxSetCacheConfig(CUfunc_cache config) {
  Context* context = nullptr;
  TENDRIL_TRY(require_context(&context));
  if (config < CU_FUNC_CACHE_PREFER_NONE || config > CU_FUNC_CACHE_PREFER_EQUAL)
    return CUDA_ERROR_INVALID_VALUE;
  context->cache_config = config;
  wire::cuda::context_set_cache_config_request request;
  request.config = static_cast<uint32_t>(config);
  return context->session->enqueue(context, request);
}

CUresult cuCtxGetSharedMemConfig(CUsharedconfig* pConfig) {
  Context* context = nullptr;
  TENDRIL_TRY(require_context(&context));
  if (pConfig == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *pConfig = CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE;  // the only one since Maxwell
  return CUDA_SUCCESS;
}

CUresult cuCtxSetSharedMemConfig(CUsharedconfig config) {
  Context* context = nullptr;
  TENDRIL_TRY(require_context(&context));
  if (config < 0 || config > CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE)
    return CUDA_ERROR_INVALID_VALUE;
  context->shared_config = config;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetStreamPriorityRange(int* leastPriority, int* greatestPriority) {
  Context* context = nullptr;
  TENDRIL_TRY(require_context(&context));
  if (leastPriority != nullptr) *leastPriority = context->device->least_priority;
  if (greatestPriority != nullptr) *greatestPriority = context->device->greatest_priority;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetExecAffinity(CUexecAffinityParam*, CUexecAffinityType) {
  Context* context = nullptr;
  TENDRIL_TRY(require_context(&context));
  return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
}

CUresult cuCtxSynchronize_v2(CUcontext ctx) {
  Context* context = nullptr;
  TENDRIL_TRY(context_or_current(ctx, &context));
  if (const int sticky = context->sticky.load(std::memory_order_relaxed))
    return static_cast<CUresult>(sticky);
  TENDRIL_TRY(check_unsafe_call());
  mirror_before_wait(context->session, context);
  if (!context->session->freed.empty()) context->session->send_frees();
  const uint64_t serial = context->session->serial.load();
  const uint64_t before = context->session->calls(), freed = context->session->heap.mark();
  wire::cuda::context_synchronize_request request;
  wire::cuda::context_synchronize_reply reply;
  if (!context->idle.use(before)) {
    TENDRIL_TRY(context->session->call(context, request, reply));
    context->waited.store(before);
  }
  context->synchronised.store(serial, std::memory_order_release);
  if (!process()->contexts_share.load(std::memory_order_relaxed))
    context->session->heap.waited(freed);
  process()->reads.forget_context(context);
  mirror_after_wait(context->session, context);
  return CUDA_SUCCESS;
}

CUresult cuCtxSynchronize() { return cuCtxSynchronize_v2(nullptr); }

namespace {

CUresult peer_access(CUcontext peer, bool enable, unsigned flags) {
  Context *context = nullptr, *other = nullptr;
  TENDRIL_TRY(require_context(&context));
  TENDRIL_TRY(context_of(peer, &other));
  if (other->session != context->session || (enable && other == context))
    return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
  wire::cuda::peer_access_request request;
  wire::cuda::peer_access_reply reply;
  request.context = other->wire_id;
  request.enable = enable;
  request.flags = flags;
  return context->session->call(context, request, reply);
}

}  // namespace

CUresult cuCtxEnablePeerAccess(CUcontext peerContext, unsigned int Flags) {
  return peer_access(peerContext, true, Flags);
}
CUresult cuCtxDisablePeerAccess(CUcontext peerContext) {
  return peer_access(peerContext, false, 0);
}

CUresult cuFlushGPUDirectRDMAWrites(CUflushGPUDirectRDMAWritesTarget,
                                    CUflushGPUDirectRDMAWritesScope) {
  Context* context = nullptr;
  TENDRIL_TRY(require_context(&context));
  return CUDA_ERROR_NOT_SUPPORTED;  // no network card of this machine reaches the GPU
}

}  // namespace tendril::client::cuda
