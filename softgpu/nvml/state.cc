// SPDX-License-Identifier: Apache-2.0
// What changes while work runs: memory, processes, utilisation, errors, and quantities made from
// busy time. A model, not physics: temperature and power follow utilisation at once, on a straight
// line.

#include <algorithm>
#include <map>
#include <mutex>

#include "softgpu/board/board_data.h"
#include "softgpu/nvml/nvml.h"

namespace tendril::softgpu::nvml {
namespace {

constexpr unsigned kIdleCelsius = 30, kBusyCelsius = 75, kSlowdownCelsius = 90;
constexpr unsigned kIdleMilliwatts = 75'000, kBusyMilliwatts = 700'000;
constexpr unsigned kIdleMhz = 345, kBusyMhz = 1980, kMemoryMhz = 2619;

unsigned between(unsigned idle, unsigned busy, unsigned percent) {
  return idle + (busy - idle) * percent / 100;
}

int64_t clock_ns() {
  Board& watched = board();
  if (watched.settings().mode < TimeMode::kVirtual) return host_now_ns();
  BoardLock hold(watched);
  return watched.data().now_ns;
}

template <typename Info>
nvmlReturn_t processes(nvmlDevice_t device, unsigned int* count, Info* infos) {
  return with(device, count, [&](unsigned i) {
    const DeviceView view = board().view(static_cast<int>(i));
    const unsigned room = *count;
    *count = static_cast<unsigned>(view.processes.size());
    if (room < *count || (infos == nullptr && *count != 0)) return NVML_ERROR_INSUFFICIENT_SIZE;
    for (unsigned p = 0; p < *count; ++p) {
      infos[p] = {};
      infos[p].pid = static_cast<unsigned>(view.processes[p].pid);
      infos[p].usedGpuMemory = view.processes[p].memory_bytes;
      if constexpr (sizeof(Info) > sizeof(nvmlProcessInfo_v1_t))
        infos[p].gpuInstanceId = infos[p].computeInstanceId = UINT32_MAX;  // no MIG
    }
    return NVML_SUCCESS;
  });
}

nvmlReturn_t clock_of(unsigned index, nvmlClockType_t type, unsigned* mhz) {
  if (type > NVML_CLOCK_VIDEO) return NVML_ERROR_INVALID_ARGUMENT;
  const unsigned percent = board().view(static_cast<int>(index)).utilization_percent;
  *mhz = type == NVML_CLOCK_MEM ? kMemoryMhz : percent == 0 ? kIdleMhz : kBusyMhz;
  return NVML_SUCCESS;
}

unsigned percent_of(unsigned index) {
  return board().view(static_cast<int>(index)).utilization_percent;
}

}  // namespace

SOFT_NVML(nvmlDeviceGetMemoryInfo)(nvmlDevice_t device, nvmlMemory_t* memory) {
  return with(device, memory, [&](unsigned i) {
    memory->total = board().settings().device[i].memory_bytes;
    memory->used = board().memory_used(static_cast<int>(i));
    memory->free = memory->total - memory->used;
    return NVML_SUCCESS;
  });
}
SOFT_NVML(nvmlDeviceGetMemoryInfo_v2)(nvmlDevice_t device, nvmlMemory_v2_t* memory) {
  return with(device, memory, [&](unsigned i) {
    memory->total = board().settings().device[i].memory_bytes;
    memory->reserved = 0;
    memory->used = board().memory_used(static_cast<int>(i));
    memory->free = memory->total - memory->used;
    return NVML_SUCCESS;
  });
}

SOFT_NVML(nvmlDeviceGetComputeRunningProcesses_v3)
(nvmlDevice_t device, unsigned int* infoCount, nvmlProcessInfo_t* infos) {
  return processes(device, infoCount, infos);
}
SOFT_NVML(nvmlDeviceGetComputeRunningProcesses_v2)
(nvmlDevice_t device, unsigned int* infoCount, nvmlProcessInfo_v2_t* infos) {
  return processes(device, infoCount, infos);
}
SOFT_NVML(nvmlDeviceGetComputeRunningProcesses)
(nvmlDevice_t device, unsigned int* infoCount, nvmlProcessInfo_v1_t* infos) {
  return processes(device, infoCount, infos);
}
SOFT_NVML(nvmlDeviceGetGraphicsRunningProcesses_v3)
(nvmlDevice_t device, unsigned int* infoCount, nvmlProcessInfo_t* infos) {
  return with(device, infoCount, [&](unsigned) { return *infoCount = 0, NVML_SUCCESS; });
}

SOFT_NVML(nvmlDeviceGetUtilizationRates)(nvmlDevice_t device, nvmlUtilization_t* utilization) {
  return with(device, utilization, [&](unsigned i) {
    utilization->gpu = percent_of(i);
    utilization->memory = utilization->gpu / 2;  // nobody counts how busy the memory is
    return NVML_SUCCESS;
  });
}

// One sample for each sixteenth of the last second. Other kinds of samples are not kept.
SOFT_NVML(nvmlDeviceGetSamples)
(nvmlDevice_t device, nvmlSamplingType_t type, unsigned long long lastSeenTimeStamp,
 nvmlValueType_t* sampleValType, unsigned int* sampleCount, nvmlSample_t* samples) {
  return with(device, sampleValType != nullptr ? sampleCount : nullptr, [&](unsigned i) {
    if (type != NVML_GPU_UTILIZATION_SAMPLES) return NVML_ERROR_NOT_SUPPORTED;
    *sampleValType = NVML_VALUE_TYPE_UNSIGNED_INT;
    const unsigned room = *sampleCount;
    *sampleCount = kBuckets - 1;
    if (samples == nullptr) return NVML_SUCCESS;
    const int64_t current = board().view(static_cast<int>(i)).now_ns / kBucketNs;
    unsigned given = 0;
    BoardLock hold(board());
    const BusyWindow& window = board().data().devices[i].window;
    for (int64_t bucket = std::max<int64_t>(0, current - (kBuckets - 1)); bucket < current;
         ++bucket) {
      const auto end_us = static_cast<unsigned long long>((bucket + 1) * kBucketNs / 1000);
      if (end_us <= lastSeenTimeStamp || given == room) continue;
      const size_t at = static_cast<size_t>(bucket) % kBuckets;
      const int64_t busy_ns = window.bucket[at] == bucket ? window.busy_ns[at] : 0;
      samples[given] = {};
      samples[given].timeStamp = end_us;
      samples[given++].sampleValue.uiVal =
          std::min(100u, static_cast<unsigned>((busy_ns * 100 + kBucketNs / 2) / kBucketNs));
    }
    *sampleCount = given;
    return given == 0 ? NVML_ERROR_NOT_FOUND : NVML_SUCCESS;
  });
}

// One sample per process: its part of the busy time since the last call.
SOFT_NVML(nvmlDeviceGetProcessUtilization)
(nvmlDevice_t device, nvmlProcessUtilizationSample_t* samples, unsigned int* count,
 unsigned long long lastSeenTimeStamp) {
  return with(device, count, [&](unsigned i) {
    static std::mutex& lock = *new std::mutex;
    static auto& before =
        *new std::map<std::pair<unsigned, int>, std::pair<int64_t, int64_t>>;  // time, busy
    const DeviceView view = board().view(static_cast<int>(i));
    const unsigned room = *count;
    *count = static_cast<unsigned>(view.processes.size());
    if (*count == 0) return NVML_ERROR_NOT_FOUND;
    if (samples == nullptr || room < *count) return NVML_ERROR_INSUFFICIENT_SIZE;
    const int64_t now = clock_ns();
    std::lock_guard guard(lock);
    for (unsigned p = 0; p < *count; ++p) {
      const ProcessView& process = view.processes[p];
      auto& [then, busy_then] = before[{i, process.pid}];
      const int64_t elapsed = std::max<int64_t>(now - then, 1), busy = process.busy_ns - busy_then;
      samples[p] = {};
      samples[p].pid = static_cast<unsigned>(process.pid);
      samples[p].timeStamp = static_cast<unsigned long long>(now / 1000);
      if (then != 0)
        samples[p].smUtil =
            static_cast<unsigned>(std::clamp<int64_t>(busy * 100 / elapsed, 0, 100));
      then = now;
      busy_then = process.busy_ns;
    }
    return NVML_SUCCESS;
  });
}

SOFT_NVML(nvmlDeviceGetTemperature)
(nvmlDevice_t device, nvmlTemperatureSensors_t sensorType, unsigned int* temp) {
  return with(device, temp, [&](unsigned i) {
    if (sensorType != NVML_TEMPERATURE_GPU) return NVML_ERROR_INVALID_ARGUMENT;
    *temp = between(kIdleCelsius, kBusyCelsius, percent_of(i));
    return NVML_SUCCESS;
  });
}
SOFT_NVML(nvmlDeviceGetTemperatureThreshold)
(nvmlDevice_t device, nvmlTemperatureThresholds_t thresholdType, unsigned int* temp) {
  return with(device, temp, [&](unsigned) { return *temp = kSlowdownCelsius, NVML_SUCCESS; });
}
SOFT_NVML(nvmlDeviceGetPowerUsage)(nvmlDevice_t device, unsigned int* power) {
  return with(device, power, [&](unsigned i) {
    return *power = between(kIdleMilliwatts, kBusyMilliwatts, percent_of(i)), NVML_SUCCESS;
  });
}
SOFT_NVML(nvmlDeviceGetTotalEnergyConsumption)(nvmlDevice_t device, unsigned long long* energy) {
  return with(device, energy, [&](unsigned i) {
    const double busy = static_cast<double>(board().view(static_cast<int>(i)).busy_ns) / 1e9;
    const double all = static_cast<double>(clock_ns()) / 1e9;
    *energy = static_cast<unsigned long long>(all * kIdleMilliwatts +
                                              busy * (kBusyMilliwatts - kIdleMilliwatts));
    return NVML_SUCCESS;
  });
}
SOFT_NVML(nvmlDeviceGetPowerManagementLimit)(nvmlDevice_t device, unsigned int* limit) {
  return with(device, limit, [&](unsigned) { return *limit = kBusyMilliwatts, NVML_SUCCESS; });
}
SOFT_NVML(nvmlDeviceGetEnforcedPowerLimit)(nvmlDevice_t device, unsigned int* limit) {
  return with(device, limit, [&](unsigned) { return *limit = kBusyMilliwatts, NVML_SUCCESS; });
}
SOFT_NVML(nvmlDeviceGetClockInfo)(nvmlDevice_t device, nvmlClockType_t type, unsigned int* clock) {
  return with(device, clock, [&](unsigned i) { return clock_of(i, type, clock); });
}
SOFT_NVML(nvmlDeviceGetMaxClockInfo)
(nvmlDevice_t device, nvmlClockType_t type, unsigned int* clock) {
  return with(device, clock, [&](unsigned) {
    return *clock = type == NVML_CLOCK_MEM ? kMemoryMhz : kBusyMhz, NVML_SUCCESS;
  });
}
SOFT_NVML(nvmlDeviceGetPerformanceState)(nvmlDevice_t device, nvmlPstates_t* pState) {
  return with(device, pState, [&](unsigned) { return *pState = NVML_PSTATE_0, NVML_SUCCESS; });
}
SOFT_NVML(nvmlDeviceGetComputeMode)(nvmlDevice_t device, nvmlComputeMode_t* mode) {
  return with(device, mode,
              [&](unsigned) { return *mode = NVML_COMPUTEMODE_DEFAULT, NVML_SUCCESS; });
}
SOFT_NVML(nvmlDeviceGetPersistenceMode)(nvmlDevice_t device, nvmlEnableState_t* mode) {
  return with(device, mode, [&](unsigned) { return *mode = NVML_FEATURE_ENABLED, NVML_SUCCESS; });
}
SOFT_NVML(nvmlDeviceGetEccMode)
(nvmlDevice_t device, nvmlEnableState_t* current, nvmlEnableState_t* pending) {
  return with(device, current != nullptr ? pending : nullptr, [&](unsigned) {
    *current = *pending = NVML_FEATURE_ENABLED;
    return NVML_SUCCESS;
  });
}
SOFT_NVML(nvmlDeviceGetTotalEccErrors)
(nvmlDevice_t device, nvmlMemoryErrorType_t errorType, nvmlEccCounterType_t counterType,
 unsigned long long* eccCounts) {
  return with(device, eccCounts, [&](unsigned i) {
    *eccCounts = errorType == NVML_MEMORY_ERROR_TYPE_UNCORRECTED
                     ? board().view(static_cast<int>(i)).ecc_errors
                     : 0;
    return NVML_SUCCESS;
  });
}
SOFT_NVML(nvmlDeviceGetMemoryErrorCounter)
(nvmlDevice_t device, nvmlMemoryErrorType_t errorType, nvmlEccCounterType_t counterType,
 nvmlMemoryLocation_t locationType, unsigned long long* count) {
  return soft_nvmlDeviceGetTotalEccErrors(device, errorType, counterType, count);
}

}  // namespace tendril::softgpu::nvml
