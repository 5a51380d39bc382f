// SPDX-License-Identifier: Apache-2.0
// See host_use.h.
#include "worker/core/host_use.h"

#include <unistd.h>

#include <algorithm>

namespace tendril::worker {

HostBounds host_bounds(const wire::Assignment& assignment, uint32_t machine_gpus,
                       uint64_t machine_bytes) {
  constexpr uint64_t kWhole = 1'000'000, kBytesLeast = uint64_t{512} << 20;
  // A graph of a large model has some 100,000 nodes, and an instance as many again. A driver takes
  // about 1 KiB for each.
  constexpr uint64_t kObjectsLeast = 256u << 10, kObjectsOfGpu = 2u << 20;
  uint64_t share = 0;  // of GPUs, in millionths
  for (uint32_t i = 0; i < assignment.slice_count && i < wire::kSlicesMax; ++i)
    share += std::min<uint64_t>(assignment.slices[i].share_millionths, kWhole);
  HostBounds bounds;
  bounds.objects = kObjectsLeast + kObjectsOfGpu * share / kWhole;
  const uint64_t gpus = std::max<uint64_t>(machine_gpus, 1);
  if (machine_bytes != 0)
    bounds.bytes = std::max(kBytesLeast, machine_bytes / 2 / gpus / kWhole * share);
  return bounds;
}

uint64_t machine_memory_bytes() {
  const long pages = sysconf(_SC_PHYS_PAGES), bytes = sysconf(_SC_PAGE_SIZE);
  return pages > 0 && bytes > 0 ? static_cast<uint64_t>(pages) * static_cast<uint64_t>(bytes) : 0;
}

}  // namespace tendril::worker
