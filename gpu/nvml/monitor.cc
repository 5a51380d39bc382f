// SPDX-License-Identifier: Apache-2.0
// Binds the few calls of libnvidia-ml.so.1 that are needed. See monitor.h. What an older library
// or another GPU lacks is unknown, and nothing else fails.
#include "gpu/monitor.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "api/nvml_abi.gen.h"

namespace tendril::gpu {
namespace {

constexpr size_t kMostProcesses = 4096;  // of a GPU
constexpr unsigned kMostSamples = 4096;

class NvmlMonitor : public Monitor {
 public:
  bool bind(void* library) {
    bind_one(library, "nvmlDeviceGetUUID", &get_uuid_);
    bind_one(library, "nvmlDeviceGetName", &get_name_);
    bind_one(library, "nvmlDeviceGetMemoryInfo", &get_memory_);
    bind_one(library, "nvmlDeviceGetComputeRunningProcesses_v3", &get_processes_);
    bind_one(library, "nvmlDeviceGetProcessUtilization", &get_process_utilization_);
    bind_one(library, "nvmlDeviceGetSamples", &get_samples_);
    return bind_one(library, "nvmlInit_v2", &init_) &&
           bind_one(library, "nvmlDeviceGetCount_v2", &get_count_) &&
           bind_one(library, "nvmlDeviceGetHandleByIndex_v2", &get_handle_) &&
           bind_one(library, "nvmlDeviceGetPciInfo_v3", &get_pci_) &&
           bind_one(library, "nvmlDeviceGetUtilizationRates", &get_utilization_) &&
           bind_one(library, "nvmlDeviceGetTemperature", &get_temperature_) &&
           bind_one(library, "nvmlDeviceGetPowerUsage", &get_power_) && init_() == NVML_SUCCESS;
  }

  std::vector<Sample> sample() override {
    std::vector<Sample> samples;
    for (const nvmlDevice_t device : devices()) {
      nvmlPciInfo_t pci = {};
      if (get_pci_(device, &pci) != NVML_SUCCESS) continue;
      Sample one;
      one.pci_bus_id = text_of(pci.busId);
      nvmlUtilization_t utilization = {};
      unsigned value = 0;
      if (get_utilization_(device, &utilization) == NVML_SUCCESS)
        one.utilization_percent = static_cast<int32_t>(utilization.gpu);
      if (get_temperature_(device, NVML_TEMPERATURE_GPU, &value) == NVML_SUCCESS)
        one.temperature_c = static_cast<int32_t>(value);
      one.power_mw = power_of(device);
      samples.push_back(one);
    }
    return samples;
  }

  std::vector<DeviceUse> look() override {
    std::vector<DeviceUse> uses;
    for (const nvmlDevice_t device : devices()) {
      char text[NVML_DEVICE_NAME_V2_BUFFER_SIZE] = {};
      DeviceUse use;
      if (get_uuid_ == nullptr || get_uuid_(device, text, sizeof text) != NVML_SUCCESS) continue;
      use.uuid = text_of(text);
      if (get_name_ != nullptr && get_name_(device, text, sizeof text) == NVML_SUCCESS)
        use.name = text_of(text);
      nvmlMemory_t memory = {};
      if (get_memory_ != nullptr && get_memory_(device, &memory) == NVML_SUCCESS) {
        use.memory_used_bytes = memory.used;
        use.memory_total_bytes = memory.total;
      }
      Seen& seen = seen_[device];
      use.utilization_percent = utilization_of(device, &seen);
      use.power_mw = power_of(device);
      use.processes = processes_of(device);
      if (!use.processes.empty()) ask_who_works(device, &seen, &use.processes);
      uses.push_back(std::move(use));
    }
    return uses;
  }

 private:
  // Until when the driver's own samples were read.
  struct Seen {
    unsigned long long utilization_us = 0, processes_us = 0;
    std::vector<nvmlSample_t> samples;  // room for all that the driver keeps
  };

  template <size_t bytes>
  static std::string text_of(const char (&text)[bytes]) {
    return std::string(text, strnlen(text, bytes));
  }

  std::vector<nvmlDevice_t> devices() const {
    std::vector<nvmlDevice_t> found;
    unsigned count = 0;
    if (get_count_(&count) != NVML_SUCCESS) return found;
    for (unsigned i = 0; i < count; ++i) {
      nvmlDevice_t device = nullptr;
      if (get_handle_(i, &device) == NVML_SUCCESS) found.push_back(device);
    }
    return found;
  }

  int32_t power_of(nvmlDevice_t device) const {
    unsigned value = 0;
    return get_power_(device, &value) == NVML_SUCCESS ? static_cast<int32_t>(value) : -1;
  }

  // The mean of the driver's samples since the last look: some come each second, and one of them
  // alone would say what the last fraction of a second was. Negative: it keeps none, or has no new
  // one.
  double mean_of_samples(nvmlDevice_t device, Seen* seen) const {
    if (get_samples_ == nullptr) return -1;
    const unsigned long long before_us = seen->utilization_us;
    nvmlValueType_t type = NVML_VALUE_TYPE_UNSIGNED_INT;
    unsigned count = 0;
    if (seen->samples.empty()) {  // how many it keeps
      if (get_samples_(device, NVML_GPU_UTILIZATION_SAMPLES, 0, &type, &count, nullptr) !=
              NVML_SUCCESS ||
          count == 0 || count > kMostSamples)
        return -1;
      seen->samples.resize(count);
    }
    count = static_cast<unsigned>(seen->samples.size());
    if (get_samples_(device, NVML_GPU_UTILIZATION_SAMPLES, before_us, &type, &count,
                     seen->samples.data()) != NVML_SUCCESS ||
        type != NVML_VALUE_TYPE_UNSIGNED_INT)
      return -1;
    double sum = 0, used = 0;
    for (size_t i = 0; i < std::min<size_t>(count, seen->samples.size()); ++i) {
      const nvmlSample_t& sample = seen->samples[i];
      if (sample.timeStamp <= before_us || sample.sampleValue.uiVal > 100) continue;
      seen->utilization_us = std::max(seen->utilization_us, sample.timeStamp);
      sum += sample.sampleValue.uiVal;
      ++used;
    }
    // The first time they reach back to times of which nobody asked.
    return used > 0 && before_us != 0 ? sum / used : -1;
  }

  double utilization_of(nvmlDevice_t device, Seen* seen) const {
    const double mean = mean_of_samples(device, seen);
    if (mean >= 0) return mean;
    nvmlUtilization_t utilization = {};
    return get_utilization_(device, &utilization) == NVML_SUCCESS ? utilization.gpu : -1;
  }

  std::vector<ProcessUse> processes_of(nvmlDevice_t device) const {
    if (get_processes_ == nullptr) return {};
    // Some may come between two calls.
    std::vector<nvmlProcessInfo_t> infos(64);
    unsigned count = static_cast<unsigned>(infos.size());
    nvmlReturn_t found = get_processes_(device, &count, infos.data());
    if (found == NVML_ERROR_INSUFFICIENT_SIZE && count <= kMostProcesses) {
      infos.resize(count + 64);
      count = static_cast<unsigned>(infos.size());
      found = get_processes_(device, &count, infos.data());
    }
    std::vector<ProcessUse> processes;
    if (found != NVML_SUCCESS) return processes;
    for (unsigned i = 0; i < std::min<size_t>(count, infos.size()); ++i) {
      ProcessUse one;
      one.pid = infos[i].pid;
      if (infos[i].usedGpuMemory != static_cast<unsigned long long>(NVML_VALUE_NOT_AVAILABLE))
        one.memory_bytes = infos[i].usedGpuMemory;
      processes.push_back(one);
    }
    return processes;
  }

  void ask_who_works(nvmlDevice_t device, Seen* seen, std::vector<ProcessUse>* processes) const {
    if (get_process_utilization_ == nullptr) return;
    std::vector<nvmlProcessUtilizationSample_t> samples(256);
    unsigned count = static_cast<unsigned>(samples.size());
    nvmlReturn_t found =
        get_process_utilization_(device, samples.data(), &count, seen->processes_us);
    if (found == NVML_ERROR_INSUFFICIENT_SIZE && count <= kMostSamples) {
      samples.resize(count + 64);
      count = static_cast<unsigned>(samples.size());
      found = get_process_utilization_(device, samples.data(), &count, seen->processes_us);
    }
    // Nothing found: nobody did anything since the last look.
    if (found != NVML_SUCCESS && found != NVML_ERROR_NOT_FOUND) return;
    if (found == NVML_ERROR_NOT_FOUND) count = 0;
    for (ProcessUse& process : *processes) process.busy_percent = 0;
    for (unsigned i = 0; i < std::min<size_t>(count, samples.size()); ++i) {
      seen->processes_us = std::max(seen->processes_us, samples[i].timeStamp);
      for (ProcessUse& process : *processes)
        if (process.pid == samples[i].pid)
          process.busy_percent = std::max(process.busy_percent,
                                          static_cast<int32_t>(std::min(samples[i].smUtil, 100u)));
    }
  }

  template <typename Function>
  static bool bind_one(void* library, const char* name, Function* into) {
    *into = reinterpret_cast<Function>(dlsym(library, name));
    return *into != nullptr;
  }

  std::map<nvmlDevice_t, Seen> seen_;
  nvmlReturn_t (*init_)() = nullptr;
  nvmlReturn_t (*get_count_)(unsigned*) = nullptr;
  nvmlReturn_t (*get_handle_)(unsigned, nvmlDevice_t*) = nullptr;
  nvmlReturn_t (*get_pci_)(nvmlDevice_t, nvmlPciInfo_t*) = nullptr;
  nvmlReturn_t (*get_utilization_)(nvmlDevice_t, nvmlUtilization_t*) = nullptr;
  nvmlReturn_t (*get_temperature_)(nvmlDevice_t, nvmlTemperatureSensors_t, unsigned*) = nullptr;
  nvmlReturn_t (*get_power_)(nvmlDevice_t, unsigned*) = nullptr;
  nvmlReturn_t (*get_uuid_)(nvmlDevice_t, char*, unsigned) = nullptr;
  nvmlReturn_t (*get_name_)(nvmlDevice_t, char*, unsigned) = nullptr;
  nvmlReturn_t (*get_memory_)(nvmlDevice_t, nvmlMemory_t*) = nullptr;
  nvmlReturn_t (*get_processes_)(nvmlDevice_t, unsigned*, nvmlProcessInfo_t*) = nullptr;
  nvmlReturn_t (*get_process_utilization_)(nvmlDevice_t, nvmlProcessUtilizationSample_t*, unsigned*,
                                           unsigned long long) = nullptr;
  nvmlReturn_t (*get_samples_)(nvmlDevice_t, nvmlSamplingType_t, unsigned long long,
                               nvmlValueType_t*, unsigned*, nvmlSample_t*) = nullptr;
};

}  // namespace

base::Result<std::unique_ptr<Monitor>> Monitor::open(const std::string& library_path) {
  const std::string name = library_path.empty() ? "libnvidia-ml.so.1" : library_path;
  void* library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return base::Status(base::Code::kNotFound, "no monitoring library '" + name + "'");
  }
  auto monitor = std::make_unique<NvmlMonitor>();
  if (!monitor->bind(library)) {
    return base::Status(base::Code::kUnavailable,
                        "the monitoring library '" + name + "' does not start");
  }
  return std::unique_ptr<Monitor>(std::move(monitor));
}

}  // namespace tendril::gpu
