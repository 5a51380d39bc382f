// SPDX-License-Identifier: Apache-2.0
// How a GPU's time is divided. There is one page per session. Only tendrild (lease/lease_turns.h)
// and that session's worker (worker/core/gate.h) share it, so no tenant can touch another's.
// tendrild says when a worker may submit work. The worker says whether it wants to, and when its
// work is done. docs/decisions/0012-turns.md gives the reasons.
//
// A turn, for one slice of a session:
//   1. The worker has work and no turn. It stores wants = 1, rings tendrild's bell (an eventfd) and
//      sleeps on `turn` (a futex).
//   2. tendrild stores until_ns and window_ns, then the turn's number, and wakes the futex.
//   3. The worker submits while the clock is before until_ns. At most about window_ns of its work
//      may be unfinished. tendrild may move until_ns either way while the turn lasts: earlier takes
//      the turn back, later lengthens it.
//   4. Past until_ns, or after linger_ns with nothing to do, the worker waits until all its
//      submitted work is done. It does not wait for work that a host function of the program holds
//      up. Then it stores busy_ns, wants and, last, drained = the turn's number, and rings.
//   5. tendrild charges the turn and gives the next.
//
// A worker that does not drain in time loses only its exclusiveness. Others get turns beside it,
// the hardware divides what overlaps, and the overrun is charged.
//
// A worker of a higher class gets its turn at once. Afterwards tendrild lengthens the turn that it
// ended, or lets that turn's work end.
#pragma once

#include <atomic>
#include <cstdint>

#include "wire/assignment.h"
#include "wire/session_counts.h"

namespace tendril::wire {

enum class TurnRegime : uint32_t {
  kFree = 0,   // this lease has the whole GPU: no gate, no markers
  kTurns = 1,  // work is submitted in turns, and measured
};

inline constexpr uint64_t kTurnWithoutEnd = UINT64_MAX;  // until_ns while nobody else wants the GPU

// `wants`: nothing; a turn, for work to submit or unfinished work; a turn as soon as the worker has
// the turn on another GPU for which its calls wait.
inline constexpr uint32_t kWantsNothing = 0, kWantsTurn = 1, kWantsTurnToo = 2;

// All times are CLOCK_MONOTONIC (base::now_ns), which both ends share.
struct alignas(64) TurnPart {
  // Written by tendrild.
  std::atomic<TurnRegime> regime;
  std::atomic<uint32_t>
      turn;  // the number of the turn that is held or was held last; 0: none yet; a futex
  std::atomic<uint64_t> until_ns;   // submit nothing after it
  std::atomic<uint64_t> window_ns;  // work that may be unfinished at a time
  std::atomic<uint64_t> linger_ns;  // how long an idle holder keeps its turn
  // it is not idle for this long while a piece waits for another GPU
  std::atomic<uint64_t> await_ns;
  std::atomic<uint32_t> share_millionths;  // may change while the session lives (tendril lease set)
  std::atomic<uint64_t>
      preempted_ns;  // how much of its turns higher classes had so far; known when they are over
  std::atomic<uint32_t>
      hardware_slice_us;  // for the worker's own channel groups; 0: leave the driver's value
  // 1: nothing that is likely to run beyond until_ns. Exception: a turn's first piece
  std::atomic<uint32_t> ends_exactly;
  // Written by the worker.
  alignas(64) std::atomic<uint32_t> wants;  // kWantsNothing, kWantsTurn or kWantsTurnToo
  std::atomic<uint32_t>
      drained;  // the last turn that the worker has given up and whose work is done
  std::atomic<uint64_t> busy_ns;    // GPU time used by this slice of the session so far
  std::atomic<uint64_t> units;      // launches, graphs and other pieces of work submitted so far
  std::atomic<uint64_t> queued_ns;  // time the worker has waited for turns so far
  std::atomic<uint64_t>
      stalled_ns;  // time in which the driver prepared a launch and the GPU had nothing to do
  // of work behind host functions that ran while no turn was held
  std::atomic<uint64_t> outside_ns;
};

struct TurnPage {
  TurnPart slices[kSlicesMax];
  SessionCounts counts;  // by the worker
};

}  // namespace tendril::wire
