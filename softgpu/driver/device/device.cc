// SPDX-License-Identifier: Apache-2.0
// cuInit, cuDriverGetVersion and the cuDevice* calls that only describe. Every string says that
// this is a test device.

#include "softgpu/driver/device/device.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "softgpu/board/identity.h"
#include "softgpu/driver/config.h"
#include "softgpu/driver/entry.h"

namespace tendril::softgpu {
namespace {

std::vector<Device*>& all_devices() {
  static auto& list = *[] {
    auto* made = new std::vector<Device*>;
    for (unsigned i = 0; i < config().devices; ++i) {
      auto* device = new Device;
      device->index = static_cast<int>(i);
      device->bus = device_bus(i);
      device_uuid(i, device->uuid.bytes);
      made->push_back(device);
    }
    return made;
  }();
  return list;
}

// Copies a string into a caller's buffer of `bytes`: cut if needed, and always terminated.
void copy_text(char* out, int bytes, const char* text) {
  snprintf(out, static_cast<size_t>(bytes), "%s", text);
}

}  // namespace

int device_count() { return static_cast<int>(all_devices().size()); }

Device* device_at(CUdevice device) {
  auto& list = all_devices();
  return device >= 0 && device < static_cast<int>(list.size()) ? list[device] : nullptr;
}

int attribute_of(int device, CUdevice_attribute attribute) {
  int value = 0;
  device_attribute(*device_at(device), attribute, &value);
  return value;
}

SOFT(cuInit)(unsigned int Flags) { return Flags != 0 ? CUDA_ERROR_INVALID_VALUE : initialise(); }

SOFT(cuDriverGetVersion)(int* driverVersion) {
  if (driverVersion == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const int claimed = faults().driver_version;
  *driverVersion = claimed != 0 ? claimed : CUDA_VERSION;
  return CUDA_SUCCESS;
}

SOFT(cuDeviceGetCount)(int* count) {
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *count = device_count();
  return CUDA_SUCCESS;
}

SOFT(cuDeviceGet)(CUdevice* device, int ordinal) {
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (device_at(ordinal) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  *device = ordinal;
  return CUDA_SUCCESS;
}

SOFT(cuDeviceGetName)(char* name, int len, CUdevice dev) {
  if (device_at(dev) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  if (name == nullptr || len <= 0) return CUDA_ERROR_INVALID_VALUE;
  copy_text(name, len, device_name(config(), static_cast<unsigned>(dev)).c_str());
  return CUDA_SUCCESS;
}

SOFT(cuDeviceGetUuid_v2)(CUuuid* uuid, CUdevice dev) {
  Device* device = device_at(dev);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  if (uuid == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *uuid = device->uuid;
  return CUDA_SUCCESS;
}

SOFT(cuDeviceGetUuid)(CUuuid* uuid, CUdevice dev) { return soft_cuDeviceGetUuid_v2(uuid, dev); }

SOFT(cuDeviceGetAttribute)(int* pi, CUdevice_attribute attrib, CUdevice dev) {
  Device* device = device_at(dev);
  if (pi == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  return device_attribute(*device, attrib, pi) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

SOFT(cuDeviceComputeCapability)(int* major, int* minor, CUdevice dev) {
  if (major == nullptr || minor == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (device_at(dev) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  *major = config().major;
  *minor = config().minor;
  return CUDA_SUCCESS;
}

SOFT(cuDeviceTotalMem_v2)(size_t* bytes, CUdevice dev) {
  if (bytes == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (device_at(dev) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  *bytes = config().device[dev].memory_bytes;
  return CUDA_SUCCESS;
}

SOFT(cuDeviceTotalMem)(unsigned int* bytes, CUdevice dev) {
  if (bytes == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (device_at(dev) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  *bytes =
      static_cast<unsigned>(std::min<uint64_t>(config().device[dev].memory_bytes, 0xffffffffu));
  return CUDA_SUCCESS;
}

SOFT(cuDeviceGetPCIBusId)(char* pciBusId, int len, CUdevice dev) {
  Device* device = device_at(dev);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  if (pciBusId == nullptr || len <= 0) return CUDA_ERROR_INVALID_VALUE;
  char text[16];
  snprintf(text, sizeof text, "0000:%02X:00.0", device->bus);
  copy_text(pciBusId, len, text);
  return CUDA_SUCCESS;
}

SOFT(cuDeviceGetByPCIBusId)(CUdevice* dev, const char* pciBusId) {
  if (dev == nullptr || pciBusId == nullptr) return CUDA_ERROR_INVALID_VALUE;
  unsigned domain = 0, bus = 0, slot = 0, function = 0;
  if (sscanf(pciBusId, "%x:%x:%x.%x", &domain, &bus, &slot, &function) < 3) {
    domain = 0;
    if (sscanf(pciBusId, "%x:%x.%x", &bus, &slot, &function) < 2) return CUDA_ERROR_INVALID_VALUE;
  }
  for (Device* device : all_devices()) {
    if (domain != 0 || slot != 0 || function != 0 || device->bus != bus) continue;
    *dev = device->index;
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_DEVICE;
}

SOFT(cuDeviceGetLuid)(char* luid, unsigned int* deviceNodeMask, CUdevice dev) {
  // A LUID belongs to Windows. On Linux the driver refuses.
  if (device_at(dev) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  if (luid == nullptr || deviceNodeMask == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return CUDA_ERROR_NOT_SUPPORTED;
}

SOFT(cuDeviceGetProperties)(CUdevprop* prop, CUdevice dev) {
  if (prop == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (device_at(dev) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  auto get = [&](int attribute) {
    return attribute_of(dev, static_cast<CUdevice_attribute>(attribute));
  };
  *prop = {};
  prop->maxThreadsPerBlock = get(1);
  for (int i = 0; i < 3; ++i) {
    prop->maxThreadsDim[i] = get(2 + i);
    prop->maxGridSize[i] = get(5 + i);
  }
  prop->sharedMemPerBlock = get(8);
  prop->totalConstantMemory = get(9);
  prop->SIMDWidth = get(10);
  prop->memPitch = get(11);
  prop->regsPerBlock = get(12);
  prop->clockRate = get(13);
  prop->textureAlign = get(14);
  return CUDA_SUCCESS;
}

SOFT(cuDeviceGetExecAffinitySupport)(int* pi, CUexecAffinityType type, CUdevice dev) {
  if (pi == nullptr || type != CU_EXEC_AFFINITY_TYPE_SM_COUNT) return CUDA_ERROR_INVALID_VALUE;
  if (device_at(dev) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  *pi = 0;
  return CUDA_SUCCESS;
}

SOFT(cuDeviceGetTexture1DLinearMaxWidth)
(size_t* width, CUarray_format format, unsigned int numChannels, CUdevice dev) {
  if (width == nullptr || numChannels == 0) return CUDA_ERROR_INVALID_VALUE;
  if (device_at(dev) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  *width = attribute_of(dev, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LINEAR_WIDTH);
  return CUDA_SUCCESS;
}

}  // namespace tendril::softgpu
