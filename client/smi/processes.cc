// SPDX-License-Identifier: Apache-2.0
// See processes.h.
#include "client/smi/processes.h"

#include "base/text.h"

namespace tendril::client::smi {
namespace {

std::string of_gpu(const char* name, const Gpu& gpu) {
  const Value value = value_of(*find_field(name), gpu, false);
  return value.known ? value.text : "[" + value.text + "]";
}

}  // namespace

std::vector<Process> processes_of(const Gpu& gpu) {
  // Some may start between the question how many there are and the other one.
  constexpr unsigned kMore = 16;
  unsigned count = 0;
  nvmlDeviceGetComputeRunningProcesses_v3(gpu.handle, &count, nullptr);
  count += kMore;
  std::vector<nvmlProcessInfo_t> found(count);
  if (nvmlDeviceGetComputeRunningProcesses_v3(gpu.handle, &count, found.data()) != NVML_SUCCESS)
    return {};
  std::vector<Process> processes;
  for (unsigned i = 0; i < count && i < found.size(); ++i) {
    char name[256] = {};
    const bool named = nvmlSystemGetProcessName(found[i].pid, name, sizeof name) == NVML_SUCCESS;
    processes.push_back(
        {found[i].pid, named ? base::printable(name) : "[Not Found]", found[i].usedGpuMemory});
  }
  return processes;
}

const ProcessField kProcessFields[] = {
    {"timestamp", "", "", [](const Gpu& gpu, const Process&) { return of_gpu("timestamp", gpu); }},
    {"gpu_name", "", "", [](const Gpu& gpu, const Process&) { return of_gpu("name", gpu); }},
    {"gpu_bus_id", "", "",
     [](const Gpu& gpu, const Process&) { return of_gpu("pci.bus_id", gpu); }},
    {"gpu_serial", "", "", [](const Gpu& gpu, const Process&) { return of_gpu("serial", gpu); }},
    {"gpu_uuid", "", "", [](const Gpu& gpu, const Process&) { return of_gpu("uuid", gpu); }},
    {"pid", "", "", [](const Gpu&, const Process& process) { return std::to_string(process.pid); }},
    {"process_name", "name", "", [](const Gpu&, const Process& process) { return process.name; }},
    {"used_gpu_memory", "used_memory", "MiB",
     [](const Gpu&, const Process& process) {
       return std::to_string(process.memory_bytes / kMiB);
     }},
};
const size_t kProcessFieldCount = sizeof kProcessFields / sizeof kProcessFields[0];

const ProcessField* find_process_field(const std::string& name) {
  for (const ProcessField& field : kProcessFields)
    if (name == field.name || (*field.alias != 0 && name == field.alias)) return &field;
  return nullptr;
}

}  // namespace tendril::client::smi
