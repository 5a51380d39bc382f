// SPDX-License-Identifier: Apache-2.0
// Which devices there are and what they are. These calls answer for a lost device too.

#include "softgpu/board/identity.h"

#include <strings.h>

#include <cstdio>
#include <cstring>

#include "softgpu/nvml/nvml.h"

namespace tendril::softgpu::nvml {
namespace {

constexpr char kDriverVersion[] = "580.0.0-tendril-test";
constexpr int kCudaVersion = 13000;

std::string uuid_text(unsigned index) {
  char bytes[16];
  device_uuid(index, bytes);
  std::string text = "GPU-";
  for (int i = 0; i < 16; ++i) {
    char hex[4];
    snprintf(hex, sizeof hex, "%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "",
             static_cast<unsigned>(static_cast<unsigned char>(bytes[i])));
    text += hex;
  }
  return text;
}

std::string bus_id(unsigned index, int domain_digits) {
  char text[32];
  snprintf(text, sizeof text, "%0*X:%02X:00.0", domain_digits, 0, device_bus(index));
  return text;
}

template <typename Matches>
nvmlReturn_t handle_where(const void* key, nvmlDevice_t* device, Matches matches) {
  if (!is_started()) return NVML_ERROR_UNINITIALIZED;
  if (key == nullptr || device == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  for (unsigned i = 0; i < board().settings().devices; ++i) {
    if (!matches(i)) continue;
    *device = handle_of(i);
    return NVML_SUCCESS;
  }
  return NVML_ERROR_NOT_FOUND;
}

}  // namespace

SOFT_NVML(nvmlInit_v2)() { return start(); }
SOFT_NVML(nvmlInit)() { return start(); }
SOFT_NVML(nvmlInitWithFlags)(unsigned int flags) { return start(); }
SOFT_NVML(nvmlShutdown)() { return stop(); }

extern "C" const char* soft_nvmlErrorString(nvmlReturn_t result) {
  switch (result) {
    case NVML_SUCCESS:
      return "Success";
    case NVML_ERROR_UNINITIALIZED:
      return "Uninitialized";
    case NVML_ERROR_INVALID_ARGUMENT:
      return "Invalid Argument";
    case NVML_ERROR_NOT_SUPPORTED:
      return "Not Supported";
    case NVML_ERROR_NOT_FOUND:
      return "Not Found";
    case NVML_ERROR_INSUFFICIENT_SIZE:
      return "Insufficient Size";
    case NVML_ERROR_GPU_IS_LOST:
      return "GPU is lost";
    default:
      return "Unknown Error";
  }
}

SOFT_NVML(nvmlDeviceGetCount_v2)(unsigned int* deviceCount) {
  if (!is_started()) return NVML_ERROR_UNINITIALIZED;
  if (deviceCount == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *deviceCount = board().settings().devices;
  return NVML_SUCCESS;
}
SOFT_NVML(nvmlDeviceGetCount)(unsigned int* deviceCount) {
  return soft_nvmlDeviceGetCount_v2(deviceCount);
}

SOFT_NVML(nvmlDeviceGetHandleByIndex_v2)(unsigned int index, nvmlDevice_t* device) {
  nvmlReturn_t found = handle_where(device, device, [&](unsigned i) { return i == index; });
  return found == NVML_ERROR_NOT_FOUND ? NVML_ERROR_INVALID_ARGUMENT : found;
}
SOFT_NVML(nvmlDeviceGetHandleByIndex)(unsigned int index, nvmlDevice_t* device) {
  return soft_nvmlDeviceGetHandleByIndex_v2(index, device);
}
SOFT_NVML(nvmlDeviceGetHandleByUUID)(const char* uuid, nvmlDevice_t* device) {
  return handle_where(uuid, device, [&](unsigned i) { return uuid_text(i) == uuid; });
}
SOFT_NVML(nvmlDeviceGetHandleByPciBusId_v2)(const char* pciBusId, nvmlDevice_t* device) {
  return handle_where(pciBusId, device, [&](unsigned i) {
    return strcasecmp(pciBusId, bus_id(i, 8).c_str()) == 0 ||
           strcasecmp(pciBusId, bus_id(i, 4).c_str()) == 0;
  });
}
SOFT_NVML(nvmlDeviceGetHandleByPciBusId)(const char* pciBusId, nvmlDevice_t* device) {
  return soft_nvmlDeviceGetHandleByPciBusId_v2(pciBusId, device);
}

SOFT_NVML(nvmlDeviceGetIndex)(nvmlDevice_t device, unsigned int* index) {
  return with_identity(device, index, [&](unsigned i) { return *index = i, NVML_SUCCESS; });
}
SOFT_NVML(nvmlDeviceGetMinorNumber)(nvmlDevice_t device, unsigned int* minorNumber) {
  return with_identity(device, minorNumber,
                       [&](unsigned i) { return *minorNumber = i, NVML_SUCCESS; });
}
SOFT_NVML(nvmlDeviceGetName)(nvmlDevice_t device, char* name, unsigned int length) {
  return with_identity(device, name, [&](unsigned i) {
    return copy_text(device_name(board().settings(), i), name, length);
  });
}
SOFT_NVML(nvmlDeviceGetUUID)(nvmlDevice_t device, char* uuid, unsigned int length) {
  return with_identity(device, uuid,
                       [&](unsigned i) { return copy_text(uuid_text(i), uuid, length); });
}
SOFT_NVML(nvmlDeviceGetSerial)(nvmlDevice_t device, char* serial, unsigned int length) {
  return with_identity(device, serial, [&](unsigned i) {
    return copy_text("TENDRIL-TEST-" + std::to_string(i), serial, length);
  });
}
SOFT_NVML(nvmlDeviceGetPciInfo_v3)(nvmlDevice_t device, nvmlPciInfo_t* pci) {
  return with_identity(device, pci, [&](unsigned i) {
    *pci = {};
    copy_text(bus_id(i, 4), pci->busIdLegacy, sizeof pci->busIdLegacy);
    copy_text(bus_id(i, 8), pci->busId, sizeof pci->busId);
    pci->bus = device_bus(i);
    return NVML_SUCCESS;
  });
}
SOFT_NVML(nvmlDeviceGetPciInfo_v2)(nvmlDevice_t device, nvmlPciInfo_t* pci) {
  return soft_nvmlDeviceGetPciInfo_v3(device, pci);
}
SOFT_NVML(nvmlDeviceGetPciInfo)(nvmlDevice_t device, nvmlPciInfo_t* pci) {
  return soft_nvmlDeviceGetPciInfo_v3(device, pci);
}
SOFT_NVML(nvmlDeviceGetBrand)(nvmlDevice_t device, nvmlBrandType_t* type) {
  return with_identity(device, type,
                       [&](unsigned) { return *type = NVML_BRAND_UNKNOWN, NVML_SUCCESS; });
}
SOFT_NVML(nvmlDeviceGetCudaComputeCapability)(nvmlDevice_t device, int* major, int* minor) {
  return with_identity(device, major != nullptr ? minor : nullptr, [&](unsigned) {
    *major = board().settings().major;
    *minor = board().settings().minor;
    return NVML_SUCCESS;
  });
}

SOFT_NVML(nvmlSystemGetDriverVersion)(char* version, unsigned int length) {
  return version == nullptr ? NVML_ERROR_INVALID_ARGUMENT
                            : copy_text(kDriverVersion, version, length);
}
SOFT_NVML(nvmlSystemGetNVMLVersion)(char* version, unsigned int length) {
  return version == nullptr ? NVML_ERROR_INVALID_ARGUMENT
                            : copy_text(std::string("13.") + kDriverVersion, version, length);
}
SOFT_NVML(nvmlSystemGetCudaDriverVersion_v2)(int* cudaDriverVersion) {
  if (cudaDriverVersion == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  const int claimed = board().faults().driver_version;
  *cudaDriverVersion = claimed != 0 ? claimed : kCudaVersion;
  return NVML_SUCCESS;
}
SOFT_NVML(nvmlSystemGetCudaDriverVersion)(int* cudaDriverVersion) {
  return soft_nvmlSystemGetCudaDriverVersion_v2(cudaDriverVersion);
}
SOFT_NVML(nvmlSystemGetProcessName)(unsigned int pid, char* name, unsigned int length) {
  if (name == nullptr || length == 0) return NVML_ERROR_INVALID_ARGUMENT;
  char path[64];
  snprintf(path, sizeof path, "/proc/%u/cmdline", pid);
  FILE* file = fopen(path, "re");
  if (file == nullptr) return NVML_ERROR_NOT_FOUND;
  const size_t got = fread(name, 1, length - 1, file);  // up to the first NUL: the program
  fclose(file);
  name[got] = '\0';
  return NVML_SUCCESS;
}

}  // namespace tendril::softgpu::nvml
