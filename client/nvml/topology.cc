// SPDX-License-Identifier: Apache-2.0
// How devices are connected to each other and to the client's processors. Every slice is alone
// behind the network. So the answer is that there are no peer paths between GPUs. Libraries that
// could use such paths (NCCL, vLLM's custom all-reduce) then take their general path.
#include <sched.h>

#include <cstring>

#include "client/nvml/answer.h"

namespace nvml = tendril::client::nvml;
using nvml::Device;
using nvml::with;

namespace {

// Runs `body` with two devices, after the checks of each.
template <typename Body>
nvmlReturn_t with_two(nvmlDevice_t first, nvmlDevice_t second, const void* needed, Body body) {
  return with(first, needed, [&](const Device& one) {
    return with(second, needed, [&](const Device& other) { return body(one, other); });
  });
}

nvmlReturn_t affinity(nvmlDevice_t handle, unsigned int words, unsigned long* set) {
  return with(handle, set, [&](const Device&) {
    if (words == 0) return NVML_ERROR_INVALID_ARGUMENT;
    cpu_set_t usable;
    CPU_ZERO(&usable);
    if (sched_getaffinity(0, sizeof usable, &usable) != 0) return NVML_ERROR_UNKNOWN;
    memset(set, 0, words * sizeof *set);
    const size_t bits = 8 * sizeof *set;
    for (size_t cpu = 0; cpu < CPU_SETSIZE && cpu < words * bits; ++cpu) {
      if (CPU_ISSET(cpu, &usable)) set[cpu / bits] |= 1ul << (cpu % bits);
    }
    return NVML_SUCCESS;
  });
}

// Fills in the fields that all versions of the structure have after the first word.
template <typename Info>
void no_fabric(Info* info) {
  memset(info->clusterUuid, 0, sizeof info->clusterUuid);
  info->status = NVML_SUCCESS;
  info->cliqueId = 0;
  info->state = NVML_GPU_FABRIC_STATE_NOT_SUPPORTED;
}

}  // namespace

TENDRIL_NVML nvmlReturn_t nvmlDeviceGetP2PStatus(nvmlDevice_t device1, nvmlDevice_t device2,
                                                 nvmlGpuP2PCapsIndex_t p2pIndex,
                                                 nvmlGpuP2PStatus_t* p2pStatus) {
  return with_two(device1, device2, p2pStatus, [&](const Device& one, const Device& other) {
    *p2pStatus = one.index == other.index ? NVML_P2P_STATUS_OK : NVML_P2P_STATUS_NOT_SUPPORTED;
    return NVML_SUCCESS;
  });
}

TENDRIL_NVML nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t device1,
                                                              nvmlDevice_t device2,
                                                              nvmlGpuTopologyLevel_t* pathInfo) {
  return with_two(device1, device2, pathInfo, [&](const Device& one, const Device& other) {
    *pathInfo = one.index == other.index ? NVML_TOPOLOGY_INTERNAL : NVML_TOPOLOGY_SYSTEM;
    return NVML_SUCCESS;
  });
}

TENDRIL_NVML nvmlReturn_t nvmlDeviceGetTopologyNearestGpus(nvmlDevice_t device,
                                                           nvmlGpuTopologyLevel_t level,
                                                           unsigned int* count,
                                                           nvmlDevice_t* deviceArray) {
  return with(device, count, [&](const Device& one) {
    std::vector<Device> devices;
    nvmlReturn_t check = nvml::all_devices(&devices);
    if (check != NVML_SUCCESS) return check;
    unsigned int room = deviceArray == nullptr ? 0 : *count, found = 0;
    for (const Device& other : devices) {
      if (other.index == one.index || level != NVML_TOPOLOGY_SYSTEM) continue;
      if (found < room) deviceArray[found] = nvml::handle_of(other.index);
      ++found;
    }
    *count = found;
    return NVML_SUCCESS;
  });
}

TENDRIL_NVML nvmlReturn_t nvmlDeviceOnSameBoard(nvmlDevice_t device1, nvmlDevice_t device2,
                                                int* onSameBoard) {
  return with_two(device1, device2, onSameBoard, [&](const Device& one, const Device& other) {
    *onSameBoard = one.index == other.index;
    return NVML_SUCCESS;
  });
}

TENDRIL_NVML nvmlReturn_t nvmlDeviceGetGpuFabricInfo(nvmlDevice_t device,
                                                     nvmlGpuFabricInfo_t* gpuFabricInfo) {
  return with(device, gpuFabricInfo, [&](const Device&) {
    no_fabric(gpuFabricInfo);
    return NVML_SUCCESS;
  });
}

TENDRIL_NVML nvmlReturn_t nvmlDeviceGetGpuFabricInfoV(nvmlDevice_t device,
                                                      nvmlGpuFabricInfoV_t* gpuFabricInfo) {
  return with(device, gpuFabricInfo, [&](const Device&) {
    if (gpuFabricInfo->version == nvmlGpuFabricInfo_v2) {
      auto* info = reinterpret_cast<nvmlGpuFabricInfo_v2_t*>(
          gpuFabricInfo);  // the caller's structure is only this long
      no_fabric(info);
      info->healthMask = 0;
      return NVML_SUCCESS;
    }
    if (gpuFabricInfo->version != nvmlGpuFabricInfo_v3) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    no_fabric(gpuFabricInfo);
    gpuFabricInfo->healthMask = 0;
    gpuFabricInfo->healthSummary = 0;
    return NVML_SUCCESS;
  });
}

// The processors that are near the device: all that the program has, because it reaches the device
// over the network.
TENDRIL_NVML nvmlReturn_t nvmlDeviceGetCpuAffinity(nvmlDevice_t device, unsigned int cpuSetSize,
                                                   unsigned long* cpuSet) {
  return affinity(device, cpuSetSize, cpuSet);
}
TENDRIL_NVML nvmlReturn_t nvmlDeviceGetCpuAffinityWithinScope(nvmlDevice_t device,
                                                              unsigned int cpuSetSize,
                                                              unsigned long* cpuSet,
                                                              nvmlAffinityScope_t scope) {
  return affinity(device, cpuSetSize, cpuSet);
}
