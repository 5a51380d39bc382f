// SPDX-License-Identifier: Apache-2.0
// The measurements of tendril-bench. Each adds its figures to the report.
#pragma once

#include "bench/report.h"

namespace tendril::bench {

struct Extent {
  size_t copy_bytes_max = size_t{1} << 30;
  int rounds = 200;
};

// Launches, waits, events, allocations, graphs.
void measure_calls(Device& device, const Extent& extent, Report& report);
// Copies between host and GPU, by kind of memory, direction and size. Launches beside a large copy.
void measure_copies(Device& device, const Extent& extent, Report& report);
// A launch and small copies, each with its wait. Shows what a wait costs when the GPU does next to
// nothing. Checks no result.
void measure_waits(Device& device, const Extent& extent, Report& report);
// Bandwidth and latency between every pair of the host and the GPUs of this process. `groups`: how
// many GPUs belong together, in their order; then only pairs of two groups are measured.
void measure_matrix(Device& first, const Extent& extent, const std::vector<int>& groups,
                    Report& report);
// The speed of bare sockets or bare shared memory on this machine. `transport` is tcp or shm.
void measure_bare(const std::string& transport, size_t channels, Report& report);

}  // namespace tendril::bench
