// SPDX-License-Identifier: Apache-2.0
// See minutes.h.
#include "observe/minutes.h"

#include <algorithm>

namespace tendril::observe {

std::vector<double> parts_of(const gpu::DeviceUse& use) {
  double told = 0;
  bool all_told = !use.processes.empty();
  for (const gpu::ProcessUse& process : use.processes) {
    all_told = all_told && process.busy_percent >= 0;
    told += std::max(0, process.busy_percent);
  }
  double busy = use.utilization_percent / 100;
  if (busy < 0 && !all_told) return {};
  // A GPU that is cut in instances says of its processes only.
  if (busy < 0) busy = std::min(1.0, told / 100);
  std::vector<double> parts;
  const auto count = static_cast<double>(use.processes.size());
  for (const gpu::ProcessUse& process : use.processes)
    parts.push_back(all_told && told > 0 ? busy * process.busy_percent / told : busy / count);
  return parts;
}

void Minutes::add_programs(const gpu::DeviceUse& use, const OwnerOf& owner_of, Gpu* into) {
  const std::vector<double> parts = parts_of(use);
  std::map<ProgramKey, Program> now;  // several processes may be one program
  for (size_t i = 0; i < use.processes.size(); ++i) {
    const Owner& owner = owner_of(use.processes[i].pid);
    ProgramKey key(owner.user, owner.container, owner.job);
    if (into->programs.size() >= kMostPrograms && into->programs.count(key) == 0)
      key = ProgramKey("", "", kOthers);
    Program& program = now[key];
    program.memory_bytes += use.processes[i].memory_bytes;
    program.busy_known = !parts.empty();
    if (program.busy_known) program.busy_sum += parts[i];
  }
  for (const auto& [key, look] : now) {
    Program& program = into->programs[key];
    ++program.looks;
    program.busy_sum += look.busy_sum;
    program.busy_known = program.busy_known || look.busy_known;
    program.memory_bytes = std::max(program.memory_bytes, look.memory_bytes);
  }
}

std::vector<GpuMinute> Minutes::add(int64_t at_s, const std::vector<gpu::DeviceUse>& uses,
                                    const OwnerOf& owner_of) {
  std::vector<GpuMinute> ended;
  const int64_t minute_s = at_s - at_s % kMinute_s;
  if (minute_s != at_s_) ended = rest();
  at_s_ = minute_s;
  for (const gpu::DeviceUse& use : uses) {
    Gpu& gpu = gpus_[use.uuid];
    gpu.name = use.name;
    gpu.memory_total_bytes = use.memory_total_bytes;
    gpu.memory_bytes = std::max(gpu.memory_bytes, use.memory_used_bytes);
    ++gpu.looks;
    if (use.utilization_percent >= 0) {
      gpu.busy_sum += use.utilization_percent / 100;
      ++gpu.busy_looks;
    }
    if (use.power_mw >= 0) {
      gpu.power_sum_w += use.power_mw / 1000.0;
      ++gpu.power_looks;
    }
    add_programs(use, owner_of, &gpu);
  }
  return ended;
}

std::vector<GpuMinute> Minutes::rest() {
  std::vector<GpuMinute> minutes;
  for (auto& [uuid, gpu] : gpus_) {
    GpuMinute minute;
    minute.at_s = at_s_;
    minute.gpu = uuid;
    minute.name = gpu.name;
    minute.memory_total_bytes = gpu.memory_total_bytes;
    minute.memory_bytes = gpu.memory_bytes;
    minute.looks = gpu.looks;
    if (gpu.busy_looks > 0) minute.busy = gpu.busy_sum / gpu.busy_looks;
    if (gpu.power_looks > 0) minute.power_w = gpu.power_sum_w / gpu.power_looks;
    for (const auto& [key, program] : gpu.programs) {
      ProgramMinute one;
      std::tie(one.owner.user, one.owner.container, one.owner.job) = key;
      one.looks = program.looks;
      if (program.busy_known) one.busy = program.busy_sum / gpu.looks;
      one.memory_bytes = program.memory_bytes;
      minute.programs.push_back(std::move(one));
    }
    minutes.push_back(std::move(minute));
  }
  gpus_.clear();
  return minutes;
}

}  // namespace tendril::observe
