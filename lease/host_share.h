// SPDX-License-Identifier: Apache-2.0
// What a lease may take of the server itself beside its GPUs: a part of memory and processors that
// follows from its slices. Arithmetic, without state; the daemon puts it into a cgroup, and workers
// count against it.
#pragma once

#include <cstdint>

namespace tendril::lease {

struct HostShare {
  uint64_t memory_bytes = 0;
  uint32_t threads = 0;
  uint32_t weight = 1;  // of processors and disks, from 1 to 10000, as the kernel takes it
};

// `part_millionths`: of all GPU memory of the server. Every lease gets what a driver and a small
// program need, so the sum over many small leases may be more than the machine has.
HostShare host_share(uint64_t part_millionths, uint64_t host_memory_bytes, uint32_t processes_max);

}  // namespace tendril::lease
