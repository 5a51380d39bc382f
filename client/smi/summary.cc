// SPDX-License-Identifier: Apache-2.0
// See summary.h. The widths are those of driver 580 (recorded/table.txt): programs cut its lines at
// fixed places.
#include "client/smi/summary.h"

#include "base/text.h"
#include "client/smi/processes.h"

namespace tendril::client::smi {
namespace {

using base::format;

constexpr char kRule[] =
    "+-----------------------------------------+------------------------+----------------------+\n";
constexpr char kWideRule[] =
    "+-----------------------------------------------------------------------------------------+\n";
constexpr size_t kNameMax = 27;
constexpr size_t kProcessMax = 37;

Value value(const char* field, const Gpu& gpu) { return value_of(*find_field(field), gpu, false); }

// "12" and "W" as "12W"; "N/A" if it is not known.
std::string with(const Value& value, const char* unit) {
  return value.known ? value.text + unit : "N/A";
}
// Without what stands behind the point.
Value whole(Value value) {
  value.text = value.text.substr(0, value.known ? value.text.find('.') : std::string::npos);
  return value;
}

std::string short_name(const std::string& name) {
  return name.size() <= kNameMax ? name : name.substr(0, kNameMax - 3) + "...";
}
// The end of a path says more than its beginning.
std::string short_process(const std::string& name) {
  return name.size() <= kProcessMax ? name : "..." + name.substr(name.size() - (kProcessMax - 3));
}

const char* on_off(const Value& value) { return value.text == "Enabled" ? "On" : "Off"; }

std::string header() {
  return format("| NVIDIA-SMI %-23sDriver Version: %-15sCUDA Version: %-9s|\n",
                driver_version().c_str(), driver_version().c_str(), cuda_version().c_str());
}

std::string gpu_lines(const Gpu& gpu) {
  const Value temperature = value("temperature.gpu", gpu), mig = value("mig.mode.current", gpu);
  const Value ecc = value("ecc.errors.uncorrected.volatile.total", gpu);
  std::string out =
      format("|%4u  %-30s %-3s |   %16s %-3s |%21s |\n", gpu.index,
             short_name(value("name", gpu).text).c_str(), on_off(value("persistence_mode", gpu)),
             value("pci.bus_id", gpu).text.c_str(), on_off(value("display_active", gpu)),
             with(ecc, "").c_str());
  out += format(
      "|%4s%6s%6s%16s / %5s |%11s / %9s |%8s%13s |\n", with(value("fan.speed", gpu), "%").c_str(),
      with(temperature, "C").c_str(), with(value("pstate", gpu), "").c_str(),
      with(whole(value("power.draw", gpu)), "W").c_str(),
      with(whole(value("enforced.power.limit", gpu)), "W").c_str(),
      with(value("memory.used", gpu), "MiB").c_str(),
      with(value("memory.total", gpu), "MiB").c_str(),
      with(value("utilization.gpu", gpu), "%").c_str(), value("compute_mode", gpu).text.c_str());
  out += format("|%41s|%24s|%21s |\n", "", "", with(mig, "").c_str());
  return out + kRule;
}

std::string process_lines(const std::vector<Gpu>& gpus) {
  std::string out;
  for (const Gpu& gpu : gpus) {
    for (const Process& process : processes_of(gpu)) {
      out += format("|%5u   N/A  N/A %15u      C   %-38s%8s |\n", gpu.index, process.pid,
                    short_process(process.name).c_str(),
                    format("%lluMiB", process.memory_bytes / kMiB).c_str());
    }
  }
  return out.empty() ? format("|  %-87s|\n", "No running processes found") : out;
}

}  // namespace

std::string summary(const std::vector<Gpu>& gpus) {
  std::string out = timestamp_of_log() + "       \n";
  out += kWideRule + header() + kRule;
  out +=
      "| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC "
      "|\n"
      "| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. "
      "|\n"
      "|                                         |                        |               MIG M. "
      "|\n"
      "|=========================================+========================+======================|"
      "\n";
  for (const Gpu& gpu : gpus) out += gpu_lines(gpu);
  out += std::string("\n") + kWideRule;
  out +=
      "| Processes:                                                                              "
      "|\n"
      "|  GPU   GI   CI              PID   Type   Process name                        GPU Memory "
      "|\n"
      "|        ID   ID                                                               Usage      "
      "|\n"
      "|=========================================================================================|"
      "\n";
  return out + process_lines(gpus) + kWideRule;
}

std::string listing(const std::vector<Gpu>& gpus) {
  std::string out;
  for (const Gpu& gpu : gpus)
    out += format("GPU %u: %s (UUID: %s)\n", gpu.index, value("name", gpu).text.c_str(),
                  value("uuid", gpu).text.c_str());
  return out;
}

std::string topology(const std::vector<Gpu>& gpus) {
  const auto way = [](const Gpu& from, const Gpu& to) -> const char* {
    if (from.index == to.index) return " X ";
    nvmlGpuTopologyLevel_t level = NVML_TOPOLOGY_SYSTEM;
    if (nvmlDeviceGetTopologyCommonAncestor(from.handle, to.handle, &level) != NVML_SUCCESS)
      return "N/A";
    switch (level) {
      case NVML_TOPOLOGY_INTERNAL:
      case NVML_TOPOLOGY_SINGLE:
        return "PIX";
      case NVML_TOPOLOGY_MULTIPLE:
        return "PXB";
      case NVML_TOPOLOGY_HOSTBRIDGE:
        return "PHB";
      case NVML_TOPOLOGY_NODE:
        return "NODE";
      default:
        return "SYS";
    }
  };
  std::string out = "\t";
  for (const Gpu& gpu : gpus) out += format("GPU%u\t", gpu.index);
  out += "CPU Affinity\tNUMA Affinity\tGPU NUMA ID\n";
  for (const Gpu& from : gpus) {
    out += format("GPU%u\t", from.index);
    for (const Gpu& to : gpus) out += std::string(way(from, to)) + "\t";
    out += "N/A\tN/A\t\tN/A\n";
  }
  return out +
         "\nLegend:\n\n  X    = the GPU itself\n"
         "  SYS  = across processors or machines\n"
         "  NODE, PHB, PXB, PIX = within a NUMA node, a host bridge, several switches, one "
         "switch\n";
}

}  // namespace tendril::client::smi
