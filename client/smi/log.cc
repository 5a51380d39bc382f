// SPDX-License-Identifier: Apache-2.0
// See log.h.
#include "client/smi/log.h"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "base/text.h"
#include "client/smi/processes.h"

namespace tendril::client::smi {
namespace {

using base::format;

nvmlReturn_t brand(const Gpu& gpu, std::string* value) {
  nvmlBrandType_t found = NVML_BRAND_UNKNOWN;
  const nvmlReturn_t result = nvmlDeviceGetBrand(gpu.handle, &found);
  switch (found) {
    case NVML_BRAND_QUADRO:
      return done(result, value, "Quadro");
    case NVML_BRAND_TESLA:
      return done(result, value, "Tesla");
    case NVML_BRAND_GEFORCE:
      return done(result, value, "GeForce");
    case NVML_BRAND_TITAN:
      return done(result, value, "Titan");
    case NVML_BRAND_QUADRO_RTX:
      return done(result, value, "Quadro RTX");
    case NVML_BRAND_NVIDIA_RTX:
      return done(result, value, "NVIDIA RTX");
    case NVML_BRAND_NVIDIA:
      return done(result, value, "NVIDIA");
    case NVML_BRAND_GEFORCE_RTX:
      return done(result, value, "GeForce RTX");
    case NVML_BRAND_TITAN_RTX:
      return done(result, value, "Titan RTX");
    default:
      return done(result, value, "Unknown");
  }
}

nvmlReturn_t architecture(const Gpu& gpu, std::string* value) {
  nvmlDeviceArchitecture_t found = NVML_DEVICE_ARCH_UNKNOWN;
  const nvmlReturn_t result = nvmlDeviceGetArchitecture(gpu.handle, &found);
  switch (found) {
    case NVML_DEVICE_ARCH_VOLTA:
      return done(result, value, "Volta");
    case NVML_DEVICE_ARCH_TURING:
      return done(result, value, "Turing");
    case NVML_DEVICE_ARCH_AMPERE:
      return done(result, value, "Ampere");
    case NVML_DEVICE_ARCH_ADA:
      return done(result, value, "Ada Lovelace");
    case NVML_DEVICE_ARCH_HOPPER:
      return done(result, value, "Hopper");
    case NVML_DEVICE_ARCH_BLACKWELL:
      return done(result, value, "Blackwell");
    default:
      return done(result, value, "Unknown");
  }
}

nvmlReturn_t minor_number(const Gpu& gpu, std::string* value) {
  unsigned found = 0;
  const nvmlReturn_t result = nvmlDeviceGetMinorNumber(gpu.handle, &found);
  return done(result, value, format("%u", found));
}

nvmlReturn_t multi_gpu(const Gpu& gpu, std::string* value) {
  unsigned found = 0;
  const nvmlReturn_t result = nvmlDeviceGetMultiGpuBoard(gpu.handle, &found);
  return done(result, value, found != 0 ? "Yes" : "No");
}

nvmlReturn_t board(const Gpu& gpu, std::string* value) {
  unsigned found = 0;
  const nvmlReturn_t result = nvmlDeviceGetBoardId(gpu.handle, &found);
  return done(result, value, format("0x%x", found));
}

nvmlReturn_t virtualization(const Gpu& gpu, std::string* value) {
  nvmlGpuVirtualizationMode_t found = NVML_GPU_VIRTUALIZATION_MODE_NONE;
  const nvmlReturn_t result = nvmlDeviceGetVirtualizationMode(gpu.handle, &found);
  return done(result, value, found == NVML_GPU_VIRTUALIZATION_MODE_NONE ? "None" : "Virtualized");
}

template <auto Part>
nvmlReturn_t bar1(const Gpu& gpu, std::string* value) {
  nvmlBAR1Memory_t found = {};
  const nvmlReturn_t result = nvmlDeviceGetBAR1MemoryInfo(gpu.handle, &found);
  return done(result, value, format("%llu", found.*Part / kMiB));
}

// What only -q shows.
constexpr Field kMore[] = {
    {".brand", "", "", brand},
    {".architecture", "", "", architecture},
    {".minor", "", "", minor_number},
    {".multigpu", "", "", multi_gpu},
    {".board", "", "", board},
    {".virtualization", "", "", virtualization},
    {".bar1.total", "", "MiB", bar1<&nvmlBAR1Memory_t::bar1Total>},
    {".bar1.used", "", "MiB", bar1<&nvmlBAR1Memory_t::bar1Used>},
    {".bar1.free", "", "MiB", bar1<&nvmlBAR1Memory_t::bar1Free>},
};

// Words of -d without rows here.
constexpr const char* kEmptyDisplays[] = {"SUPPORTED_CLOCKS", "SUPPORTED_GPU_TARGET_TEMP",
                                          "VOLTAGE"};

std::string text_of(const Row& row, const Gpu& gpu) {
  if (*row.field == 0) return "N/A";
  const Field* field = find_field(row.field);
  for (const Field& more : kMore)
    if (strcmp(more.name, row.field) == 0) field = &more;
  if (field == nullptr) return "N/A";
  const Value value = value_of(*field, gpu, true);
  return value.known ? value.text + row.suffix : value.text;
}

std::string line(int depth, int width, const std::string& label, const std::string& value) {
  return format("%*s%-*s: %s\n", 4 * depth, "", width - 4 * depth, label.c_str(), value.c_str());
}

// Lines of processes are narrower than others, as the vendor's are.
std::string processes_text(const Gpu& gpu) {
  const std::vector<Process> processes = processes_of(gpu);
  if (processes.empty()) return line(1, 55, "Processes", "None");
  std::string out = "    Processes\n";
  for (const Process& process : processes) {
    out += line(2, 42, "GPU instance ID", "N/A") + line(2, 42, "Compute instance ID", "N/A");
    out += line(2, 42, "Process ID", std::to_string(process.pid));
    out += line(3, 42, "Type", "C") + line(3, 42, "Name", process.name);
    out += line(3, 42, "Used GPU Memory", format("%llu MiB", process.memory_bytes / kMiB));
  }
  return out;
}

std::string gpu_text(const Gpu& gpu, const std::vector<std::string>& displays) {
  std::string out = "GPU " + value_of(*find_field("pci.bus_id"), gpu, false).text + "\n";
  bool shown = true;
  for (size_t i = 0; i < kRowCount; ++i) {
    const Row& row = kRows[i];
    if (row.depth == 1 && !displays.empty())
      shown = std::find(displays.begin(), displays.end(), row.display) != displays.end();
    if (!shown || row.label == nullptr) continue;
    if (row.field == kGroup)
      out += format("%*s%s\n", 4 * row.depth, "", row.label);
    else if (row.field == kProcesses)
      out += processes_text(gpu);
    else
      out += line(row.depth, 55, row.label, text_of(row, gpu));
  }
  return out;
}

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else
      out += c;
  }
  return out;
}

std::string element(int depth, const char* name, const std::string& value) {
  return format("%s<%s>%s</%s>\n", std::string(static_cast<size_t>(depth), '\t').c_str(), name,
                escaped(value).c_str(), name);
}

std::string tag(int depth, const char* before, const char* name) {
  return format("%s%s%s>\n", std::string(static_cast<size_t>(depth), '\t').c_str(), before, name);
}

std::string processes_xml(const Gpu& gpu, int depth) {
  std::string out;
  for (const Process& process : processes_of(gpu)) {
    out += tag(depth, "<", "process_info");
    out += element(depth + 1, "gpu_instance_id", "N/A");
    out += element(depth + 1, "compute_instance_id", "N/A");
    out += element(depth + 1, "pid", std::to_string(process.pid));
    out += element(depth + 1, "type", "C");
    out += element(depth + 1, "process_name", process.name);
    out += element(depth + 1, "used_memory", format("%llu MiB", process.memory_bytes / kMiB));
    out += tag(depth, "</", "process_info");
  }
  return out;
}

// Numbers of the PCI address have no "0x" in XML.
std::string xml_value(const Row& row, const Gpu& gpu) {
  const std::string text = text_of(row, gpu);
  const bool of_pci = strncmp(row.field, "pci.", 4) == 0;
  return of_pci && text.rfind("0x", 0) == 0 ? text.substr(2) : text;
}

std::string gpu_xml(const Gpu& gpu) {
  const std::string id = value_of(*find_field("pci.bus_id"), gpu, false).text;
  std::string out = format("\t<gpu id=\"%s\">\n", escaped(id).c_str());
  std::vector<const char*> open;
  for (size_t i = 0; i < kRowCount; ++i) {
    const Row& row = kRows[i];
    if (row.element == nullptr) continue;
    const auto depth = static_cast<size_t>(row.depth);
    for (; open.size() >= depth; open.pop_back())
      out += tag(static_cast<int>(open.size()) + 1, "</", open.back());
    const bool is_open = row.field == kGroup || row.field == kProcesses || row.field == kNone;
    if (!is_open) {
      out += element(row.depth + 1, row.element, xml_value(row, gpu));
      continue;
    }
    out += tag(row.depth + 1, "<", row.element);
    open.push_back(row.element);
    if (row.field == kNone) out += std::string(depth + 2, '\t') + "None\n";
    if (row.field == kProcesses) out += processes_xml(gpu, row.depth + 2);
  }
  for (; !open.empty(); open.pop_back())
    out += tag(static_cast<int>(open.size()) + 1, "</", open.back());
  return out + "\t</gpu>\n\n";
}

}  // namespace

bool is_display(const std::string& word) {
  for (const char* const display : kEmptyDisplays)
    if (word == display) return true;
  for (size_t i = 0; i < kRowCount; ++i)
    if (*kRows[i].display != 0 && word == kRows[i].display) return true;
  return false;
}

std::string log_text(const std::vector<Gpu>& gpus, unsigned all,
                     const std::vector<std::string>& displays) {
  std::string out = "\n==============NVSMI LOG==============\n\n";
  out += line(0, 55, "Timestamp", timestamp_of_log());
  out += line(0, 55, "Driver Version", driver_version());
  out += line(0, 55, "CUDA Version", cuda_version()) + "\n";
  out += line(0, 55, "Attached GPUs", std::to_string(all));
  for (const Gpu& gpu : gpus) out += gpu_text(gpu, displays) + "\n";
  return out;
}

std::string log_xml(const std::vector<Gpu>& gpus, unsigned all) {
  std::string out =
      "<?xml version=\"1.0\" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM \"nvsmi_device_v13.dtd\">\n"
      "<nvidia_smi_log>\n";
  out +=
      element(1, "timestamp", timestamp_of_log()) + element(1, "driver_version", driver_version()) +
      element(1, "cuda_version", cuda_version()) + element(1, "attached_gpus", std::to_string(all));
  for (const Gpu& gpu : gpus) out += gpu_xml(gpu);
  return out + "</nvidia_smi_log>\n";
}

}  // namespace tendril::client::smi
