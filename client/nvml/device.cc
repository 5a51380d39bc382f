// SPDX-License-Identifier: Apache-2.0
// The devices and what they are: handles, names, numbers, addresses, model. No function here asks a
// server.
#include <strings.h>

#include <cstring>

#include "base/text.h"
#include "client/nvml/answer.h"

namespace nvml = tendril::client::nvml;
using nvml::Device;
using nvml::with;

namespace {

constexpr unsigned int kVendor = 0x10de;

// The handle of the first device for which `matches` is true. NOT_FOUND: there is none.
template <typename Matches>
nvmlReturn_t handle_where(const void* key, nvmlDevice_t* handle, Matches matches) {
  std::vector<Device> devices;
  nvmlReturn_t check = nvml::all_devices(&devices);
  if (check != NVML_SUCCESS) return check;
  if (key == nullptr || handle == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  for (const Device& device : devices) {
    if (!matches(device)) continue;
    *handle = nvml::handle_of(device.index);
    return NVML_SUCCESS;
  }
  return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t count_devices(unsigned int* count) {
  std::vector<Device> devices;
  nvmlReturn_t check = nvml::all_devices(&devices);
  if (check != NVML_SUCCESS) return check;
  if (count == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *count = static_cast<unsigned int>(devices.size());
  return NVML_SUCCESS;
}

nvmlReturn_t handle_by_index(unsigned int index, nvmlDevice_t* handle) {
  nvmlReturn_t result =
      handle_where(handle, handle, [&](const Device& device) { return device.index == index; });
  return result == NVML_ERROR_NOT_FOUND ? NVML_ERROR_INVALID_ARGUMENT : result;
}

nvmlReturn_t handle_by_pci(const char* text, nvmlDevice_t* handle) {
  if (nvml::is_started() && text != nullptr && !nvml::parse_pci(text).valid)
    return NVML_ERROR_INVALID_ARGUMENT;
  return handle_where(text, handle,
                      [&](const Device& device) { return device.pci == nvml::parse_pci(text); });
}

std::string bus_id(const Device& device, int domain_digits) {
  return tendril::base::format("%0*X:%02X:%02X.%X", domain_digits, device.pci.domain,
                               device.pci.bus, device.pci.device, device.pci.function);
}

nvmlReturn_t pci_info(nvmlDevice_t handle, nvmlPciInfo_t* pci) {
  return with(handle, pci, [&](const Device& device) {
    *pci = {};
    nvml::copy_text(bus_id(device, 4), pci->busIdLegacy, sizeof pci->busIdLegacy);
    nvml::copy_text(bus_id(device, 8), pci->busId, sizeof pci->busId);
    pci->domain = device.pci.domain;
    pci->bus = device.pci.bus;
    pci->device = device.pci.device;
    pci->pciDeviceId = kVendor;  // the upper half, the device's id, is not known here
    return NVML_SUCCESS;
  });
}

bool contains(const std::string& text, const char* word) {
  return text.find(word) != std::string::npos;
}

nvmlBrandType_t brand_of(const std::string& name) {
  if (contains(name, "Quadro RTX")) return NVML_BRAND_QUADRO_RTX;
  if (contains(name, "Quadro")) return NVML_BRAND_QUADRO;
  if (contains(name, "TITAN RTX")) return NVML_BRAND_TITAN_RTX;
  if (contains(name, "TITAN")) return NVML_BRAND_TITAN;
  if (contains(name, "GeForce RTX")) return NVML_BRAND_GEFORCE_RTX;
  if (contains(name, "GeForce")) return NVML_BRAND_GEFORCE;
  if (contains(name, "Tesla")) return NVML_BRAND_TESLA;
  if (contains(name, "RTX")) return NVML_BRAND_NVIDIA_RTX;
  return contains(name, "NVIDIA") ? NVML_BRAND_NVIDIA : NVML_BRAND_UNKNOWN;
}

unsigned int architecture_of(const nvml::Model& model) {
  switch (model.major) {
    case 7:
      return model.minor >= 5 ? NVML_DEVICE_ARCH_TURING : NVML_DEVICE_ARCH_VOLTA;
    case 8:
      return model.minor >= 9 ? NVML_DEVICE_ARCH_ADA : NVML_DEVICE_ARCH_AMPERE;
    case 9:
      return NVML_DEVICE_ARCH_HOPPER;
    case 10:
    case 12:
      return NVML_DEVICE_ARCH_BLACKWELL;
    default:
      return NVML_DEVICE_ARCH_UNKNOWN;
  }
}

}  // namespace

TENDRIL_NVML nvmlReturn_t nvmlDeviceGetCount(unsigned int* deviceCount) {
  return count_devices(deviceCount);
}
TENDRIL_NVML nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int* deviceCount) {
  return count_devices(deviceCount);
}

TENDRIL_NVML nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned int index, nvmlDevice_t* device) {
  return handle_by_index(index, device);
}
TENDRIL_NVML nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t* device) {
  return handle_by_index(index, device);
}

TENDRIL_NVML nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char* pciBusId,
                                                        nvmlDevice_t* device) {
  return handle_by_pci(pciBusId, device);
}
TENDRIL_NVML nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char* pciBusId,
                                                           nvmlDevice_t* device) {
  return handle_by_pci(pciBusId, device);
}

TENDRIL_NVML nvmlReturn_t nvmlDeviceGetHandleByUUID(const char* uuid, nvmlDevice_t* device) {
  return handle_where(uuid, device, [&](const Device& one) {
    return strcasecmp(one.uuid_text.c_str(), uuid) == 0;
  });
}

TENDRIL_NVML nvmlReturn_t nvmlDeviceGetHandleByUUIDV(const nvmlUUID_t* uuid, nvmlDevice_t* device) {
  if (nvml::is_started() && uuid != nullptr) {
    if (uuid->version != nvmlUUID_v1) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    if (uuid->type != NVML_UUID_TYPE_ASCII && uuid->type != NVML_UUID_TYPE_BINARY)
      return NVML_ERROR_INVALID_ARGUMENT;
  }
  return handle_where(uuid, device, [&](const Device& one) {
    if (uuid->type == NVML_UUID_TYPE_ASCII) {
      return strncasecmp(one.uuid_text.c_str(), uuid->value.str, sizeof uuid->value.str) == 0;
    }
    return one.uuid.size() == sizeof uuid->value.bytes &&
           memcmp(one.uuid.data(), uuid->value.bytes, sizeof uuid->value.bytes) == 0;
  });
}

// Servers do not report serial numbers.
TENDRIL_NVML nvmlReturn_t nvmlDeviceGetHandleBySerial(const char* serial, nvmlDevice_t* device) {
  return handle_where(serial, device, [](const Device&) { return false; });
}

TENDRIL_NVML nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char* name, unsigned int length) {
  return with(device, name,
              [&](const Device& one) { return nvml::copy_text(one.name, name, length); });
}
TENDRIL_NVML nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char* uuid, unsigned int length) {
  return with(device, uuid,
              [&](const Device& one) { return nvml::copy_text(one.uuid_text, uuid, length); });
}
TENDRIL_NVML nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int* index) {
  return with(device, index, [&](const Device& one) { return nvml::known(one.index, index); });
}
// There is no device file. Programs use the number as another index.
TENDRIL_NVML nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned int* minorNumber) {
  return with(device, minorNumber,
              [&](const Device& one) { return nvml::known(one.index, minorNumber); });
}
// Unique for each board. Every slice counts as its own board.
TENDRIL_NVML nvmlReturn_t nvmlDeviceGetBoardId(nvmlDevice_t device, unsigned int* boardId) {
  return with(device, boardId, [&](const Device& one) { return nvml::known(one.index, boardId); });
}
TENDRIL_NVML nvmlReturn_t nvmlDeviceGetMultiGpuBoard(nvmlDevice_t device,
                                                     unsigned int* multiGpuBool) {
  return with(device, multiGpuBool, [&](const Device&) { return nvml::known(0, multiGpuBool); });
}
TENDRIL_NVML nvmlReturn_t nvmlDeviceGetBrand(nvmlDevice_t device, nvmlBrandType_t* type) {
  return with(device, type, [&](const Device& one) {
    *type = brand_of(one.name);
    return NVML_SUCCESS;
  });
}
TENDRIL_NVML nvmlReturn_t nvmlDeviceGetArchitecture(nvmlDevice_t device,
                                                    nvmlDeviceArchitecture_t* arch) {
  return with(device, arch, [&](const Device& one) {
    *arch = architecture_of(one.model);
    return NVML_SUCCESS;
  });
}
TENDRIL_NVML nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int* major,
                                                             int* minor) {
  return with(device, major == nullptr ? nullptr : minor, [&](const Device& one) {
    if (one.model.major == 0)
      return nvml::loud("nvmlDeviceGetCudaComputeCapability for this model");
    *major = one.model.major;
    *minor = one.model.minor;
    return NVML_SUCCESS;
  });
}
TENDRIL_NVML nvmlReturn_t nvmlDeviceGetMemoryBusWidth(nvmlDevice_t device, unsigned int* busWidth) {
  return with(device, busWidth, [&](const Device& one) {
    return nvml::known(one.model.memory_bus_bits == 0 ? -1 : one.model.memory_bus_bits, busWidth);
  });
}

TENDRIL_NVML nvmlReturn_t nvmlDeviceGetPciInfo(nvmlDevice_t device, nvmlPciInfo_t* pci) {
  return pci_info(device, pci);
}
TENDRIL_NVML nvmlReturn_t nvmlDeviceGetPciInfo_v2(nvmlDevice_t device, nvmlPciInfo_t* pci) {
  return pci_info(device, pci);
}
TENDRIL_NVML nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t* pci) {
  return pci_info(device, pci);
}

TENDRIL_NVML nvmlReturn_t nvmlDeviceGetPciInfoExt(nvmlDevice_t device, nvmlPciInfoExt_t* pci) {
  return with(device, pci, [&](const Device& one) {
    if (pci->version != nvmlPciInfoExt_v1) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    *pci = {};
    pci->version = nvmlPciInfoExt_v1;
    pci->domain = one.pci.domain;
    pci->bus = one.pci.bus;
    pci->device = one.pci.device;
    pci->pciDeviceId = kVendor;
    pci->baseClass = 3;  // display controller, 3D
    pci->subClass = 2;
    return nvml::copy_text(bus_id(one, 8), pci->busId, sizeof pci->busId);
  });
}

TENDRIL_NVML nvmlReturn_t nvmlDeviceGetBusType(nvmlDevice_t device, nvmlBusType_t* type) {
  return with(device, type, [&](const Device&) { return nvml::known(NVML_BUS_TYPE_PCIE, type); });
}
