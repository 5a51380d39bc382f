// SPDX-License-Identifier: Apache-2.0
// What the server counts and measures, as Prometheus text (exposition format 0.0.4). Pure: from a
// listing, as `tendril ls` gets it, and from counters that a listing does not have. Names are a
// contract with dashboards: add, never rename. The daemon serves it at /metrics (http/server.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "wire/control.h"

namespace tendril::view {

struct GpuCounters {
  uint64_t memory_usable_bytes = 0, memory_promised_bytes = 0;
  uint64_t turn_ns = 0, turns = 0;
};

struct Counters {
  uint64_t leases_granted = 0, leases_refused = 0, sessions_begun = 0;
  uint64_t worker_processes = 0;
  std::vector<GpuCounters> gpus;  // by index
};

std::string metrics_text(const wire::ListReply& list, const Counters& counters);

}  // namespace tendril::view
