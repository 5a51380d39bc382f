// SPDX-License-Identifier: Apache-2.0
// From looks at GPUs, one each second, to a row for each minute, GPU and program. Pure: the time is
// passed in. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "gpu/monitor.h"
#include "observe/owner.h"

namespace tendril::observe {

inline constexpr int64_t kMinute_s = 60;
// Of a GPU in one minute; more are one, whose job is kOthers.
inline constexpr size_t kMostPrograms = 256;
inline constexpr char kOthers[] = "others";

// What a program did on a GPU within a minute.
struct ProgramMinute {
  Owner owner;
  uint32_t looks = 0;         // that found it there
  double busy = -1;           // part of the GPU's time in all looks of the minute; -1: unknown
  uint64_t memory_bytes = 0;  // at its peak
};

struct GpuMinute {
  int64_t at_s = 0;  // where the minute begins
  std::string gpu, name;
  uint64_t memory_total_bytes = 0;
  uint32_t looks = 0;
  double busy = -1;           // a mean; -1: unknown
  uint64_t memory_bytes = 0;  // at its peak
  double power_w = -1;        // a mean
  std::vector<ProgramMinute> programs;
};

// Which part of a GPU's time each of its processes had. They sum up to what the GPU was busy. Where
// the driver does not say who worked, they get equal parts. Empty: it is not known.
std::vector<double> parts_of(const gpu::DeviceUse& use);

class Minutes {
 public:
  using OwnerOf = std::function<const Owner&(uint32_t pid)>;

  // A look at all GPUs at that time of a clock, which may also have been set back. Returns the
  // minutes that it ends.
  std::vector<GpuMinute> add(int64_t at_s, const std::vector<gpu::DeviceUse>& uses,
                             const OwnerOf& owner_of);
  // What there is of the minute that has not ended.
  std::vector<GpuMinute> rest();

 private:
  using ProgramKey = std::tuple<std::string, std::string, std::string>;
  struct Program {
    uint32_t looks = 0;
    double busy_sum = 0;
    bool busy_known = false;
    uint64_t memory_bytes = 0;
  };
  struct Gpu {
    std::string name;
    uint64_t memory_total_bytes = 0, memory_bytes = 0;
    uint32_t looks = 0, busy_looks = 0, power_looks = 0;
    double busy_sum = 0, power_sum_w = 0;
    std::map<ProgramKey, Program> programs;
  };

  static void add_programs(const gpu::DeviceUse& use, const OwnerOf& owner_of, Gpu* into);

  int64_t at_s_ = 0;
  std::map<std::string, Gpu> gpus_;
};

}  // namespace tendril::observe
