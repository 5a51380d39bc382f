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

namespace tendril::client::cuda {
namespace {

constexpr unsigned kFlagsMask = 0xff;

CUresult context_of(CUcontext handle, Context** out) {
  Process* p = process();
  if (p == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  *out = p->contexts.find(Kind::kContext, handle_value(handle));
  return *out != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

// `handle`, or the current context when it is null.
CUresult context_or_current(CUcontext handle, Context** out) {
  if (handle == nullptr) return require_context(out);
  TENDRIL_TRY(context_of(handle, out));
  return (*out)->active.load() != 0 ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

CUresult push(Context* context) {
  ThreadState& t = thread_state();
  if (t.depth == kStackMax) return CUDA_ERROR_INVALID_VALUE;
  t.stack[t.depth++] = context;
  return CUDA_SUCCESS;
}

CUresult create(CUcontext* pctx, unsigned flags, CUdevice dev) {
  Process* p = process();
  if (p == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (pctx == nullptr || (flags & ~kFlagsMask) != 0) return CUDA_ERROR_INVALID_VALUE;
  Device* d = device_of(dev);
  if (d == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  Context* c = new_context(d);
  if (c == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  wire::cuda::context_create_request m;
  wire::cuda::context_create_reply r;
  m.context = c->wire_id;
  m.slot = d->slot;
  m.flags = flags;
  const CUresult result = d->session->call(static_cast<const Context*>(nullptr), m, r);
  if (result != CUDA_SUCCESS) {
    p->contexts.destroy(c);
    return result;
  }
  c->flags = flags;
  context_comes(c);
  *pctx = handle_cast<CUcontext>(c);
  return push(c);
}

}  // namespace

Context* new_context(Device* device) {
  Process* p = process();
  Context* c = p->contexts.create(Kind::kContext, device->session, nullptr, device->session->index);
  if (c == nullptr) return nullptr;
  c->device = device;
  c->context = c;
  c->primary = false;
  c->flags = 0;
  c->sticky = 0;
  c->retains = 1;
  c->id = p->next_context_id.fetch_add(1);
  c->thread_streams.clear();
  memcpy(c->limits, device->limits, sizeof c->limits);
  return c;
}

void context_comes(Context* context) {
  // Before the look: of two that come at once, one then sees the other.
  context->active.store(1);
  bool others = false;
  process()->contexts.for_each([&](const Context* c) {
    others |= c != context && c->session == context->session && c->active.load() != 0;
  });
  if (others) copies_matter(&process()->contexts_share, context->session);
}

void sweep_context(Context* context) {
  Process* p = process();
  storage_end(context);
  context->active.store(0);
  forget_code(context);
  p->ranges.remove_context(context, context->device->primary);
  p->streams.for_each([&](Stream* s) {
    if (s->context == context) p->streams.destroy(s);
  });
  p->events.for_each([&](Event* e) {
    if (e->context == context) p->events.destroy(e);
  });
  for (const Kind kind : {Kind::kArray, Kind::kMipmap})
    p->others[static_cast<int>(kind)].for_each([&](Object* object) {
      if (object->context == context) destroy_object(kind, object);
    });
  const base::Locked held(context->lock);
  context->thread_streams.clear();
}

namespace {

CUresult primary_of(CUdevice dev, Context** out) {
  if (process() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  Device* d = device_of(dev);
  if (d == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  *out = d->primary;
  return CUDA_SUCCESS;
}

CUresult reset_primary(Context* c) {
  wire::cuda::primary_reset_request m;
  wire::cuda::primary_reset_reply r;
  m.slot = c->device->slot;
  sweep_context(c);
  c->sticky = 0;
  const CUresult result = c->session->call(static_cast<const Context*>(nullptr), m, r);
  c->session->staging.context_ended(c->session, c);
  return result;
}

}  // namespace

CUresult cuDevicePrimaryCtxRetain(CUcontext* pctx, CUdevice dev) {
  Context* c = nullptr;
  TENDRIL_TRY(primary_of(dev, &c));
  if (pctx == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const base::Locked held(c->lock);
  if (c->active.load() == 0) {
    wire::cuda::primary_retain_request m;
    wire::cuda::primary_retain_reply r;
    m.slot = c->device->slot;
    m.flags = c->flags;
    m.context = c->wire_id;
    TENDRIL_TRY(c->session->call(static_cast<const Context*>(nullptr), m, r));
    context_comes(c);
  }
  c->retains.fetch_add(1);
  *pctx = handle_cast<CUcontext>(c);
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice dev) {
  Context* c = nullptr;
  TENDRIL_TRY(primary_of(dev, &c));
  uint32_t held = c->retains.load();
  do {
    if (held == 0) return CUDA_ERROR_INVALID_CONTEXT;
  } while (!c->retains.compare_exchange_weak(held, held - 1));
  if (held > 1 || c->session->lane->is_lost()) return CUDA_SUCCESS;
  return reset_primary(c);
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice dev) {
  Context* c = nullptr;
  TENDRIL_TRY(primary_of(dev, &c));
  if (c->active.load() == 0) return CUDA_SUCCESS;
  return reset_primary(c);
}

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice dev, unsigned int flags) {
  Context* c = nullptr;
  TENDRIL_TRY(primary_of(dev, &c));
  if ((flags & ~kFlagsMask) != 0) return CUDA_ERROR_INVALID_VALUE;
  c->flags =
      flags;  // scheduling hints are about waits of this process; the worker waits in its own way
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxGetState(CUdevice dev, unsigned int* flags, int* active) {
  Context* c = nullptr;
  TENDRIL_TRY(primary_of(dev, &c));
  if (flags == nullptr || active == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *flags = c->flags;
  *active = static_cast<int>(c->active.load());
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
  Context* c = nullptr;
  if (process() != nullptr && ctx == nullptr) return CUDA_ERROR_INVALID_VALUE;
  TENDRIL_TRY(context_of(ctx, &c));
  if (c->primary) return CUDA_ERROR_INVALID_CONTEXT;
  wire::cuda::context_destroy_request m;
  wire::cuda::context_destroy_reply r;
  m.context = c->wire_id;
  Session* session = c->session;
  sweep_context(c);
  ThreadState& t = thread_state();
  if (t.depth != 0 && t.stack[t.depth - 1] == c) --t.depth;
  const CUresult result = session->call(static_cast<const Context*>(nullptr), m, r);
  session->staging.context_ended(session, c);
  process()->contexts.destroy(c);
  return result;
}

CUresult cuCtxAttach(CUcontext* pctx, unsigned int flags) {
  Context* c = nullptr;
  TENDRIL_TRY(require_context(&c));
  if (pctx == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  c->retains.fetch_add(1);
  *pctx = handle_cast<CUcontext>(c);
  return CUDA_SUCCESS;
}

CUresult cuCtxDetach(CUcontext ctx) {
  Context* c = nullptr;
  TENDRIL_TRY(context_of(ctx, &c));
  if (c->retains.load() > 1) {
    c->retains.fetch_sub(1);
    return CUDA_SUCCESS;
  }
  return cuCtxDestroy_v2(ctx);
}

CUresult cuCtxPushCurrent_v2(CUcontext ctx) {
  Context* c = nullptr;
  if (process() != nullptr && ctx == nullptr) return CUDA_ERROR_INVALID_VALUE;
  TENDRIL_TRY(context_of(ctx, &c));
  return push(c);
}

CUresult cuCtxPopCurrent_v2(CUcontext* pctx) {
  if (process() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  ThreadState& t = thread_state();
  if (t.depth == 0) return CUDA_ERROR_INVALID_CONTEXT;
  Context* top = t.stack[--t.depth];
  if (pctx != nullptr) *pctx = top != nullptr ? handle_cast<CUcontext>(top) : nullptr;
  return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext ctx) {
  if (process() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  ThreadState& t = thread_state();
  if (ctx == nullptr) {
    if (t.depth != 0) --t.depth;
    return CUDA_SUCCESS;
  }
  Context* c = nullptr;
  TENDRIL_TRY(context_of(ctx, &c));
  if (t.depth == 0) return push(c);
  t.stack[t.depth - 1] = c;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext* pctx) {
  if (process() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (pctx == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Context* c = current_context();
  *pctx = c != nullptr ? handle_cast<CUcontext>(c) : nullptr;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice_v2(CUdevice* device, CUcontext ctx) {
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Context* c = nullptr;
  if (ctx == nullptr) {
    if (process() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
    c = current_context();
    if (c == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  } else {
    TENDRIL_TRY(context_of(ctx, &c));
  }
  *device = c->device->ordinal;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice* device) { return cuCtxGetDevice_v2(device, nullptr); }

CUresult cuCtxGetFlags(unsigned int* flags) {
  Context* c = nullptr;
  TENDRIL_TRY(require_context(&c));
  if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *flags = c->flags;
  return CUDA_SUCCESS;
}

CUresult cuCtxSetFlags(unsigned int flags) {
  Context* c = nullptr;
  TENDRIL_TRY(require_context(&c));
  if ((flags & ~kFlagsMask) != 0) return CUDA_ERROR_INVALID_VALUE;
  c->flags = flags;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetId(CUcontext ctx, unsigned long long* ctxId) {
  if (ctxId == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Context* c = nullptr;
  TENDRIL_TRY(context_or_current(ctx, &c));
  *ctxId = c->id;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetApiVersion(CUcontext ctx, unsigned int* version) {
  if (version == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Context* c = nullptr;
  TENDRIL_TRY(context_or_current(ctx, &c));
  *version = 3020;  // what every driver since CUDA 3.2 answers
  return CUDA_SUCCESS;
}

CUresult cuCtxGetLimit(size_t* pvalue, CUlimit limit) {
  Context* c = nullptr;
  TENDRIL_TRY(require_context(&c));
  if (pvalue == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (limit < 0 || limit >= CU_LIMIT_MAX) return CUDA_ERROR_INVALID_VALUE;
  *pvalue = c->limits[limit];
  return CUDA_SUCCESS;
}

CUresult cuCtxSetLimit(CUlimit limit, size_t value) {
  Context* c = nullptr;
  TENDRIL_TRY(require_context(&c));
  if (limit < 0 || limit >= CU_LIMIT_MAX) return CUDA_ERROR_INVALID_VALUE;
  wire::cuda::context_set_limit_request m;
  wire::cuda::context_set_limit_reply r;
  m.limit = static_cast<uint32_t>(limit);
  m.value = value;
  TENDRIL_TRY(c->session->call(c, m, r));
  c->limits[limit] = r.actual;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetCacheConfig(CUfunc_cache* pconfig) {
  Context* c = nullptr;
  TENDRIL_TRY(require_context(&c));
  if (pconfig == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *pconfig = c->cache_config;
  return CUDA_SUCCESS;
}

CUresult cuCtxSetCacheConfig(CUfunc_cache config) {
  Context* c = nullptr;
  TENDRIL_TRY(require_context(&c));
  if (config < CU_FUNC_CACHE_PREFER_NONE || config > CU_FUNC_CACHE_PREFER_EQUAL)
    return CUDA_ERROR_INVALID_VALUE;
  c->cache_config = config;
  wire::cuda::context_set_cache_config_request m;
  m.config = static_cast<uint32_t>(config);
  return c->session->enqueue(c, m);
}

CUresult cuCtxGetSharedMemConfig(CUsharedconfig* pConfig) {
  Context* c = nullptr;
  TENDRIL_TRY(require_context(&c));
  if (pConfig == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *pConfig = CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE;  // the only one since Maxwell
  return CUDA_SUCCESS;
}

CUresult cuCtxSetSharedMemConfig(CUsharedconfig config) {
  Context* c = nullptr;
  TENDRIL_TRY(require_context(&c));
  if (config < 0 || config > CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE)
    return CUDA_ERROR_INVALID_VALUE;
  c->shared_config = config;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetStreamPriorityRange(int* leastPriority, int* greatestPriority) {
  Context* c = nullptr;
  TENDRIL_TRY(require_context(&c));
  if (leastPriority != nullptr) *leastPriority = c->device->least_priority;
  if (greatestPriority != nullptr) *greatestPriority = c->device->greatest_priority;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetExecAffinity(CUexecAffinityParam*, CUexecAffinityType) {
  Context* c = nullptr;
  TENDRIL_TRY(require_context(&c));
  return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
}

CUresult cuCtxSynchronize_v2(CUcontext ctx) {
  Context* c = nullptr;
  TENDRIL_TRY(context_or_current(ctx, &c));
  if (const int sticky = c->sticky.load(std::memory_order_relaxed))
    return static_cast<CUresult>(sticky);
  TENDRIL_TRY(check_unsafe_call());
  mirror_before_wait(c->session, c);
  if (!c->session->freed.empty()) c->session->send_frees();
  const uint64_t serial = c->session->serial.load();
  const uint64_t before = c->session->calls();
  wire::cuda::context_synchronize_request m;
  wire::cuda::context_synchronize_reply r;
  if (!c->idle.use(before)) {
    TENDRIL_TRY(c->session->call(c, m, r));
    c->waited.store(before);
  }
  c->synchronised.store(serial, std::memory_order_release);
  process()->reads.forget_context(c);
  mirror_after_wait(c->session, c);
  return CUDA_SUCCESS;
}

CUresult cuCtxSynchronize() { return cuCtxSynchronize_v2(nullptr); }

namespace {

CUresult peer_access(CUcontext peer, bool enable, unsigned flags) {
  Context *c = nullptr, *other = nullptr;
  TENDRIL_TRY(require_context(&c));
  TENDRIL_TRY(context_of(peer, &other));
  if (other->session != c->session || (enable && other == c))
    return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
  wire::cuda::peer_access_request m;
  wire::cuda::peer_access_reply r;
  m.context = other->wire_id;
  m.enable = enable;
  m.flags = flags;
  return c->session->call(c, m, r);
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
  Context* c = nullptr;
  TENDRIL_TRY(require_context(&c));
  return CUDA_ERROR_NOT_SUPPORTED;  // no network card of this machine reaches the GPU
}

}  // namespace tendril::client::cuda
