// SPDX-License-Identifier: Apache-2.0
// The driver that the process has open: the software GPU, found by its name. Nothing is loaded
// that was not there, except where a program has no driver at all. Any thread.
#pragma once

#include "api/cuda_abi.gen.h"

namespace tendril::softnccl {

// X(member, symbol)
#define TENDRIL_SOFTNCCL_DRIVER(X)                   \
  X(init, cuInit)                                    \
  X(context_current, cuCtxGetCurrent)                \
  X(context_set, cuCtxSetCurrent)                    \
  X(context_push, cuCtxPushCurrent_v2)               \
  X(context_pop, cuCtxPopCurrent_v2)                 \
  X(context_device, cuCtxGetDevice)                  \
  X(device_count, cuDeviceGetCount)                  \
  X(device, cuDeviceGet)                             \
  X(primary_retain, cuDevicePrimaryCtxRetain)        \
  X(primary_release, cuDevicePrimaryCtxRelease_v2)   \
  X(allocate, cuMemAlloc_v2)                         \
  X(deallocate, cuMemFree_v2)                        \
  X(physical_create, cuMemCreate)                    \
  X(physical_release, cuMemRelease)                  \
  X(range_reserve, cuMemAddressReserve)              \
  X(range_free, cuMemAddressFree)                    \
  X(map, cuMemMap)                                   \
  X(unmap, cuMemUnmap)                               \
  X(access, cuMemSetAccess)                          \
  X(host_allocate, cuMemHostAlloc)                   \
  X(host_deallocate, cuMemFreeHost)                  \
  X(copy, cuMemcpyAsync)                             \
  X(host_function, cuLaunchHostFunc)                 \
  X(callback, cuStreamAddCallback)                   \
  X(capture_info, cuStreamGetCaptureInfo_v2)         \
  X(capture_mode, cuThreadExchangeStreamCaptureMode) \
  X(event_create, cuEventCreate)                     \
  X(event_destroy, cuEventDestroy_v2)                \
  X(event_record, cuEventRecord)                     \
  X(event_wait, cuStreamWaitEvent)                   \
  X(object_create, cuUserObjectCreate)               \
  X(object_release, cuUserObjectRelease)             \
  X(object_retain, cuGraphRetainUserObject)

#define TENDRIL_SOFTNCCL_TYPE(symbol, result, arguments, names) \
  using symbol##_call = result(*) arguments;
TENDRIL_CUDA_FUNCTIONS(TENDRIL_SOFTNCCL_TYPE)
#undef TENDRIL_SOFTNCCL_TYPE

struct Driver {
#define TENDRIL_SOFTNCCL_MEMBER(member, symbol) symbol##_call member = nullptr;
  TENDRIL_SOFTNCCL_DRIVER(TENDRIL_SOFTNCCL_MEMBER)
#undef TENDRIL_SOFTNCCL_MEMBER
};

// Null if the process has no driver, or one without these calls.
const Driver* driver();

// Makes a context current for as long as this lives.
class ContextScope {
 public:
  explicit ContextScope(CUcontext context) : pushed_(driver()->context_push(context) == 0) {}
  ~ContextScope() {
    CUcontext popped = nullptr;
    if (pushed_) driver()->context_pop(&popped);
  }
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;

 private:
  bool pushed_;
};

// Lets this thread make driver calls that a capture elsewhere would forbid.
class RelaxedScope {
 public:
  RelaxedScope() { driver()->capture_mode(&mode_); }
  ~RelaxedScope() { driver()->capture_mode(&mode_); }
  RelaxedScope(const RelaxedScope&) = delete;
  RelaxedScope& operator=(const RelaxedScope&) = delete;

 private:
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
};

}  // namespace tendril::softnccl
