// SPDX-License-Identifier: Apache-2.0
// libFuzzer target: the text of /proc/PID/cgroup. Whoever may name groups of processes writes it.
#include "observe/owner.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  using namespace tendril::observe;  // NOLINT
  const Owner owner =
      owner_in_cgroups(std::string_view(reinterpret_cast<const char*>(data), bytes));
  if (owner.container.size() > kMostNameBytes || owner.job.size() > kMostNameBytes + 6)
    __builtin_trap();
  if (!owner.user.empty()) __builtin_trap();
  if (!owner.job.empty() && owner.job.rfind("slurm-", 0) != 0) __builtin_trap();
  return 0;
}
