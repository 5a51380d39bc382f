// SPDX-License-Identifier: Apache-2.0
// Memory and the processes that hold it. The slice is shown as if it were the whole device. Only
// the program's own processes are shown, because another tenant's are private.
#include "client/nvml/answer.h"

namespace nvml = tendril::client::nvml;
using nvml::Device;
using nvml::Process;
using nvml::Values;
using nvml::with;
using nvml::with_live;

namespace {

constexpr unsigned int kNoInstance = 0xffffffff;  // not a MIG device

void fill(const Process& process, nvmlProcessInfo_v1_t* info) {
  info->pid = process.pid;
  info->usedGpuMemory = process.memory_bytes;
}
void fill(const Process& process, nvmlProcessInfo_v2_t* info) {
  info->pid = process.pid;
  info->usedGpuMemory = process.memory_bytes;
  info->gpuInstanceId = info->computeInstanceId = kNoInstance;
}

// `room` (in) and `count` (out) are the same word.
template <typename Info>
nvmlReturn_t list_processes(nvmlDevice_t handle, unsigned int* count, Info* infos) {
  return with_live(handle, count, [&](const Device& device) {
    unsigned int room = *count;
    *count = static_cast<unsigned>(device.processes.size());
    if (room < *count) return NVML_ERROR_INSUFFICIENT_SIZE;
    if (*count == 0) return NVML_SUCCESS;
    if (infos == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    for (const Process& process : device.processes) fill(process, infos++);
    return NVML_SUCCESS;
  });
}

nvmlReturn_t no_processes(nvmlDevice_t handle, unsigned int* count) {
  return with(handle, count, [&](const Device&) { return nvml::known(0, count); });
}

}  // namespace

// Values of this moment, because programs ask right after they allocate.
TENDRIL_NVML nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t* memory) {
  return with_live(
      device, memory,
      [&](const Device& one) {
        memory->total = one.memory_total_bytes;
        memory->used = one.memory_used_bytes;
        memory->free = memory->total - memory->used;
        return NVML_SUCCESS;
      },
      Values::kNow);
}

TENDRIL_NVML nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t* memory) {
  return with_live(
      device, memory,
      [&](const Device& one) {
        if (memory->version != nvmlMemory_v2) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
        memory->total = one.memory_total_bytes;
        memory->reserved = 0;
        memory->used = one.memory_used_bytes;
        memory->free = memory->total - memory->used;
        return NVML_SUCCESS;
      },
      Values::kNow);
}

// The window through which a local process would map the device's memory. It is shown as large as
// the memory, and unused.
TENDRIL_NVML nvmlReturn_t nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t device,
                                                      nvmlBAR1Memory_t* bar1Memory) {
  return with(device, bar1Memory, [&](const Device& one) {
    bar1Memory->bar1Total = bar1Memory->bar1Free = one.memory_total_bytes;
    bar1Memory->bar1Used = 0;
    return NVML_SUCCESS;
  });
}

TENDRIL_NVML nvmlReturn_t nvmlDeviceGetComputeRunningProcesses(nvmlDevice_t device,
                                                               unsigned int* infoCount,
                                                               nvmlProcessInfo_v1_t* infos) {
  return list_processes(device, infoCount, infos);
}
TENDRIL_NVML nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t device,
                                                                  unsigned int* infoCount,
                                                                  nvmlProcessInfo_v2_t* infos) {
  return list_processes(device, infoCount, infos);
}
TENDRIL_NVML nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device,
                                                                  unsigned int* infoCount,
                                                                  nvmlProcessInfo_t* infos) {
  return list_processes(device, infoCount, infos);
}

TENDRIL_NVML nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses(nvmlDevice_t device,
                                                                unsigned int* infoCount,
                                                                nvmlProcessInfo_v1_t* infos) {
  return no_processes(device, infoCount);
}
TENDRIL_NVML nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v2(nvmlDevice_t device,
                                                                   unsigned int* infoCount,
                                                                   nvmlProcessInfo_v2_t* infos) {
  return no_processes(device, infoCount);
}
TENDRIL_NVML nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t device,
                                                                   unsigned int* infoCount,
                                                                   nvmlProcessInfo_t* infos) {
  return no_processes(device, infoCount);
}
TENDRIL_NVML nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses(nvmlDevice_t device,
                                                                  unsigned int* infoCount,
                                                                  nvmlProcessInfo_v1_t* infos) {
  return no_processes(device, infoCount);
}
TENDRIL_NVML nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses_v2(nvmlDevice_t device,
                                                                     unsigned int* infoCount,
                                                                     nvmlProcessInfo_v2_t* infos) {
  return no_processes(device, infoCount);
}
TENDRIL_NVML nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses_v3(nvmlDevice_t device,
                                                                     unsigned int* infoCount,
                                                                     nvmlProcessInfo_t* infos) {
  return no_processes(device, infoCount);
}

TENDRIL_NVML nvmlReturn_t nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t device,
                                                                nvmlProcessDetailList_t* plist) {
  return with_live(device, plist, [&](const Device& one) {
    if (plist->version != nvmlProcessDetailList_v1) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    unsigned int room = plist->procArray == nullptr ? 0 : plist->numProcArrayEntries;
    bool compute = plist->mode == NVML_PROCESS_MODE_COMPUTE || plist->mode == NVML_PROCESS_MODE_ALL;
    plist->numProcArrayEntries = compute ? static_cast<unsigned>(one.processes.size()) : 0;
    if (room < plist->numProcArrayEntries) return NVML_ERROR_INSUFFICIENT_SIZE;
    for (unsigned i = 0; i < plist->numProcArrayEntries; ++i) {
      const Process& process = one.processes[i];
      plist->procArray[i] = {process.pid, process.memory_bytes, kNoInstance, kNoInstance, 0};
    }
    return NVML_SUCCESS;
  });
}

// No samples are kept. NOT_FOUND means "nothing since then" in NVML.
TENDRIL_NVML nvmlReturn_t nvmlDeviceGetProcessUtilization(
    nvmlDevice_t device, nvmlProcessUtilizationSample_t* utilization,
    unsigned int* processSamplesCount, unsigned long long lastSeenTimeStamp) {
  return with(device, processSamplesCount, [&](const Device&) {
    *processSamplesCount = 0;
    return NVML_ERROR_NOT_FOUND;
  });
}
TENDRIL_NVML nvmlReturn_t nvmlDeviceGetProcessesUtilizationInfo(
    nvmlDevice_t device, nvmlProcessesUtilizationInfo_t* procesesUtilInfo) {
  return with(device, procesesUtilInfo, [&](const Device&) {
    if (procesesUtilInfo->version != nvmlProcessesUtilizationInfo_v1)
      return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    procesesUtilInfo->processSamplesCount = 0;
    return NVML_ERROR_NOT_FOUND;
  });
}
