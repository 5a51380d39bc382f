// SPDX-License-Identifier: Apache-2.0
// Asks the driver which GPUs there are. Runs only in the probing child. See inventory.h.
#include "gpu/inventory.h"

#include <algorithm>

#include "gpu/cuda/driver.h"

namespace tendril::gpu {
namespace {

std::string error_text(const Driver& driver, CUresult result) {
  const char* name = nullptr;
  if (driver.cuGetErrorName != nullptr) driver.cuGetErrorName(result, &name);
  return name != nullptr ? name : "error " + std::to_string(static_cast<int>(result));
}

base::Status refused(const Driver& driver, const char* call, CUresult result) {
  return base::Status(base::Code::kUnavailable, "the GPU driver '" + driver.path() + "' answered " +
                                                    call + " with " + error_text(driver, result));
}

// The memory that is taken with one empty context on the device. 0: the driver does not say.
uint64_t memory_taken(const Driver& driver, CUdevice device) {
  CUcontext context = nullptr;
  size_t free_bytes = 0, total_bytes = 0;
  if (driver.cuDevicePrimaryCtxRetain == nullptr || driver.cuMemGetInfo_v2 == nullptr ||
      driver.cuCtxSetCurrent == nullptr || driver.cuDevicePrimaryCtxRelease_v2 == nullptr) {
    return 0;
  }
  if (driver.cuDevicePrimaryCtxRetain(&context, device) != CUDA_SUCCESS) return 0;
  driver.cuCtxSetCurrent(context);
  const bool known = driver.cuMemGetInfo_v2(&free_bytes, &total_bytes) == CUDA_SUCCESS;
  driver.cuCtxSetCurrent(nullptr);
  driver.cuDevicePrimaryCtxRelease_v2(device);
  return known && free_bytes <= total_bytes ? total_bytes - free_bytes : 0;
}

base::Result<DeviceFacts> facts_of(const Driver& driver, int ordinal) {
  DeviceFacts facts;
  facts.index = static_cast<uint32_t>(ordinal);
  CUdevice device = 0;
  CUresult result = driver.cuDeviceGet(&device, ordinal);
  if (result != CUDA_SUCCESS) return refused(driver, "cuDeviceGet", result);
  char text[256] = {};
  result = driver.cuDeviceGetName(text, sizeof text - 1, device);
  if (result != CUDA_SUCCESS) return refused(driver, "cuDeviceGetName", result);
  facts.name = text;
  size_t total_bytes = 0;
  result = driver.cuDeviceTotalMem_v2(&total_bytes, device);
  if (result != CUDA_SUCCESS) return refused(driver, "cuDeviceTotalMem", result);
  facts.memory_total_bytes = total_bytes;
  CUuuid uuid = {};
  const auto get_uuid =
      driver.cuDeviceGetUuid_v2 != nullptr ? driver.cuDeviceGetUuid_v2 : driver.cuDeviceGetUuid;
  if (get_uuid != nullptr && get_uuid(&uuid, device) == CUDA_SUCCESS) {
    facts.uuid.assign(reinterpret_cast<const char*>(&uuid), 16);
  }
  char bus_id[64] = {};
  if (driver.cuDeviceGetPCIBusId != nullptr &&
      driver.cuDeviceGetPCIBusId(bus_id, sizeof bus_id - 1, device) == CUDA_SUCCESS) {
    facts.pci_bus_id = bus_id;
  }
  int processors = 0;
  if (driver.cuDeviceGetAttribute != nullptr &&
      driver.cuDeviceGetAttribute(&processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device) ==
          CUDA_SUCCESS) {
    facts.processors = static_cast<uint32_t>(std::max(processors, 0));
  }
  int major = 0, minor = 0;
  if (driver.cuDeviceGetAttribute != nullptr &&
      driver.cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device) ==
          CUDA_SUCCESS &&
      driver.cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device) ==
          CUDA_SUCCESS) {
    facts.compute_capability = static_cast<uint32_t>(std::clamp(10 * major + minor, 0, 1000));
  }
  int pageable = 0;
  if (driver.cuDeviceGetAttribute != nullptr &&
      driver.cuDeviceGetAttribute(&pageable, CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS, device) ==
          CUDA_SUCCESS) {
    facts.pageable_access = pageable != 0;
  }
  facts.memory_taken_bytes = memory_taken(driver, device);
  return facts;
}

}  // namespace

base::Result<Inventory> take_inventory(const std::string& driver_path) {
  base::Result<std::unique_ptr<Driver>> opened = Driver::open(driver_path);
  if (!opened.ok()) return opened.status();
  const Driver& driver = **opened;
  if (driver.cuDeviceGetCount == nullptr || driver.cuDeviceGet == nullptr ||
      driver.cuDeviceGetName == nullptr || driver.cuDeviceTotalMem_v2 == nullptr) {
    return base::Status(base::Code::kMismatch,
                        "'" + driver.path() + "' lacks the device calls of a CUDA driver");
  }
  CUresult result = driver.cuInit(0);
  if (result != CUDA_SUCCESS) return refused(driver, "cuInit", result);
  Inventory inventory;
  inventory.driver_path = driver.path();
  int version = 0, count = 0;
  driver.cuDriverGetVersion(&version);
  inventory.driver_version = static_cast<uint32_t>(version);
  result = driver.cuDeviceGetCount(&count);
  if (result != CUDA_SUCCESS) return refused(driver, "cuDeviceGetCount", result);
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    base::Result<DeviceFacts> facts = facts_of(driver, ordinal);
    if (!facts.ok()) return facts.status();
    inventory.devices.push_back(facts.take());
  }
  // The library stays open while the process lives. See Driver::open.
  static_cast<void>(opened->release());
  return inventory;
}

}  // namespace tendril::gpu
