// SPDX-License-Identifier: Apache-2.0
// See device_facts.h.
#include "worker/cuda/device_facts.h"

#include <vector>

#include "api/cuda_messages.gen.h"

namespace tendril::worker::cuda {

bool DeviceTexts::keeps_ptx() const { return names.find("Test Device") != std::string::npos; }

CUresult describe_device(const gpu::Driver& driver, CUdevice device, bool shares_pages,
                         DeviceTexts* texts, int32_t* attributes) {
  char name[256] = {}, pci[64] = {};
  CUuuid uuid{};
  const CUresult result = driver.cuDeviceGetName(name, sizeof name - 1, device);
  if (result != CUDA_SUCCESS) return result;
  driver.cuDeviceGetPCIBusId(pci, sizeof pci - 1, device);
  driver.cuDeviceGetUuid_v2(&uuid, device);
  texts->names.append(name).push_back('\0');
  texts->pci.append(pci).push_back('\0');
  texts->uuids.append(uuid.bytes, sizeof uuid.bytes);
  for (uint32_t i = 0; i < kAttributes; ++i) {
    int value = 0;
    const CUresult answer =
        i == 0 ? CUDA_ERROR_INVALID_VALUE
               : driver.cuDeviceGetAttribute(&value, static_cast<CUdevice_attribute>(i), device);
    attributes[i * 2] = answer;
    attributes[i * 2 + 1] = value;
  }
  // Features that cannot work between machines are reported absent. Programs then use paths that
  // work.
  const CUdevice_attribute absent[] = {
      CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS,
      CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES,
      CU_DEVICE_ATTRIBUTE_DIRECT_MANAGED_MEM_ACCESS_FROM_HOST,
      CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED,
      CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED,
      CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED,
      CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED,
      CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED,
      CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED};
  for (CUdevice_attribute which : absent) attributes[which * 2 + 1] = 0;
  if (!shares_pages) attributes[CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS * 2 + 1] = 0;
  attributes[CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES * 2 + 1] &=
      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  return CUDA_SUCCESS;
}

std::string device_facts(const gpu::Driver& driver, uint32_t gpu_index) {
  CUdevice device = 0;
  if (driver.cuDeviceGet(&device, static_cast<int>(gpu_index)) != CUDA_SUCCESS) return {};
  DeviceTexts texts;
  std::vector<int32_t> attributes(uint64_t{kAttributes} * 2);
  // Nobody knows yet whether the program's pages will be the worker's.
  if (describe_device(driver, device, false, &texts, attributes.data()) != CUDA_SUCCESS) return {};
  int version = 0;
  driver.cuDriverGetVersion(&version);
  const auto bytes_of = [](const std::string& text) {
    return wire::Bytes{reinterpret_cast<const uint8_t*>(text.data()), text.size()};
  };
  wire::cuda::snapshot_reply reply;
  reply.driver_version = version;
  reply.slots = 1;
  reply.attribute_count = kAttributes;
  reply.attributes = {attributes.data(), attributes.size()};
  reply.names = bytes_of(texts.names);
  reply.pci = bytes_of(texts.pci);
  reply.uuids = bytes_of(texts.uuids);
  reply.keep_ptx = texts.keeps_ptx();
  std::string body(wire::message_bytes(reply), '\0');
  wire::write_message(reply, reinterpret_cast<uint8_t*>(body.data()));
  return body;
}

}  // namespace tendril::worker::cuda
