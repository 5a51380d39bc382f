// SPDX-License-Identifier: Apache-2.0
// See host_memory.h.
#include "daemon/containment/host_memory.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <sstream>

namespace tendril::daemon {
namespace {

// Of a file with one number. False: there is no file, or it says "max".
bool read_number(const std::string& path, uint64_t* number) {
  return static_cast<bool>(std::ifstream(path) >> *number);
}

// Of a file with a name and a number in each line. 0: it has no such name.
uint64_t number_of(const std::string& path, const std::string& name) {
  std::ifstream lines(path);
  std::string word;
  uint64_t number = 0;
  for (std::string rest; lines >> word >> number && std::getline(lines, rest);) {
    if (word == name) return number;
  }
  return 0;
}

HostMemory machine_memory() {
  const auto pages = static_cast<uint64_t>(std::max(0l, sysconf(_SC_PHYS_PAGES)));
  HostMemory machine{pages * static_cast<uint64_t>(sysconf(_SC_PAGESIZE)), UINT64_MAX};
  const uint64_t kilobytes = number_of("/proc/meminfo", "MemAvailable:");
  if (kilobytes != 0) machine.available_bytes = kilobytes << 10;
  return machine;
}

}  // namespace

std::string cgroup_mount() {
  std::ifstream mounts("/proc/self/mountinfo");
  for (std::string line; std::getline(mounts, line);) {
    const size_t kind = line.find(" - cgroup2 ");
    if (kind == std::string::npos) continue;
    std::istringstream words(line);
    std::string word;
    for (int i = 0; i < 5; ++i) words >> word;
    return word;
  }
  return "";
}

std::string own_cgroup() {
  std::ifstream lines("/proc/self/cgroup");
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind("0::", 0) == 0) return line.substr(3);
  }
  return "";
}

HostMemory bounded_by_groups(HostMemory machine, const std::string& mount, std::string place) {
  while (true) {
    const std::string folder = mount + (place == "/" ? "" : place);
    uint64_t most = 0, used = 0;
    if (read_number(folder + "/memory.max", &most) &&
        read_number(folder + "/memory.current", &used)) {
      // The kernel drops such pages of files before it refuses.
      used -= std::min(used, number_of(folder + "/memory.stat", "inactive_file"));
      machine.total_bytes = std::min(machine.total_bytes, most);
      machine.available_bytes = std::min(machine.available_bytes, most - std::min(most, used));
    }
    if (place.empty() || place == "/") return machine;
    place.resize(place.rfind('/') == std::string::npos ? 0 : place.rfind('/'));
  }
}

HostMemory host_memory() {
  const std::string mount = cgroup_mount();
  return mount.empty() ? machine_memory()
                       : bounded_by_groups(machine_memory(), mount, own_cgroup());
}

}  // namespace tendril::daemon
