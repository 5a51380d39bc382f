// SPDX-License-Identifier: Apache-2.0
// The part of clock.h that needs the system.
#include "base/clock.h"

#include <sched.h>

#include <atomic>

#include "base/text.h"

namespace tendril::base {

unsigned usable_cpus() {
  static std::atomic<unsigned> known{0};
  unsigned cpus = known.load(std::memory_order_relaxed);
  if (cpus != 0) return cpus;
  cpu_set_t set;
  CPU_ZERO(&set);
  // Fails on machines with more than 1024 processors. Then "many" is the right answer anyway.
  cpus = sched_getaffinity(0, sizeof set, &set) == 0 ? unsigned(CPU_COUNT(&set)) : 64;
  if (cpus == 0) cpus = 1;
  known.store(cpus, std::memory_order_relaxed);
  return cpus;
}

uint32_t wait_spin_us() {
  if (usable_cpus() == 1) return 0;
  return env_u32("TENDRIL_WAIT_SPIN_US", has_many_cpus() ? 50'000 : 1'000);
}

}  // namespace tendril::base
