// SPDX-License-Identifier: Apache-2.0
// Binds the few calls of libnvidia-ml.so.1 that the table of GPUs needs. See monitor.h. The struct
// layouts below are those of the library's documented, versioned ABI (nvmlDeviceGetPciInfo_v3,
// nvmlDeviceGetUtilizationRates).
#include "gpu/monitor.h"

#include <dlfcn.h>

namespace tendril::gpu {
namespace {

using Device = void*;

struct PciInfo {
  char bus_id_legacy[16];
  unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
  char bus_id[32];
};
static_assert(sizeof(PciInfo) == 68);

struct Utilization {
  unsigned gpu, memory;
};

class NvmlMonitor : public Monitor {
 public:
  bool bind(void* library) {
    return bind_one(library, "nvmlInit_v2", &init_) &&
           bind_one(library, "nvmlDeviceGetCount_v2", &get_count_) &&
           bind_one(library, "nvmlDeviceGetHandleByIndex_v2", &get_handle_) &&
           bind_one(library, "nvmlDeviceGetPciInfo_v3", &get_pci_) &&
           bind_one(library, "nvmlDeviceGetUtilizationRates", &get_utilization_) &&
           bind_one(library, "nvmlDeviceGetTemperature", &get_temperature_) &&
           bind_one(library, "nvmlDeviceGetPowerUsage", &get_power_) && init_() == 0;
  }

  std::vector<Sample> sample() override {
    std::vector<Sample> samples;
    unsigned count = 0;
    if (get_count_(&count) != 0) return samples;
    for (unsigned i = 0; i < count; ++i) {
      Device device = nullptr;
      PciInfo pci = {};
      if (get_handle_(i, &device) != 0 || get_pci_(device, &pci) != 0) continue;
      Sample one;
      one.pci_bus_id = std::string(pci.bus_id, strnlen(pci.bus_id, sizeof pci.bus_id));
      Utilization utilization = {};
      unsigned value = 0;
      if (get_utilization_(device, &utilization) == 0)
        one.utilization_percent = static_cast<int32_t>(utilization.gpu);
      if (get_temperature_(device, 0, &value) == 0) one.temperature_c = static_cast<int32_t>(value);
      if (get_power_(device, &value) == 0) one.power_mw = static_cast<int32_t>(value);
      samples.push_back(one);
    }
    return samples;
  }

 private:
  static size_t strnlen(const char* text, size_t max) {
    size_t n = 0;
    while (n < max && text[n] != 0) ++n;
    return n;
  }

  template <typename Function>
  static bool bind_one(void* library, const char* name, Function* into) {
    *into = reinterpret_cast<Function>(dlsym(library, name));
    return *into != nullptr;
  }

  int (*init_)() = nullptr;
  int (*get_count_)(unsigned*) = nullptr;
  int (*get_handle_)(unsigned, Device*) = nullptr;
  int (*get_pci_)(Device, PciInfo*) = nullptr;
  int (*get_utilization_)(Device, Utilization*) = nullptr;
  int (*get_temperature_)(Device, int, unsigned*) = nullptr;
  int (*get_power_)(Device, unsigned*) = nullptr;
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
