// SPDX-License-Identifier: Apache-2.0
// The cuCtx* calls except those of primary contexts (primary.cc) and peers (peer.cc).

#include <algorithm>

#include "softgpu/driver/config.h"
#include "softgpu/driver/device/context.h"
#include "softgpu/driver/device/device.h"
#include "softgpu/driver/entry.h"
#include "softgpu/driver/stream/stream.h"
#include "softgpu/driver/stream/work.h"

namespace tendril::softgpu {
namespace {

constexpr unsigned kApiVersion =
    3020;  // cuCtxGetApiVersion of a context made by cuCtxCreate_v2, as drivers report it

bool valid_flags(unsigned flags) {
  unsigned scheduling = flags & CU_CTX_SCHED_MASK;
  return (flags & ~static_cast<unsigned>(CU_CTX_FLAGS_MASK)) == 0 &&
         (scheduling == CU_CTX_SCHED_AUTO || scheduling == CU_CTX_SCHED_SPIN ||
          scheduling == CU_CTX_SCHED_YIELD || scheduling == CU_CTX_SCHED_BLOCKING_SYNC);
}

CUresult create(CUcontext* out, unsigned flags, CUdevice device) {
  if (out == nullptr || !valid_flags(flags)) return CUDA_ERROR_INVALID_VALUE;
  if (device_at(device) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  if (faults().device[device].lost) return CUDA_ERROR_UNKNOWN;
  ContextPtr made = make_context(device, flags, nullptr);
  if (!made) return CUDA_ERROR_OUT_OF_MEMORY;
  context_stack().push_back(made->handle);
  *out = made->handle;
  return CUDA_SUCCESS;
}

// The context that a call names; null means the current one.
CUresult named_context(CUcontext handle, ContextPtr* out) {
  if (handle == nullptr) return bare_context(out);
  *out = contexts().get(handle);
  return *out ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

// Orders the legacy stream after everything in the context so far, and everything later after that.
CUresult join_streams(const ContextPtr& context) {
  SubmitOptions options;
  options.contexts = {context};
  options.every_stream = true;
  return submit_work(context->legacy_stream(), context, std::make_shared<EmptyWork>(), options);
}

}  // namespace

SOFT(cuCtxCreate_v2)(CUcontext* pctx, unsigned int flags, CUdevice dev) {
  return create(pctx, flags, dev);
}
SOFT(cuCtxCreate)(CUcontext* pctx, unsigned int flags, CUdevice dev) {
  return create(pctx, flags, dev);
}

SOFT(cuCtxCreate_v3)
(CUcontext* pctx, CUexecAffinityParam* params, int numParams, unsigned int flags, CUdevice dev) {
  if (numParams != 0 || params != nullptr) return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
  return create(pctx, flags, dev);
}

SOFT(cuCtxCreate_v4)(CUcontext* pctx, CUctxCreateParams* params, unsigned int flags, CUdevice dev) {
  if (params != nullptr && params->cigParams != nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  if (params != nullptr && params->numExecAffinityParams != 0)
    return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
  return create(pctx, flags, dev);
}

SOFT(cuCtxDestroy_v2)(CUcontext ctx) {
  if (ctx == nullptr) return CUDA_ERROR_INVALID_VALUE;
  ContextPtr context = contexts().get(ctx);
  if (!context || context->primary) return CUDA_ERROR_INVALID_CONTEXT;
  if (!contexts().remove(ctx)) return CUDA_ERROR_INVALID_CONTEXT;
  context->destroy();
  auto& stack = context_stack();
  if (!stack.empty() && stack.back() == ctx) stack.pop_back();
  return CUDA_SUCCESS;
}

SOFT(cuCtxDestroy)(CUcontext ctx) { return soft_cuCtxDestroy_v2(ctx); }

SOFT(cuCtxAttach)(CUcontext* pctx, unsigned int flags) {
  if (pctx == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  ContextPtr context;
  if (CUresult bad = bare_context(&context)) return bad;
  std::lock_guard guard(context->lock);
  ++context->attach_count;
  *pctx = context->handle;
  return CUDA_SUCCESS;
}

SOFT(cuCtxDetach)(CUcontext ctx) {
  ContextPtr context = contexts().get(ctx);
  if (!context) return CUDA_ERROR_INVALID_CONTEXT;
  {
    std::lock_guard guard(context->lock);
    if (--context->attach_count > 0) return CUDA_SUCCESS;
  }
  return soft_cuCtxDestroy_v2(ctx);
}

SOFT(cuCtxPushCurrent_v2)(CUcontext ctx) {
  if (ctx == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!contexts().get(ctx)) return CUDA_ERROR_INVALID_CONTEXT;
  context_stack().push_back(ctx);
  return CUDA_SUCCESS;
}

SOFT(cuCtxPushCurrent)(CUcontext ctx) { return soft_cuCtxPushCurrent_v2(ctx); }

SOFT(cuCtxPopCurrent_v2)(CUcontext* pctx) {
  auto& stack = context_stack();
  if (stack.empty()) return CUDA_ERROR_INVALID_CONTEXT;
  if (pctx != nullptr) *pctx = stack.back();
  stack.pop_back();
  return CUDA_SUCCESS;
}

SOFT(cuCtxPopCurrent)(CUcontext* pctx) { return soft_cuCtxPopCurrent_v2(pctx); }

SOFT(cuCtxSetCurrent)(CUcontext ctx) {
  auto& stack = context_stack();
  if (ctx == nullptr) {
    if (!stack.empty()) stack.pop_back();
    return CUDA_SUCCESS;
  }
  if (!contexts().get(ctx)) return CUDA_ERROR_INVALID_CONTEXT;
  if (stack.empty()) {
    stack.push_back(ctx);
  } else {
    stack.back() = ctx;
  }
  return CUDA_SUCCESS;
}

SOFT(cuCtxGetCurrent)(CUcontext* pctx) {
  if (pctx == nullptr) return CUDA_ERROR_INVALID_VALUE;
  auto& stack = context_stack();
  *pctx = stack.empty() ? nullptr : stack.back();
  return CUDA_SUCCESS;
}

SOFT(cuCtxGetDevice)(CUdevice* device) {
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  ContextPtr context;
  if (CUresult bad = bare_context(&context)) return bad;
  *device = context->device;
  return CUDA_SUCCESS;
}

SOFT(cuCtxGetDevice_v2)(CUdevice* device, CUcontext ctx) {
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  ContextPtr context;
  if (CUresult bad = named_context(ctx, &context)) return bad;
  *device = context->device;
  return CUDA_SUCCESS;
}

SOFT(cuCtxGetFlags)(unsigned int* flags) {
  if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
  ContextPtr context;
  if (CUresult bad = bare_context(&context)) return bad;
  *flags = context->flags | CU_CTX_MAP_HOST;  // mapping host memory is always on
  return CUDA_SUCCESS;
}

SOFT(cuCtxSetFlags)(unsigned int flags) {
  ContextPtr context;
  if (CUresult bad = bare_context(&context)) return bad;
  if (!valid_flags(flags)) return CUDA_ERROR_INVALID_VALUE;
  context->flags = flags;
  return CUDA_SUCCESS;
}

SOFT(cuCtxGetId)(CUcontext ctx, unsigned long long* ctxId) {
  if (ctxId == nullptr) return CUDA_ERROR_INVALID_VALUE;
  ContextPtr context;
  if (CUresult bad = named_context(ctx, &context)) return bad;
  *ctxId = context->id;
  return CUDA_SUCCESS;
}

SOFT(cuCtxGetApiVersion)(CUcontext ctx, unsigned int* version) {
  if (version == nullptr) return CUDA_ERROR_INVALID_VALUE;
  ContextPtr context;
  if (CUresult bad = named_context(ctx, &context)) return bad;
  *version = kApiVersion;
  return CUDA_SUCCESS;
}

SOFT(cuCtxSynchronize)() {
  SOFT_CONTEXT(context);
  if (CUresult bad = refuse_during_capture()) return bad;
  return context->synchronise();
}

SOFT(cuCtxSynchronize_v2)(CUcontext ctx) {
  ContextPtr context;
  if (CUresult bad = named_context(ctx, &context)) return bad;
  if (CUresult bad = refuse_during_capture()) return bad;
  return context->synchronise();
}

SOFT(cuCtxGetLimit)(size_t* pvalue, CUlimit limit) {
  if (pvalue == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SOFT_CONTEXT(context);
  if (static_cast<unsigned>(limit) >= CU_LIMIT_MAX) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard guard(context->lock);
  *pvalue = context->limits[limit];
  return CUDA_SUCCESS;
}

SOFT(cuCtxSetLimit)(CUlimit limit, size_t value) {
  SOFT_CONTEXT(context);
  if (static_cast<unsigned>(limit) >= CU_LIMIT_MAX) return CUDA_ERROR_INVALID_VALUE;
  if (static_cast<unsigned>(limit) >= CU_LIMIT_SHMEM_SIZE) return CUDA_ERROR_UNSUPPORTED_LIMIT;
  std::lock_guard guard(context->lock);
  // Local memory of a thread is at most 512 KiB. The stack is part of it.
  if (limit == CU_LIMIT_STACK_SIZE && value > 512u << 10) return CUDA_ERROR_INVALID_VALUE;
  if (limit == CU_LIMIT_PRINTF_FIFO_SIZE && context->may_print) return CUDA_ERROR_INVALID_VALUE;
  if (limit == CU_LIMIT_STACK_SIZE) value = (value + 15) / 16 * 16;
  if (limit == CU_LIMIT_STACK_SIZE && !context->reserve_local(value, true))
    return CUDA_ERROR_OUT_OF_MEMORY;
  if (limit == CU_LIMIT_PERSISTING_L2_CACHE_SIZE) value = 0;  // the attribute says there is none
  context->limits[limit] = value;
  return CUDA_SUCCESS;
}

SOFT(cuCtxGetCacheConfig)(CUfunc_cache* pconfig) {
  if (pconfig == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SOFT_CONTEXT(context);
  *pconfig = context->cache_config;
  return CUDA_SUCCESS;
}

SOFT(cuCtxSetCacheConfig)(CUfunc_cache config) {
  SOFT_CONTEXT(context);
  if (static_cast<unsigned>(config) > CU_FUNC_CACHE_PREFER_EQUAL) return CUDA_ERROR_INVALID_VALUE;
  context->cache_config = config;
  return CUDA_SUCCESS;
}

SOFT(cuCtxGetSharedMemConfig)(CUsharedconfig* pConfig) {
  if (pConfig == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SOFT_CONTEXT(context);
  *pConfig = context->shared_config;
  return CUDA_SUCCESS;
}

SOFT(cuCtxSetSharedMemConfig)(CUsharedconfig config) {
  SOFT_CONTEXT(context);
  if (static_cast<unsigned>(config) > CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE)
    return CUDA_ERROR_INVALID_VALUE;
  return CUDA_SUCCESS;  // banks are fixed at four bytes
}

SOFT(cuCtxGetStreamPriorityRange)(int* leastPriority, int* greatestPriority) {
  SOFT_CONTEXT(context);
  if (leastPriority != nullptr) *leastPriority = 0;
  if (greatestPriority != nullptr) *greatestPriority = -5;
  return CUDA_SUCCESS;
}

SOFT(cuCtxResetPersistingL2Cache)() {
  SOFT_CONTEXT(context);
  return CUDA_SUCCESS;
}

SOFT(cuCtxGetExecAffinity)(CUexecAffinityParam* pExecAffinity, CUexecAffinityType type) {
  if (pExecAffinity == nullptr || type != CU_EXEC_AFFINITY_TYPE_SM_COUNT)
    return CUDA_ERROR_INVALID_VALUE;
  SOFT_CONTEXT(context);
  return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
}

SOFT(cuCtxRecordEvent)(CUcontext hCtx, CUevent hEvent) {
  ContextPtr context;
  if (CUresult bad = named_context(hCtx, &context)) return bad;
  EventPtr event = events().get(hEvent);
  if (!event || event->context_handle != context->handle) return CUDA_ERROR_INVALID_HANDLE;
  if (CUresult bad = join_streams(context)) return bad;
  return record_event(event, context->legacy_stream(), context, 0);
}

SOFT(cuCtxWaitEvent)(CUcontext hCtx, CUevent hEvent) {
  ContextPtr context;
  if (CUresult bad = named_context(hCtx, &context)) return bad;
  EventPtr event = events().get(hEvent);
  if (!event) return CUDA_ERROR_INVALID_HANDLE;
  if (CUresult bad = wait_event(event, context->legacy_stream(), context, 0)) return bad;
  return join_streams(context);
}

}  // namespace tendril::softgpu
