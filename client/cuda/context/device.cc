// SPDX-License-Identifier: Apache-2.0
// The driver itself and its devices: everything answered from the snapshot taken at attach.
#include <stdio.h>
#include <string.h>

#include "client/cuda/bodies.h"

namespace tendril::client::cuda {
namespace {

// The device of an ordinal, or the error.
CUresult need_device(CUdevice ordinal, Device** out) {
  if (process() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  *out = device_of(ordinal);
  return *out != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

int attribute(const Device* device, CUdevice_attribute which) { return device->attributes[which]; }

CUresult copy_text(const std::string& text, char* into, int bytes) {
  if (into == nullptr || bytes <= 0) return CUDA_ERROR_INVALID_VALUE;
  snprintf(into, static_cast<size_t>(bytes), "%s", text.c_str());
  return CUDA_SUCCESS;
}

}  // namespace

CUresult cuInit(unsigned int Flags) {
  if (Flags != 0) return CUDA_ERROR_INVALID_VALUE;
  return initialize();
}

CUresult cuDriverGetVersion(int* driverVersion) {
  if (driverVersion == nullptr) return CUDA_ERROR_INVALID_VALUE;
  // Asked before cuInit by runtimes; the version we implement, lowered once the servers are known.
  const Process* program = process();
  *driverVersion =
      program != nullptr && program->driver_version != 0 ? program->driver_version : CUDA_VERSION;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  if (process() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (device_of(ordinal) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  *device = ordinal;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int* count) {
  const Process* program = process();
  if (program == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *count = static_cast<int>(program->devices.size());
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char* name, int len, CUdevice dev) {
  Device* device = nullptr;
  TENDRIL_TRY(need_device(dev, &device));
  return copy_text(device->name, name, len);
}

CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice dev) {
  Device* device = nullptr;
  TENDRIL_TRY(need_device(dev, &device));
  if (uuid == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *uuid = device->uuid;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice dev) { return cuDeviceGetUuid_v2(uuid, dev); }

CUresult cuDeviceGetLuid(char*, unsigned int*, CUdevice dev) {
  Device* device = nullptr;
  TENDRIL_TRY(need_device(dev, &device));
  return CUDA_ERROR_NOT_SUPPORTED;  // a Windows notion; a Linux driver answers the same
}

CUresult cuDeviceGetAttribute(int* pi, CUdevice_attribute attrib, CUdevice dev) {
  Device* device = nullptr;
  TENDRIL_TRY(need_device(dev, &device));
  if (pi == nullptr || attrib <= 0 || static_cast<uint32_t>(attrib) >= kAttributesMax)
    return CUDA_ERROR_INVALID_VALUE;
  if (!device->attribute_valid[attrib]) return CUDA_ERROR_INVALID_VALUE;
  *pi = device->attributes[attrib];
  return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice dev) {
  Device* device = nullptr;
  TENDRIL_TRY(need_device(dev, &device));
  if (bytes == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *bytes = device->memory_bytes;
  return CUDA_SUCCESS;
}

CUresult cuDeviceComputeCapability(int* major, int* minor, CUdevice dev) {
  Device* device = nullptr;
  TENDRIL_TRY(need_device(dev, &device));
  if (major == nullptr || minor == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *major = attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
  *minor = attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetProperties(CUdevprop* prop, CUdevice dev) {
  Device* device = nullptr;
  TENDRIL_TRY(need_device(dev, &device));
  if (prop == nullptr) return CUDA_ERROR_INVALID_VALUE;
  prop->maxThreadsPerBlock = attribute(device, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
  for (int i = 0; i < 3; ++i) {
    prop->maxThreadsDim[i] =
        attribute(device, static_cast<CUdevice_attribute>(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X + i));
    prop->maxGridSize[i] =
        attribute(device, static_cast<CUdevice_attribute>(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X + i));
  }
  prop->sharedMemPerBlock = attribute(device, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK);
  prop->totalConstantMemory = attribute(device, CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY);
  prop->SIMDWidth = attribute(device, CU_DEVICE_ATTRIBUTE_WARP_SIZE);
  prop->memPitch = attribute(device, CU_DEVICE_ATTRIBUTE_MAX_PITCH);
  prop->regsPerBlock = attribute(device, CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK);
  prop->clockRate = attribute(device, CU_DEVICE_ATTRIBUTE_CLOCK_RATE);
  prop->textureAlign = attribute(device, CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetPCIBusId(char* pciBusId, int len, CUdevice dev) {
  Device* device = nullptr;
  TENDRIL_TRY(need_device(dev, &device));
  return copy_text(device->pci_bus_id, pciBusId, len);
}

CUresult cuDeviceGetByPCIBusId(CUdevice* dev, const char* pciBusId) {
  Process* program = process();
  if (program == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (dev == nullptr || pciBusId == nullptr) return CUDA_ERROR_INVALID_VALUE;
  unsigned domain = 0, bus = 0, device = 0;
  if (sscanf(pciBusId, "%x:%x:%x", &domain, &bus, &device) != 3) {
    domain = 0;
    if (sscanf(pciBusId, "%x:%x", &bus, &device) != 2) return CUDA_ERROR_INVALID_VALUE;
  }
  for (Device* d : program->devices) {
    if (attribute(d, CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID) == static_cast<int>(domain) &&
        attribute(d, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID) == static_cast<int>(bus) &&
        attribute(d, CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID) == static_cast<int>(device)) {
      *dev = d->ordinal;
      return CUDA_SUCCESS;
    }
  }
  return CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDeviceGetP2PAttribute(int* value, CUdevice_P2PAttribute attrib, CUdevice srcDevice,
                                 CUdevice dstDevice) {
  Device *source = nullptr, *destination = nullptr;
  TENDRIL_TRY(need_device(srcDevice, &source));
  TENDRIL_TRY(need_device(dstDevice, &destination));
  if (value == nullptr || source == destination)
    return value == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_DEVICE;
  *value = 0;
  if (source->session != destination->session)
    return CUDA_SUCCESS;  // no path between GPUs of two servers
  TENDRIL_TRY(source->session->begin());
  wire::cuda::peer_attribute_request request;
  wire::cuda::peer_attribute_reply reply;
  request.attribute = static_cast<uint32_t>(attrib);
  request.source = source->slot;
  request.destination = destination->slot;
  TENDRIL_TRY(source->session->call(static_cast<const Context*>(nullptr), request, reply));
  *value = reply.value;
  return CUDA_SUCCESS;
}

CUresult cuDeviceCanAccessPeer(int* canAccessPeer, CUdevice dev, CUdevice peerDev) {
  Device *mine = nullptr, *peer = nullptr;
  TENDRIL_TRY(need_device(dev, &mine));
  TENDRIL_TRY(need_device(peerDev, &peer));
  if (canAccessPeer == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *canAccessPeer = 0;
  if (mine == peer) return CUDA_SUCCESS;
  return cuDeviceGetP2PAttribute(canAccessPeer, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, dev,
                                 peerDev);
}

CUresult cuDeviceGetExecAffinitySupport(int* pi, CUexecAffinityType, CUdevice dev) {
  Device* device = nullptr;
  TENDRIL_TRY(need_device(dev, &device));
  if (pi == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *pi = 0;
  return CUDA_SUCCESS;
}

// Host memory is a network away. No atomic operation of a GPU reaches it while the program looks at
// it.
CUresult cuDeviceGetHostAtomicCapabilities(unsigned int* capabilities,
                                           const CUatomicOperation* operations, unsigned int count,
                                           CUdevice dev) {
  Device* device = nullptr;
  TENDRIL_TRY(need_device(dev, &device));
  if (capabilities == nullptr || operations == nullptr || count == 0)
    return CUDA_ERROR_INVALID_VALUE;
  memset(capabilities, 0, count * sizeof *capabilities);
  return CUDA_SUCCESS;
}

CUresult cuProfilerInitialize(const char*, const char*, CUoutput_mode) {
  return CUDA_ERROR_NOT_SUPPORTED;
}
CUresult cuProfilerStart() {
  return process() != nullptr ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
}
CUresult cuProfilerStop() {
  return process() != nullptr ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
}

}  // namespace tendril::client::cuda
