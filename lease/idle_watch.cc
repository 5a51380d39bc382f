// SPDX-License-Identifier: Apache-2.0
// See idle_watch.h.
#include "lease/idle_watch.h"

namespace tendril::lease {

void IdleWatch::look(uint64_t now_ns, const LeaseTurns::Work& work, size_t sessions, bool paused) {
  known_ = work.known;
  was_attached_ |= sessions != 0;
  // A reply that was due at both looks: the program waits for its work. One that came and went in
  // between may be a question that is no work.
  const bool waits = work.waiting && seen_.waiting && work.replies == seen_.replies;
  const bool active =
      !work.known || paused || waits || work.pieces != seen_.pieces || sessions != sessions_;
  if (active)
    worked_ns_ = now_ns;
  else if (now_ns > looked_ns_)
    idle_total_ns_ += now_ns - looked_ns_;
  if (now_ns > looked_ns_) looked_ns_ = now_ns;
  seen_ = work;
  sessions_ = sessions;
}

}  // namespace tendril::lease
