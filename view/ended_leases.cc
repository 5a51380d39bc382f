// SPDX-License-Identifier: Apache-2.0
// See ended_leases.h.
#include "view/ended_leases.h"

#include <utility>

namespace tendril::view {

void EndedLeases::add(LeaseMetrics lease) {
  leases_.push_back({std::move(lease)});
  if (leases_.size() > kMost) leases_.pop_front();
}

std::vector<LeaseMetrics> EndedLeases::scraped(uint64_t now_ns) {
  std::vector<LeaseMetrics> shown;
  std::deque<Ended> left;
  for (Ended& ended : leases_) {
    if (ended.first_scrape_ns != 0 && now_ns - ended.first_scrape_ns > kShownNs) continue;
    if (ended.first_scrape_ns == 0) ended.first_scrape_ns = now_ns;
    shown.push_back(ended.lease);
    left.push_back(std::move(ended));
  }
  leases_ = std::move(left);
  return shown;
}

}  // namespace tendril::view
