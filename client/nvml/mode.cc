// SPDX-License-Identifier: Apache-2.0
// How a device is set up. A slice is an ordinary compute device without display, MIG or accounting.
// A program cannot change that: the setters are in api/nvml/refused.spec.
#include "client/nvml/answer.h"

namespace nvml = tendril::client::nvml;
using nvml::Device;
using nvml::with;

namespace {

template <typename T>
nvmlReturn_t always(nvmlDevice_t handle, T* into, T value) {
  return with(handle, into, [&](const Device&) {
    *into = value;
    return NVML_SUCCESS;
  });
}

}  // namespace

TENDRIL_NVML nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int* currentMode,
                                               unsigned int* pendingMode) {
  return with(device, currentMode == nullptr ? nullptr : pendingMode, [&](const Device&) {
    *currentMode = *pendingMode = 0;  // disabled
    return NVML_SUCCESS;
  });
}
TENDRIL_NVML nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned int* count) {
  return always(device, count, 0u);
}
TENDRIL_NVML nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device,
                                                      unsigned int* isMigDevice) {
  return always(device, isMigDevice, 0u);
}
TENDRIL_NVML nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device,
                                                              unsigned int index,
                                                              nvmlDevice_t* migDevice) {
  return with(device, migDevice, [](const Device&) { return NVML_ERROR_NOT_FOUND; });
}
TENDRIL_NVML nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t migDevice,
                                                                       nvmlDevice_t* device) {
  return with(migDevice, device, [](const Device&) { return NVML_ERROR_NOT_FOUND; });
}

// The worker on the server keeps the driver loaded.
TENDRIL_NVML nvmlReturn_t nvmlDeviceGetPersistenceMode(nvmlDevice_t device,
                                                       nvmlEnableState_t* mode) {
  return always(device, mode, NVML_FEATURE_ENABLED);
}
TENDRIL_NVML nvmlReturn_t nvmlDeviceGetComputeMode(nvmlDevice_t device, nvmlComputeMode_t* mode) {
  return always(device, mode, NVML_COMPUTEMODE_DEFAULT);
}
TENDRIL_NVML nvmlReturn_t nvmlDeviceGetDisplayMode(nvmlDevice_t device,
                                                   nvmlEnableState_t* display) {
  return always(device, display, NVML_FEATURE_DISABLED);
}
TENDRIL_NVML nvmlReturn_t nvmlDeviceGetDisplayActive(nvmlDevice_t device,
                                                     nvmlEnableState_t* isActive) {
  return always(device, isActive, NVML_FEATURE_DISABLED);
}
TENDRIL_NVML nvmlReturn_t nvmlDeviceGetAccountingMode(nvmlDevice_t device,
                                                      nvmlEnableState_t* mode) {
  return always(device, mode, NVML_FEATURE_DISABLED);
}
TENDRIL_NVML nvmlReturn_t nvmlDeviceGetAPIRestriction(nvmlDevice_t device,
                                                      nvmlRestrictedAPI_t apiType,
                                                      nvmlEnableState_t* isRestricted) {
  return always(device, isRestricted, NVML_FEATURE_ENABLED);
}
TENDRIL_NVML nvmlReturn_t
nvmlDeviceGetVirtualizationMode(nvmlDevice_t device, nvmlGpuVirtualizationMode_t* pVirtualMode) {
  return always(device, pVirtualMode, NVML_GPU_VIRTUALIZATION_MODE_NONE);
}

TENDRIL_NVML nvmlReturn_t nvmlDeviceGetAddressingMode(nvmlDevice_t device,
                                                      nvmlDeviceAddressingMode_t* mode) {
  return with(device, mode, [&](const Device&) {
    if (mode->version != nvmlDeviceAddressingMode_v1) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    mode->value = NVML_DEVICE_ADDRESSING_MODE_NONE;
    return NVML_SUCCESS;
  });
}
