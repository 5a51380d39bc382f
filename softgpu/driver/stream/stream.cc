// SPDX-License-Identifier: Apache-2.0
// Streams: handles, creation, synchronisation, attributes. Capture is in graph/capture.cc; host
// functions and memory operations are in stream_ops.cc.

#include "softgpu/driver/stream/stream.h"

#include <algorithm>
#include <cstring>

#include "softgpu/driver/device/device.h"
#include "softgpu/driver/entry.h"
#include "softgpu/driver/stream/clock.h"

namespace tendril::softgpu {
namespace {

constexpr int kHighestPriority = -5;  // as cuCtxGetStreamPriorityRange says
std::atomic<uint64_t> g_next_id{16};

}  // namespace

StreamTable& streams() {
  static auto& table = *new StreamTable;
  return table;
}

StreamPtr make_stream(const ContextPtr& context, unsigned flags, int priority) {
  auto made = std::make_shared<Stream>();
  made->context = context;
  made->flags = flags;
  made->priority = std::clamp(priority, kHighestPriority, 0);
  made->id = g_next_id.fetch_add(1);
  made->handle = streams().add(made);
  context->add_stream(made);
  return made;
}

CUresult find_stream(CUstream handle, StreamPtr* stream, ContextPtr* context) {
  if (handle == nullptr)
    handle = call_scope().per_thread_default ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;
  if (handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD) {
    if (CUresult bad = usable_context(context)) return bad;
    *stream =
        handle == CU_STREAM_LEGACY ? (*context)->legacy_stream() : (*context)->thread_stream();
    return CUDA_SUCCESS;
  }
  *stream = streams().get(handle);
  if (!*stream) return CUDA_ERROR_INVALID_HANDLE;
  *context = (*stream)->context.lock();
  if (!*context || (*context)->destroyed()) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  (*context)->notice_loss();
  return (*context)->error();
}

CUresult wait_stream(const StreamPtr& stream, const ContextPtr& context) {
  TokenPtr last = stream->queue->last();
  if (last) last->wait();
  // The legacy stream stands for all blocking streams.
  if (stream->is_legacy)
    for (const StreamPtr& other : context->streams())
      if (other->blocking())
        if (TokenPtr token = other->queue->last()) token->wait();
  settle_pools();
  context->flush_print();
  return context->error();
}

SOFT(cuStreamCreateWithPriority)(CUstream* phStream, unsigned int flags, int priority) {
  if (phStream == nullptr || (flags & ~static_cast<unsigned>(CU_STREAM_NON_BLOCKING)) != 0)
    return CUDA_ERROR_INVALID_VALUE;
  SOFT_CONTEXT(context);
  if (!context->reserve_stream()) return CUDA_ERROR_OUT_OF_MEMORY;
  *phStream = make_stream(context, flags, priority)->handle;
  return CUDA_SUCCESS;
}

SOFT(cuStreamCreate)(CUstream* phStream, unsigned int Flags) {
  return soft_cuStreamCreateWithPriority(phStream, Flags, 0);
}

SOFT(cuStreamDestroy_v2)(CUstream hStream) {
  StreamPtr stream = streams().get(hStream);
  if (!stream) return CUDA_ERROR_INVALID_HANDLE;
  {
    std::lock_guard guard(capture_lock());
    if (Capture* capture = stream->capture.get()) {
      if (capture->origin.lock() == stream) capture->invalidated = true;
      for (auto& node : stream->frontier) capture->left.push_back(std::move(node));
    }
  }
  if (!streams().remove(hStream)) return CUDA_ERROR_INVALID_HANDLE;
  ContextPtr context = stream->context.lock();
  if (!context) return CUDA_SUCCESS;
  context->drop_stream(stream);
  return context->error();
}

SOFT(cuStreamDestroy)(CUstream hStream) { return soft_cuStreamDestroy_v2(hStream); }

SOFT(cuStreamSynchronize)(CUstream hStream) {
  StreamPtr stream;
  ContextPtr context;
  if (CUresult bad = find_stream(hStream, &stream, &context)) return bad;
  if (CUresult bad = refuse_capturing(stream)) return bad;
  if (CUresult bad = refuse_during_capture()) return bad;
  return wait_stream(stream, context);
}

SOFT(cuStreamQuery)(CUstream hStream) {
  StreamPtr stream;
  ContextPtr context;
  if (CUresult bad = find_stream(hStream, &stream, &context)) return bad;
  if (CUresult bad = refuse_capturing(stream)) return bad;
  bool idle = stream->queue->idle();
  if (stream->is_legacy)
    for (const StreamPtr& other : context->streams())
      idle = idle && (!other->blocking() || other->queue->idle());
  if (!idle) {
    Clock::instance().asked_in_vain();
    return CUDA_ERROR_NOT_READY;
  }
  context->flush_print();
  return context->error();
}

SOFT(cuStreamGetFlags)(CUstream hStream, unsigned int* flags) {
  StreamPtr stream;
  ContextPtr context;
  if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (CUresult bad = find_stream(hStream, &stream, &context)) return bad;
  *flags = stream->flags;
  return CUDA_SUCCESS;
}

SOFT(cuStreamGetPriority)(CUstream hStream, int* priority) {
  StreamPtr stream;
  ContextPtr context;
  if (priority == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (CUresult bad = find_stream(hStream, &stream, &context)) return bad;
  *priority = stream->priority;
  return CUDA_SUCCESS;
}

SOFT(cuStreamGetId)(CUstream hStream, unsigned long long* streamId) {
  StreamPtr stream;
  ContextPtr context;
  if (streamId == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (CUresult bad = find_stream(hStream, &stream, &context)) return bad;
  *streamId = stream->id;
  return CUDA_SUCCESS;
}

SOFT(cuStreamGetCtx)(CUstream hStream, CUcontext* pctx) {
  StreamPtr stream;
  ContextPtr context;
  if (pctx == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (CUresult bad = find_stream(hStream, &stream, &context)) return bad;
  *pctx = context->handle;
  return CUDA_SUCCESS;
}

SOFT(cuStreamGetCtx_v2)(CUstream hStream, CUcontext* pCtx, CUgreenCtx* pGreenCtx) {
  if (pCtx == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (pGreenCtx != nullptr) *pGreenCtx = nullptr;
  return soft_cuStreamGetCtx(hStream, pCtx);
}

SOFT(cuStreamGetDevice)(CUstream hStream, CUdevice* device) {
  StreamPtr stream;
  ContextPtr context;
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (CUresult bad = find_stream(hStream, &stream, &context)) return bad;
  *device = context->device;
  return CUDA_SUCCESS;
}

SOFT(cuStreamGetAttribute)(CUstream hStream, CUstreamAttrID attr, CUstreamAttrValue* value) {
  StreamPtr stream;
  ContextPtr context;
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (CUresult bad = find_stream(hStream, &stream, &context)) return bad;
  if (attr != CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW &&
      attr != CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY && attr != CU_LAUNCH_ATTRIBUTE_PRIORITY &&
      attr != CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP &&
      attr != CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN)
    return CUDA_ERROR_INVALID_VALUE;
  memset(value, 0, sizeof *value);
  std::lock_guard guard(stream->attribute_lock);
  auto found = stream->attributes.find(attr);
  if (found != stream->attributes.end()) {
    *value = found->second;
  } else if (attr == CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY) {
    value->syncPolicy = CU_SYNC_POLICY_AUTO;
  } else if (attr == CU_LAUNCH_ATTRIBUTE_PRIORITY) {
    value->priority = stream->priority;
  }
  return CUDA_SUCCESS;
}

SOFT(cuStreamSetAttribute)(CUstream hStream, CUstreamAttrID attr, const CUstreamAttrValue* value) {
  StreamPtr stream;
  ContextPtr context;
  CUstreamAttrValue before;
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (CUresult bad = soft_cuStreamGetAttribute(hStream, attr, &before)) return bad;
  if (CUresult bad = find_stream(hStream, &stream, &context)) return bad;
  std::lock_guard guard(stream->attribute_lock);
  stream->attributes[attr] = *value;
  if (attr == CU_LAUNCH_ATTRIBUTE_PRIORITY)
    stream->priority = std::clamp(value->priority, kHighestPriority, 0);
  return CUDA_SUCCESS;
}

SOFT(cuStreamCopyAttributes)(CUstream dstStream, CUstream srcStream) {
  StreamPtr from, to;
  ContextPtr context;
  if (CUresult bad = find_stream(srcStream, &from, &context)) return bad;
  if (CUresult bad = find_stream(dstStream, &to, &context)) return bad;
  if (from == to) return CUDA_SUCCESS;
  std::scoped_lock guard(from->attribute_lock, to->attribute_lock);
  to->attributes = from->attributes;
  return CUDA_SUCCESS;
}

}  // namespace tendril::softgpu
