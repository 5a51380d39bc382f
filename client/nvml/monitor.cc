// SPDX-License-Identifier: Apache-2.0
// Live values, and what tools show beside them: clocks, performance state, PCIe link. Live values
// are utilisation, temperature and power of the whole GPU, as the server's own NVML reports them.
// An unknown value is NOT_SUPPORTED, never invented. Exceptions are in README.md.
#include "client/nvml/answer.h"

namespace nvml = tendril::client::nvml;
using nvml::Device;
using nvml::known;
using nvml::with;
using nvml::with_live;

namespace {

int64_t or_unknown(unsigned value) { return value == 0 ? -1 : static_cast<int64_t>(value); }

// Answers the model's highest clock, because servers do not report the present one. A GPU under
// load runs at the highest clock or a little below.
nvmlReturn_t clock(nvmlDevice_t handle, nvmlClockType_t type, unsigned int* clock_mhz) {
  return with(handle, clock_mhz, [&](const Device& device) {
    switch (type) {
      case NVML_CLOCK_GRAPHICS:
      case NVML_CLOCK_SM:
        return known(or_unknown(device.model.clock_max_mhz), clock_mhz);
      case NVML_CLOCK_MEM:
        return known(or_unknown(device.model.memory_clock_max_mhz), clock_mhz);
      case NVML_CLOCK_VIDEO:
        return NVML_ERROR_NOT_SUPPORTED;
      default:
        return NVML_ERROR_INVALID_ARGUMENT;
    }
  });
}

nvmlReturn_t state(nvmlDevice_t handle, nvmlPstates_t* into) {
  return with(handle, into, [&](const Device&) {
    *into = NVML_PSTATE_0;
    return NVML_SUCCESS;
  });
}

nvmlReturn_t no_reasons(nvmlDevice_t handle, unsigned long long* reasons) {
  return with(handle, reasons, [&](const Device&) { return known(0, reasons); });
}

nvmlReturn_t pcie_generation(nvmlDevice_t handle, unsigned int* into) {
  return with(handle, into, [&](const Device& device) {
    return known(or_unknown(device.model.pcie_generation), into);
  });
}
nvmlReturn_t pcie_width(nvmlDevice_t handle, unsigned int* into) {
  return with(handle, into, [&](const Device& device) {
    return known(or_unknown(device.model.pcie_width), into);
  });
}

}  // namespace

TENDRIL_NVML nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device,
                                                        nvmlUtilization_t* utilization) {
  return with_live(device, utilization, [&](const Device& one) {
    utilization->memory = 0;  // use of the memory's bandwidth: servers do not report it
    return known(one.utilization_percent, &utilization->gpu);
  });
}

TENDRIL_NVML nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device,
                                                   nvmlTemperatureSensors_t sensorType,
                                                   unsigned int* temp) {
  return with_live(device, temp, [&](const Device& one) {
    return sensorType != NVML_TEMPERATURE_GPU ? NVML_ERROR_INVALID_ARGUMENT
                                              : known(one.temperature_c, temp);
  });
}
TENDRIL_NVML nvmlReturn_t nvmlDeviceGetTemperatureV(nvmlDevice_t device,
                                                    nvmlTemperature_t* temperature) {
  return with_live(device, temperature, [&](const Device& one) {
    if (temperature->version != nvmlTemperature_v1) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    if (temperature->sensorType != NVML_TEMPERATURE_GPU) return NVML_ERROR_INVALID_ARGUMENT;
    return known(one.temperature_c, &temperature->temperature);
  });
}
TENDRIL_NVML nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t device, unsigned int* power) {
  return with_live(device, power, [&](const Device& one) { return known(one.power_mw, power); });
}

TENDRIL_NVML nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t device, nvmlClockType_t type,
                                                 unsigned int* clockMhz) {
  return clock(device, type, clockMhz);
}
TENDRIL_NVML nvmlReturn_t nvmlDeviceGetMaxClockInfo(nvmlDevice_t device, nvmlClockType_t type,
                                                    unsigned int* clockMhz) {
  return clock(device, type, clockMhz);
}
TENDRIL_NVML nvmlReturn_t nvmlDeviceGetClock(nvmlDevice_t device, nvmlClockType_t clockType,
                                             nvmlClockId_t clockId, unsigned int* clockMHz) {
  if (clockId == NVML_CLOCK_ID_CURRENT) return clock(device, clockType, clockMHz);
  return nvml::absent("nvmlDeviceGetClock", device);
}

TENDRIL_NVML nvmlReturn_t nvmlDeviceGetPerformanceState(nvmlDevice_t device,
                                                        nvmlPstates_t* pState) {
  return state(device, pState);
}
TENDRIL_NVML nvmlReturn_t nvmlDeviceGetPowerState(nvmlDevice_t device, nvmlPstates_t* pState) {
  return state(device, pState);
}

TENDRIL_NVML nvmlReturn_t nvmlDeviceGetCurrentClocksThrottleReasons(
    nvmlDevice_t device, unsigned long long* clocksThrottleReasons) {
  return no_reasons(device, clocksThrottleReasons);
}
TENDRIL_NVML nvmlReturn_t nvmlDeviceGetCurrentClocksEventReasons(
    nvmlDevice_t device, unsigned long long* clocksEventReasons) {
  return no_reasons(device, clocksEventReasons);
}
TENDRIL_NVML nvmlReturn_t nvmlDeviceGetSupportedClocksThrottleReasons(
    nvmlDevice_t device, unsigned long long* supportedClocksThrottleReasons) {
  return no_reasons(device, supportedClocksThrottleReasons);
}
TENDRIL_NVML nvmlReturn_t nvmlDeviceGetSupportedClocksEventReasons(
    nvmlDevice_t device, unsigned long long* supportedClocksEventReasons) {
  return no_reasons(device, supportedClocksEventReasons);
}
TENDRIL_NVML nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t device,
                                                           unsigned long long* eventTypes) {
  return no_reasons(device, eventTypes);
}

// The link between the GPU and its own host. Programs choose their paths by it.
TENDRIL_NVML nvmlReturn_t nvmlDeviceGetCurrPcieLinkGeneration(nvmlDevice_t device,
                                                              unsigned int* currLinkGen) {
  return pcie_generation(device, currLinkGen);
}
TENDRIL_NVML nvmlReturn_t nvmlDeviceGetMaxPcieLinkGeneration(nvmlDevice_t device,
                                                             unsigned int* maxLinkGen) {
  return pcie_generation(device, maxLinkGen);
}
TENDRIL_NVML nvmlReturn_t nvmlDeviceGetGpuMaxPcieLinkGeneration(nvmlDevice_t device,
                                                                unsigned int* maxLinkGenDevice) {
  return pcie_generation(device, maxLinkGenDevice);
}
TENDRIL_NVML nvmlReturn_t nvmlDeviceGetCurrPcieLinkWidth(nvmlDevice_t device,
                                                         unsigned int* currLinkWidth) {
  return pcie_width(device, currLinkWidth);
}
TENDRIL_NVML nvmlReturn_t nvmlDeviceGetMaxPcieLinkWidth(nvmlDevice_t device,
                                                        unsigned int* maxLinkWidth) {
  return pcie_width(device, maxLinkWidth);
}

// Each field has its own result. The call itself succeeds.
TENDRIL_NVML nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int valuesCount,
                                                   nvmlFieldValue_t* values) {
  return with(device, values, [&](const Device&) {
    if (valuesCount < 1) return NVML_ERROR_INVALID_ARGUMENT;
    for (int i = 0; i < valuesCount; ++i) {
      values[i].timestamp = values[i].latencyUsec = 0;
      values[i].nvmlReturn = NVML_ERROR_NOT_SUPPORTED;
    }
    return NVML_SUCCESS;
  });
}
