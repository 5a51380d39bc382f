// SPDX-License-Identifier: Apache-2.0
// See use_history.h.
#include "lease/use_history.h"

#include <algorithm>

namespace tendril::lease {
namespace {

constexpr uint64_t kSpacingNs = 100'000'000;

}  // namespace

void UseHistory::record(uint64_t now_ns, uint64_t used_ns) {
  // The last point is always the latest one, so that use between two points was even, or nearly.
  if (points_.size() >= 2 && now_ns - points_[points_.size() - 2].time_ns < kSpacingNs)
    points_.pop_back();
  points_.push_back({now_ns, used_ns});
  while (points_.size() > 2 && points_[1].time_ns + kRecentNs <= now_ns) points_.pop_front();
}

uint32_t UseHistory::recent_millionths(uint64_t now_ns, uint64_t used_ns) const {
  if (points_.empty() || now_ns <= points_.front().time_ns) return 0;
  const uint64_t from_ns = std::max(points_.front().time_ns, now_ns - std::min(now_ns, kRecentNs));
  Point before = points_.front(), after = {now_ns, used_ns};
  for (const Point& point : points_) {
    if (point.time_ns <= from_ns) {
      before = point;
    } else {
      after = point;
      break;
    }
  }
  double then = static_cast<double>(before.used_ns);
  if (after.time_ns > before.time_ns) {
    // The sum shrinks when use turns out to have been another tenant's.
    then += (static_cast<double>(after.used_ns) - static_cast<double>(before.used_ns)) *
            static_cast<double>(from_ns - before.time_ns) /
            static_cast<double>(after.time_ns - before.time_ns);
  }
  const double part = (static_cast<double>(used_ns) - then) / static_cast<double>(now_ns - from_ns);
  return static_cast<uint32_t>(std::clamp(part, 0.0, 1.0) * 1e6 + 0.5);
}

}  // namespace tendril::lease
