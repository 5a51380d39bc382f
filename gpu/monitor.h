// SPDX-License-Identifier: Apache-2.0
// Utilisation, temperature and power from the vendor's monitoring library (libnvidia-ml.so.1), if
// there is one. A child of the daemon (`tendril-worker --monitor`) takes the samples and prints
// each as a line. So a library that hangs on a broken GPU hangs only that child. The text half
// (monitor_text.cc) opens nothing.
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

class Monitor {
 public:
  // kNotFound: the machine has no monitoring library. That is an ordinary state, not a fault.
  static base::Result<std::unique_ptr<Monitor>> open(const std::string& library_path);
  virtual ~Monitor() = default;
  virtual std::vector<Sample> sample() = 0;
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
