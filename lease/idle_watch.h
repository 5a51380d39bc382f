// SPDX-License-Identifier: Apache-2.0
// How long a lease has done nothing, from counts of its work that are read every second or so. Time
// that is not known to be idle is not: idle time is never overstated, and understated by at most
// one reading. Pure: the daemon passes counts and time.
#pragma once

#include <cstdint>

#include "lease/lease_turns.h"

namespace tendril::lease {

class IdleWatch {
 public:
  // Of a lease that begins now, without any session.
  explicit IdleWatch(uint64_t now_ns) : worked_ns_(now_ns), looked_ns_(now_ns) {}

  // `sessions`: how many are on the lease. `paused`: it may not work, so it is not idle.
  void look(uint64_t now_ns, const LeaseTurns::Work& work, size_t sessions, bool paused);

  // It begins to work now. No look may have seen that yet.
  void begins(uint64_t now_ns) { worked_ns_ = now_ns; }

  bool known() const { return known_; }
  uint64_t worked_ns() const { return worked_ns_; }  // when it was last active
  uint64_t idle_ns(uint64_t now_ns) const { return now_ns > worked_ns_ ? now_ns - worked_ns_ : 0; }
  uint64_t idle_total_ns() const { return idle_total_ns_; }
  bool was_attached() const { return was_attached_; }

 private:
  uint64_t worked_ns_, looked_ns_;
  uint64_t idle_total_ns_ = 0;
  LeaseTurns::Work seen_;
  size_t sessions_ = 0;
  bool known_ = true, was_attached_ = false;
};

}  // namespace tendril::lease
