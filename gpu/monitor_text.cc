// SPDX-License-Identifier: Apache-2.0
// Samples as lines of text. Opens no library, so that the daemon can link this file alone. See
// monitor.h.
#include <cctype>
#include <cstdio>

#include "gpu/monitor.h"

namespace tendril::gpu {
namespace {

// The bus id in lower case, without leading zeros in the domain.
std::string canonical(const std::string& bus_id) {
  std::string out;
  for (char c : bus_id) out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  const size_t begin = out.find_first_not_of('0');
  return begin == std::string::npos ? out : out.substr(begin);
}

}  // namespace

std::string sample_to_line(const Sample& sample) {
  char line[160];
  std::snprintf(line, sizeof line, "tendril-sample %.48s %d %d %d\n", sample.pci_bus_id.c_str(),
                sample.utilization_percent, sample.temperature_c, sample.power_mw);
  return line;
}

bool sample_from_line(const std::string& line, Sample* sample) {
  char bus_id[64];
  int utilization = -1, temperature = -1, power = -1;
  if (line.size() > 200) return false;
  if (std::sscanf(line.c_str(), "tendril-sample %63s %d %d %d", bus_id, &utilization, &temperature,
                  &power) != 4) {
    return false;
  }
  sample->pci_bus_id = bus_id;
  sample->utilization_percent = utilization < 0 || utilization > 100 ? -1 : utilization;
  sample->temperature_c = temperature < 0 || temperature > 1000 ? -1 : temperature;
  sample->power_mw = power < 0 ? -1 : power;
  return true;
}

bool same_bus_id(const std::string& a, const std::string& b) {
  return !a.empty() && canonical(a) == canonical(b);
}

}  // namespace tendril::gpu
