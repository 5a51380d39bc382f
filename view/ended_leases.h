// SPDX-License-Identifier: Apache-2.0
// Leases that ended and whose last figures nobody has scraped yet. Without them what a short lease
// used would never reach Prometheus. Each is shown until a while after its first scrape, so that
// two Prometheus servers see it. Pure: time is passed in.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "view/metrics.h"

namespace tendril::view {

class EndedLeases {
 public:
  void add(LeaseMetrics lease);
  // What a scrape shows now.
  std::vector<LeaseMetrics> scraped(uint64_t now_ns);

  static constexpr size_t kMost = 4096;  // the oldest goes if nobody scrapes
  static constexpr uint64_t kShownNs = 15'000'000'000;

 private:
  struct Ended {
    LeaseMetrics lease;
    uint64_t first_scrape_ns = 0;  // 0: nobody saw it
  };
  std::deque<Ended> leases_;
};

}  // namespace tendril::view
