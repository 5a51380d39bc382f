// SPDX-License-Identifier: Apache-2.0
// The private table that the stock nvidia-smi asks for: which slot answers what about a device.
// NVIDIA's own mock of NVML describes part of it for driver 580. Slots move between drivers, so
// this is best effort and for views only. `tendril smi` is the tool that must work. An undescribed
// slot answers "nothing of that kind" for a device and success for anything else; its caller then
// sees an idle GPU. Slots that would reset a GPU are refused. Any thread.
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <utility>

#include "client/common/log.h"
#include "client/nvml/answer.h"

namespace tendril::client::nvml {
namespace {

constexpr uint8_t kTableId[16] = {0xc4, 0xfe, 0x3e, 0x6c, 0xc9, 0x8f, 0x6c, 0x4e,
                                  0xa3, 0x27, 0xee, 0x69, 0x6e, 0x12, 0xf7, 0xc4};
constexpr size_t kWords = 256;
constexpr size_t kReset = 20, kHandleByIndex = 81, kResetDone = 197, kFirstProcesses = 213,
                 kLastProcesses = 215, kHostPcieGeneration = 230;
constexpr unsigned kProcessesMax = 65'536;

// A process of a device, as these slots list it.
struct Listed {
  nvmlProcessDetail_v1_t detail;
  char name[4096];
};
static_assert(sizeof(Listed) == 4128);

// The argument of an undescribed slot may be something other than an address.
void write_zero(void* where) {
  unsigned zero = 0;
  iovec from = {&zero, sizeof zero}, to = {where, sizeof zero};
  const ssize_t ignored = process_vm_writev(getpid(), &from, 1, &to, 1, 0);
  static_cast<void>(ignored);
}

// `*count`: the room on entry, the number of processes on return.
nvmlReturn_t list_processes(nvmlDevice_t handle, unsigned* count, Listed* into) {
  Device device;
  const nvmlReturn_t result = device_at(handle, Values::kLive, &device);
  const size_t room = *count, found = device.lost ? 0 : device.processes.size();
  *count = result == NVML_SUCCESS && found <= room ? static_cast<unsigned>(found) : 0;
  for (unsigned i = 0; into != nullptr && i < *count; ++i) {
    Listed& one = into[i];
    memset(&one, 0, sizeof one);
    one.detail.pid = device.processes[i].pid;
    one.detail.usedGpuMemory = device.processes[i].memory_bytes;
    one.detail.gpuInstanceId = one.detail.computeInstanceId = 0xffffffff;
    if (nvmlSystemGetProcessName(one.detail.pid, one.name, sizeof one.name) != NVML_SUCCESS)
      memcpy(one.name, "-", 2);  // nvidia-smi does not show a line without a name
  }
  return result;
}

nvmlReturn_t answer(size_t slot, void* first, void* second, void* third) {
  if (slot == kHandleByIndex)
    return nvmlDeviceGetHandleByIndex_v2(static_cast<unsigned>(reinterpret_cast<uintptr_t>(first)),
                                         static_cast<nvmlDevice_t*>(second));
  if (slot == kReset || slot == kResetDone) return refused("nvidia-smi's reset");
  Device ignored;
  const auto device = static_cast<nvmlDevice_t>(first);
  if (second == nullptr || device_at(device, Values::kKnown, &ignored) != NVML_SUCCESS)
    return NVML_SUCCESS;
  auto* number = static_cast<unsigned*>(second);
  if (slot == kHostPcieGeneration) return nvmlDeviceGetMaxPcieLinkGeneration(device, number);
  if (slot >= kFirstProcesses && slot <= kLastProcesses && *number >= 1 && *number <= kProcessesMax)
    return list_processes(device, number, static_cast<Listed*>(third));
  write_zero(second);
  return NVML_SUCCESS;
}

template <size_t kSlot>
nvmlReturn_t called(void* first, void* second, void* third) {
  return answer(kSlot, first, second, third);
}

template <size_t... kSlots>
std::array<const void*, kWords> table_of(std::index_sequence<kSlots...>) {
  return {reinterpret_cast<const void*>(sizeof(void*) * kWords),
          reinterpret_cast<const void*>(&called<kSlots + 1>)...};
}

}  // namespace
}  // namespace tendril::client::nvml

TENDRIL_NVML nvmlReturn_t nvmlInternalGetExportTable(const void** table, const void* id) {
  using namespace tendril::client::nvml;
  if (table == nullptr || id == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *table = nullptr;
  if (memcmp(id, kTableId, sizeof kTableId) != 0) return loud("nvmlInternalGetExportTable");
  static const auto words = table_of(std::make_index_sequence<kWords - 1>());
  *table = words.data();
  return NVML_SUCCESS;
}
