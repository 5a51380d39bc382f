// SPDX-License-Identifier: Apache-2.0
// What a pool counts, as Prometheus text (exposition format 0.0.4), from the figures that its
// scheduler gives (pool/scheduler's README has the keys). Pure. Names are a contract with
// dashboards: add, never rename. scheduler/ serves it at /metrics.
#pragma once

#include <cstdint>
#include <string>

namespace tendril::view {

// What every scheduler knows of itself, also one that stands by.
struct PoolProcess {
  std::string pool, scheduler, version;
  bool leads = false;
  uint64_t term = 0;
  uint64_t store_failures = 0;
};

// `figures`: a JSON object; empty: this process does not schedule.
std::string pool_metrics_text(const PoolProcess& process, const std::string& figures);

}  // namespace tendril::view
