// SPDX-License-Identifier: Apache-2.0
// What the server counts and measures, as Prometheus text (exposition format 0.0.4). Pure: from a
// listing, as `tendril ls` gets it, and from counters that a listing does not have. Names are a
// contract with dashboards: add, never rename. The daemon serves it at /metrics (http/server.h).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "wire/control.h"

namespace tendril::view {

struct GpuCounters {
  uint64_t memory_usable_bytes = 0, memory_promised_bytes = 0;
  uint64_t turn_ns = 0, turns = 0;
};

// A lease that ended, as it was then. It is shown for one scrape more (view/ended_leases.h).
struct LeaseMetrics {
  wire::LeaseRecord lease;
  double idle_s = -1;  // since it last did anything; negative: not known
};

struct Counters {
  uint64_t leases_granted = 0, leases_refused = 0, sessions_begun = 0;
  uint64_t worker_processes = 0;
  // Leases that left their GPUs and came back; host memory for parked ones, used and in all; time
  // from a wish to wake to the memory being back.
  uint64_t parks = 0, parks_refused = 0, wakes = 0;
  uint64_t parked_bytes = 0, park_budget_bytes = 0, parked_moved_bytes = 0, wake_waited_ns = 0;
  std::vector<GpuCounters> gpus;      // by index
  std::map<uint64_t, double> idle_s;  // by lease; of those for which it is known
  std::vector<LeaseMetrics> ended;
};

// `dcgm`: also the series that NVIDIA's exporter has, for dashboards that are made for it.
std::string metrics_text(const wire::ListReply& list, const Counters& counters, bool dcgm = false);

}  // namespace tendril::view
