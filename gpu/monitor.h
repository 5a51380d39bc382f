// SPDX-License-Identifier: Apache-2.0
// Utilisation, temperature, power and processes from the vendor's monitoring library
// (libnvidia-ml.so.1), if there is one. A child of the daemon (`tendril-worker --monitor`) takes
// samples and prints each as a line. So a library that hangs on a broken GPU hangs only that child.
// `tendril observe` looks at processes, too. The text half (monitor_text.cc) opens nothing.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"

namespace tendril::gpu {

// -1: unknown.
struct Sample {
  std::string pci_bus_id;
  int32_t utilization_percent = -1, temperature_c = -1, power_mw = -1;
};

// A process that has a context on a GPU.
struct ProcessUse {
  uint32_t pid = 0;
  uint64_t memory_bytes = 0;  // 0 also if unknown
  int32_t busy_percent = -1;  // of the GPU's processors, as the driver counts; -1: unknown
};

// What one GPU does. -1: unknown.
struct DeviceUse {
  std::string uuid, name;
  double utilization_percent = -1;  // of the time since the last look, if the driver keeps samples
  int32_t power_mw = -1;
  uint64_t memory_used_bytes = 0, memory_total_bytes = 0;
  std::vector<ProcessUse> processes;
};

class Monitor {
 public:
  // kNotFound: the machine has no monitoring library. That is an ordinary state, not a fault.
  static base::Result<std::unique_ptr<Monitor>> open(const std::string& library_path);
  virtual ~Monitor() = default;
  virtual std::vector<Sample> sample() = 0;
  // Everything, for a look each second. Needs no root. A GPU that does not answer is left out.
  virtual std::vector<DeviceUse> look() = 0;
};

// How the child's only line begins when there is no library that works; the reason follows.
inline constexpr char kNoSamples[] = "tendril-no-samples ";

// "tendril-sample <pci bus id> <percent> <celsius> <milliwatts>". False: the line is something
// else.
std::string sample_to_line(const Sample& sample);
bool sample_from_line(const std::string& line, Sample* sample);

// Compares bus ids, whose domain may have four or eight digits.
bool same_bus_id(const std::string& a, const std::string& b);

}  // namespace tendril::gpu
