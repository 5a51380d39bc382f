// SPDX-License-Identifier: Apache-2.0
// Peer access. Every pair of devices can have it, and a program must still enable it. Copies
// between devices never need it.

#include "softgpu/driver/device/context.h"
#include "softgpu/driver/device/device.h"
#include "softgpu/driver/entry.h"
#include "softgpu/driver/memory/memory_map.h"

namespace tendril::softgpu {

SOFT(cuDeviceCanAccessPeer)(int* canAccessPeer, CUdevice dev, CUdevice peerDev) {
  if (canAccessPeer == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (device_at(dev) == nullptr || device_at(peerDev) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  *canAccessPeer = dev != peerDev;
  return CUDA_SUCCESS;
}

SOFT(cuDeviceGetP2PAttribute)
(int* value, CUdevice_P2PAttribute attrib, CUdevice srcDevice, CUdevice dstDevice) {
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (device_at(srcDevice) == nullptr || device_at(dstDevice) == nullptr || srcDevice == dstDevice)
    return CUDA_ERROR_INVALID_DEVICE;
  switch (attrib) {
    case CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK:
      *value = 0;
      break;
    case CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED:
    case CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED:
      *value = 1;
      break;
    case CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED:
    case CU_DEVICE_P2P_ATTRIBUTE_ONLY_PARTIAL_NATIVE_ATOMIC_SUPPORTED:
      *value = 0;
      break;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

SOFT(cuCtxEnablePeerAccess)(CUcontext peerContext, unsigned int Flags) {
  SOFT_CONTEXT(context);
  if (Flags != 0) return CUDA_ERROR_INVALID_VALUE;
  ContextPtr peer = contexts().get(peerContext);
  if (!peer) return CUDA_ERROR_INVALID_CONTEXT;
  if (peer == context) return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
  if (peer->device == context->device) return CUDA_ERROR_INVALID_DEVICE;
  std::lock_guard guard(context->lock);
  if (!context->peers.insert(peerContext).second) return CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
  MemoryMap::instance().set_peer(context->device, peer->device, true);
  return CUDA_SUCCESS;
}

SOFT(cuCtxDisablePeerAccess)(CUcontext peerContext) {
  SOFT_CONTEXT(context);
  ContextPtr peer = contexts().get(peerContext);
  if (!peer) return CUDA_ERROR_INVALID_CONTEXT;
  std::lock_guard guard(context->lock);
  if (context->peers.erase(peerContext) == 0) return CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
  MemoryMap::instance().set_peer(context->device, peer->device, false);
  return CUDA_SUCCESS;
}

}  // namespace tendril::softgpu
