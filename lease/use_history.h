// SPDX-License-Identifier: Apache-2.0
// What a tenant has used of a GPU over the last ten seconds. It keeps a few points of a sum that
// only grows. Pure; for lease/lease_turns.h, which records a point whenever a turn begins, ends or
// moves.
#pragma once

#include <cstdint>
#include <deque>

namespace tendril::lease {

inline constexpr uint64_t kRecentNs = 10'000'000'000;

class UseHistory {
 public:
  // Times must not run backwards.
  void record(uint64_t now_ns, uint64_t used_ns);
  // The part of the last ten seconds that was used, in millionths. For a younger tenant, the part
  // of its life.
  uint32_t recent_millionths(uint64_t now_ns, uint64_t used_ns) const;

 private:
  struct Point {
    uint64_t time_ns, used_ns;
  };
  std::deque<Point> points_;  // oldest first; all but the last at least kSpacingNs apart
};

}  // namespace tendril::lease
