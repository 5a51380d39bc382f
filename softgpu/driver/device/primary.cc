// SPDX-License-Identifier: Apache-2.0
// The cuDevicePrimaryCtx* calls: one shared, counted context per device.

#include "softgpu/driver/config.h"
#include "softgpu/driver/device/context.h"
#include "softgpu/driver/device/device.h"
#include "softgpu/driver/entry.h"

namespace tendril::softgpu {
namespace {

void end_primary(Device& device) {
  device.primary_uses = 0;
  ContextPtr context = contexts().remove(device.primary_handle);
  if (context) context->destroy();
}

}  // namespace

SOFT(cuDevicePrimaryCtxRetain)(CUcontext* pctx, CUdevice dev) {
  if (pctx == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Device* device = device_at(dev);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  if (faults().device[dev].lost) return CUDA_ERROR_UNKNOWN;
  std::lock_guard guard(device->primary_lock);
  if (device->primary_uses == 0) {
    ContextPtr made = make_context(dev, device->primary_flags, device->primary_handle);
    if (!made) return CUDA_ERROR_OUT_OF_MEMORY;
    made->primary = true;
    device->primary_handle = made->handle;
  }
  ++device->primary_uses;
  *pctx = device->primary_handle;
  return CUDA_SUCCESS;
}

SOFT(cuDevicePrimaryCtxRelease_v2)(CUdevice dev) {
  Device* device = device_at(dev);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  std::lock_guard guard(device->primary_lock);
  if (device->primary_uses == 0) return CUDA_ERROR_INVALID_CONTEXT;
  if (device->primary_uses == 1) {
    end_primary(*device);
  } else {
    --device->primary_uses;
  }
  return CUDA_SUCCESS;
}

SOFT(cuDevicePrimaryCtxRelease)(CUdevice dev) { return soft_cuDevicePrimaryCtxRelease_v2(dev); }

SOFT(cuDevicePrimaryCtxReset_v2)(CUdevice dev) {
  Device* device = device_at(dev);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  std::lock_guard guard(device->primary_lock);
  if (device->primary_uses != 0) end_primary(*device);
  device->primary_flags = 0;
  return CUDA_SUCCESS;
}

SOFT(cuDevicePrimaryCtxReset)(CUdevice dev) { return soft_cuDevicePrimaryCtxReset_v2(dev); }

SOFT(cuDevicePrimaryCtxGetState)(CUdevice dev, unsigned int* flags, int* active) {
  if (flags == nullptr || active == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Device* device = device_at(dev);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  std::lock_guard guard(device->primary_lock);
  *flags = device->primary_flags;
  *active = device->primary_uses != 0;
  return CUDA_SUCCESS;
}

SOFT(cuDevicePrimaryCtxSetFlags_v2)(CUdevice dev, unsigned int flags) {
  Device* device = device_at(dev);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  unsigned scheduling = flags & CU_CTX_SCHED_MASK;
  if ((flags & ~static_cast<unsigned>(CU_CTX_FLAGS_MASK)) != 0 || scheduling == 3 || scheduling > 4)
    return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard guard(device->primary_lock);
  device->primary_flags = flags;
  if (ContextPtr context = contexts().get(device->primary_handle)) context->flags = flags;
  return CUDA_SUCCESS;
}

SOFT(cuDevicePrimaryCtxSetFlags)(CUdevice dev, unsigned int flags) {
  return soft_cuDevicePrimaryCtxSetFlags_v2(dev, flags);
}

}  // namespace tendril::softgpu
