// SPDX-License-Identifier: Apache-2.0
// See gate.h.
#include "worker/core/gate.h"

#include <linux/futex.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

#include "base/clock.h"

namespace tendril::worker {
namespace {

using wire::kTurnWithoutEnd;

// Of estimated work. A quarter of the window, if that is less.
constexpr uint64_t kMarkEveryNs = 500'000;
// Bounds the damage if estimates are far too low.
constexpr uint32_t kMarkEveryPieces = 128;
// If no piece comes for this time, unmarked work is marked, so that its end can be seen.
constexpr uint64_t kQuietNs = 30'000;
constexpr uint64_t kLingerLeastNs = 50'000;
constexpr uint64_t kServeEveryNs = 20'000;
constexpr uint64_t kSleepNs = 1'000'000, kShortSleepNs = 50'000;
constexpr uint64_t kTurnIsNearNs = 300'000, kYieldAfterNs = 20'000;
constexpr uint64_t kAskAgainNs = 100'000'000;
constexpr size_t kIdleQueuesMax = 16;
constexpr uint32_t kStreamsAtOnce = 32;
// Between two pieces of this length the GPU is idle for only some 20 us.
constexpr uint64_t kLongInWindows = 4;
// Windows are this small if somebody of a higher class may come, who would wait for all unfinished
// work. Then the second piece passes when the first is nearly over.
constexpr uint64_t kSmallWindowNs = 400'000, kNearlyOverNs = 100'000;
// A measurement with at most this uncertainty counts as certain. The uncertainty comes from the
// times between looks.
constexpr uint64_t kUncertaintyNs = 20'000;
// Unfinished work may wait for the very piece that waits here, for example for a value that the
// piece writes. So after a time without progress one piece passes anyway: soon within a turn, late
// if it would run in somebody else's turn.
constexpr uint64_t kStalledNs = 20'000'000, kStalledPastTurnNs = 1'000'000'000;
constexpr uint64_t kNapMaxNs = 100'000;
constexpr uint64_t kLaunchMaxNs = 500'000;  // if the code is loaded already
// Unasked turns may still come for this time after the page says that no slice wants one too.
constexpr uint64_t kMayComeNs = 10'000'000;

wire::TurnPage nobody_divides;

uint64_t until_of(const wire::TurnPart& part) {
  return part.until_ns.load(std::memory_order_relaxed);
}

void nap(uint64_t ns) {
  // By default the kernel lets a thread sleep 50 us longer than asked.
  static const int finer = prctl(PR_SET_TIMERSLACK, 1000UL, 0, 0, 0);
  (void)finer;
  const timespec t{0, static_cast<long>(ns)};
  nanosleep(&t, nullptr);
}

}  // namespace

Gate::Gate(GateHost* host, Turns turns, uint32_t slots, StreamHandle legacy_stream)
    : host_(host),
      legacy_stream_(legacy_stream),
      page_(turns.page != nullptr ? turns.page : &nobody_divides),
      bell_(turns.bell),
      slices_(slots) {
  for (uint32_t slot = 0; slot < slots; ++slot) slices_[slot].part = &page_->slices[slot];
}

void Gate::has_context(uint32_t slot) {
  if (slot >= slices_.size()) return;
  const uint32_t us = slices_[slot].part->hardware_slice_us.load(std::memory_order_relaxed);
  slices_[slot].hardware_slice_us = us;
  host_->set_hardware_slice(slot, us);
}

bool Gate::pass_at_once(uint32_t slot, ContextHandle context, StreamHandle stream,
                        const WorkKind& kind) {
  if (slot >= slices_.size()) return false;
  Slice& slice = slices_[slot];
  const uint64_t piece_ns = estimates_.of(kind);
  if (piece_ns == WorkEstimates::kUnknown || slice.last_queue >= slice.queues.size()) return false;
  Queue& queue = slice.queues[slice.last_queue];
  if (queue.stream != stream || queue.context != context || queue.mark_next) return false;
  if (!may_pass(slice, queue, piece_ns)) return false;
  add_piece(slice, queue, kind, piece_ns);
  return true;
}

bool Gate::pass(uint32_t slot, ContextHandle context, StreamHandle stream, const WorkKind& kind) {
  if (slot >= slices_.size() || pass_at_once(slot, context, stream, kind)) return true;
  if (stream != legacy_stream_) leaves_legacy_stream();
  Slice& slice = slices_[slot];
  uint64_t piece_ns = estimates_.of(kind);
  bool unknown = piece_ns == WorkEstimates::kUnknown;
  if (unknown) piece_ns = slice.part->window_ns.load(std::memory_order_relaxed) / 2;
  size_t at = queue_of(slice, context, stream);
  // A piece of unknown duration gets a marker of its own. So its duration is known next time.
  if (slice.queues[at].mark_next || unknown) {
    mark(slice, slice.queues[at]);
    reap(slice, base::now_ns());
  }
  if (!may_pass(slice, slice.queues[at], piece_ns)) {
    if (!wait_to_pass(slice, context, stream, piece_ns)) return false;
    at = queue_of(slice, context, stream);
    const uint64_t learned_ns = estimates_.of(kind);  // while it waited
    unknown = learned_ns == WorkEstimates::kUnknown;
    if (!unknown) piece_ns = learned_ns;
  }
  if (open(slot)) return true;
  add_piece(slice, slice.queues[at], kind, piece_ns);
  if (unknown) slice.queues[at].mark_next = true;
  return true;
}

// A piece may pass if it fits into the window. Exceptions: each stream may always have one piece; a
// second one may pass too, unless the first is very long, because then the gap between them does
// not matter. Nothing passes if unfinished work will last until the turn's end.
bool Gate::may_pass(const Slice& slice, const Queue& queue, uint64_t piece_ns) const {
  if (!holds(slice) || slice.turn != slice.part->turn.load(std::memory_order_relaxed))
    return false;  // no turn, or a new one that was not seen yet
  const uint64_t until_ns = until_of(*slice.part);
  if (until_ns != kTurnWithoutEnd) {
    const uint64_t over_ns = base::now_ns() + slice.unfinished_ns;
    if (over_ns >= until_ns) return false;
    const bool may_be_late = slice.pieces == slice.pieces_before ||
                             slice.part->ends_exactly.load(std::memory_order_relaxed) == 0;
    if (!may_be_late && over_ns + piece_ns > until_ns) return false;
  }
  const uint64_t window_ns = slice.part->window_ns.load(std::memory_order_relaxed);
  if (slice.unfinished_ns + piece_ns <= window_ns || slice.batches == 0) return true;
  if (slice.batches != 1) return queue.idle() && slice.batches < kStreamsAtOnce;
  if (queue.idle()) return true;
  if (window_ns >= kSmallWindowNs) return slice.unfinished_ns <= kLongInWindows * window_ns;
  return slice.unfinished_ns <= base::now_ns() - slice.progress_ns + kNearlyOverNs;
}

bool Gate::wait_to_pass(Slice& slice, ContextHandle context, StreamHandle stream,
                        uint64_t piece_ns) {
  const auto slot = static_cast<uint32_t>(&slice - slices_.data());
  slice.waiting = true;
  mark_all(slice);
  uint64_t now_ns = base::now_ns(), served_ns = 0;
  slice.waiting_since_ns = now_ns;
  slice.waiting_piece_ns = piece_ns;
  piece_comes(slice, now_ns);
  bool alive = true;
  for (;; now_ns = base::now_ns()) {
    if (holds(slice))
      blocked_since_ns_ = 0;
    else if (blocked_since_ns_ == 0)
      blocked_since_ns_ = now_ns;
    for (Slice& each : slices_) look_at(each, true, now_ns);
    if (open(slot)) break;
    const bool held = holds(slice);
    if (held && may_pass(slice, slice.queues[queue_of(slice, context, stream)], piece_ns)) break;
    if (held &&
        stalls(slice, now_ns, now_ns < until_of(*slice.part) ? kStalledNs : kStalledPastTurnNs))
      break;
    if (!held || now_ns - served_ns >= kServeEveryNs) {
      alive = host_->serve();
      served_ns = now_ns;
      if (!alive) break;
    }
    if (held) {
      rest();
    } else {
      look_outside(slice, now_ns);
      if (in_program(slice) && !stalls(slice, now_ns, kStalledNs))
        nap(kShortSleepNs);  // it cannot use a turn yet
      else
        sleep_until_turn(slice, now_ns);
    }
  }
  slice.waiting = false;
  blocked_since_ns_ = 0;
  find_pace();
  return alive;
}

// True: all its unfinished work is behind host functions that the program still runs, on streams
// that cannot continue.
bool Gate::in_program(const Slice& slice) {
  const auto may_run = [](const Queue& queue) { return !queue.idle() && !queue.in_program(); };
  return slice.batches != 0 && std::none_of(slice.queues.begin(), slice.queues.end(), may_run);
}

bool Gate::stalls(const Slice& slice, uint64_t now_ns, uint64_t most_ns) {
  const uint64_t since_ns = std::max(slice.waiting_since_ns, slice.progress_ns);
  return slice.waiting && now_ns > since_ns + most_ns + 4 * slice.waiting_piece_ns;
}

// Work that was behind host functions when the last turn was given up may run without a turn. The
// next turn is charged for it. The charge is the sum of the estimates, but at most the time in
// which the work can have run. The sum alone is too high if streams run at the same time.
void Gate::look_outside(Slice& slice, uint64_t now_ns) {
  if (slice.batches == 0 && slice.outside_estimated_ns == 0) return;
  reap(slice, now_ns);
  if (slice.batches != 0 && !in_program(slice) && !holds(slice)) return;
  slice.outside_ns += std::min(slice.outside_estimated_ns, now_ns - slice.outside_since_ns);
  slice.outside_estimated_ns = 0;
  slice.outside_since_ns = now_ns;
}

void Gate::sleep_until_turn(Slice& slice, uint64_t now_ns) {
  if (slice.asked_ns == 0 || now_ns - slice.asked_ns > kAskAgainNs) {
    slice.part->wants.store(wire::kWantsTurn, std::memory_order_release);
    slice.asked_ns = now_ns;
    ring();
  }
  find_pace();  // of the other slices
  const bool looks = host_->busy() || pace_ == Pace::kAtOnce || slice.batches != 0;
  const uint64_t most_ns = looks ? kShortSleepNs : kSleepNs;
  const timespec most{0, static_cast<long>(most_ns)};
  // tendrild wakes this word for a new turn, for any other change, and when the turn before this
  // slice's should be over. In the last case the turn comes within moments: the loop below spins
  // for it, because waking would take too long.
  const bool woken =
      syscall(SYS_futex, &slice.part->turn, FUTEX_WAIT, slice.given_up, &most, nullptr, 0) == 0;
  uint64_t after_ns = base::now_ns();
  for (const uint64_t until_ns = after_ns + kTurnIsNearNs;
       woken && !holds(slice) && after_ns < until_ns;) {
    if (after_ns + kTurnIsNearNs - until_ns > kYieldAfterNs) sched_yield();
    base::cpu_pause();
    after_ns = base::now_ns();
  }
  slice.queued_ns += after_ns - now_ns;
}

size_t Gate::queue_of(Slice& slice, ContextHandle context, StreamHandle stream) {
  const auto is = [&](const Queue& queue) {
    return queue.stream == stream && queue.context == context;
  };
  if (slice.last_queue < slice.queues.size() && is(slice.queues[slice.last_queue]))
    return slice.last_queue;
  size_t at = 0;
  while (at < slice.queues.size() && !is(slice.queues[at])) ++at;
  if (at == slice.queues.size()) {
    Queue& queue = slice.queues.emplace_back();
    queue.context = context;
    queue.owner = host_->owner(context, stream);
    queue.stream = stream;
  }
  slice.last_queue = at;
  return at;
}

// Drivers load code at its first launch, which takes milliseconds. The GPU does nothing for this
// tenant in that time, so the tenant is not charged for it.
void Gate::launched() {
  Slice& slice = *launching_;
  launching_ = nullptr;
  const uint64_t now_ns = base::now_ns(), took_ns = now_ns - slice.busy_since_ns;
  if (slice.batches != 1 || took_ns < kLaunchMaxNs) return;
  slice.stalled_ns += took_ns;
  slice.part->stalled_ns.store(slice.stalled_ns, std::memory_order_relaxed);
  slice.progress_ns = now_ns;
  for (Queue& queue : slice.queues) {
    if (queue.work.pieces() != 0) queue.begun_ns = now_ns;
  }
}

// The turn went on with nothing on the GPU, because the driver kept this thread: it loaded a module
// or allocated. Otherwise the turn would have been given up. The tenant is not charged for that
// time.
void Gate::excuse_absence(Slice& slice, uint64_t now_ns) {
  const uint64_t most_ns = slice.part->linger_ns.load(std::memory_order_relaxed);
  const uint64_t idle_ns = now_ns - slice.idle_since_ns;
  if (slice.batches != 0 || idle_ns < most_ns + kLaunchMaxNs) return;
  slice.stalled_ns += idle_ns - most_ns;
  slice.idle_since_ns = now_ns;
  slice.part->stalled_ns.store(slice.stalled_ns, std::memory_order_relaxed);
}

void Gate::add_piece(Slice& slice, Queue& queue, const WorkKind& kind, uint64_t piece_ns) {
  if (launching_ != nullptr) launched();
  ++slice.pieces;
  if (queue.work.pieces() == 0) {
    if (queue.behind_program) mark_program(queue);
    queue.begun_ns = base::now_ns();
    queue.preempted_ns = preempted_ns(slice);
    piece_comes(slice, queue.begun_ns);
    excuse_absence(slice, queue.begun_ns);
    if (slice.batches++ == 0) {
      slice.progress_ns = queue.begun_ns;
      begin_busy(slice, queue.begun_ns);
      launching_ = &slice;
    }
  }
  legacy_unmarked_ |= queue.stream == legacy_stream_;
  queue.work.add(kind);
  queue.estimated_ns += piece_ns;
  slice.unfinished_ns += piece_ns;
  const uint64_t window_ns = slice.part->window_ns.load(std::memory_order_relaxed);
  queue.mark_next = queue.estimated_ns >= std::min(kMarkEveryNs, window_ns / 4) ||
                    queue.work.pieces() >= kMarkEveryPieces;
}

void Gate::mark(Slice& slice, Queue& queue) {
  if (launching_ != nullptr) launched();
  if (queue.work.pieces() == 0) return;
  const EventHandle event = host_->mark(queue.owner, queue.stream);
  if (event != nullptr) {
    queue.markers.push_back({event, queue.work, queue.begun_ns, queue.estimated_ns, queue.begun_ns,
                             queue.preempted_ns, !queue.behind_program, false});
  } else {
    batch_ends(slice, queue.estimated_ns, base::now_ns());
  }
  queue.work.clear();
  queue.estimated_ns = 0;
  queue.mark_next = queue.behind_program = false;
}

void Gate::mark_all(Slice& slice) {
  for (Queue& queue : slice.queues) mark(slice, queue);
}

void Gate::mark_legacy_streams() {
  legacy_unmarked_ = false;
  for (Slice& slice : slices_) {
    for (Queue& queue : slice.queues) {
      if (queue.stream == legacy_stream_) mark(slice, queue);
    }
  }
}

// Without this marker, the work behind a host function would seem to take as long as the function.
void Gate::mark_program(Queue& queue) {
  const EventHandle event = host_->mark(queue.owner, queue.stream);
  if (event != nullptr)
    queue.markers.push_back({event, {}, queue.begun_ns, 0, queue.begun_ns, 0, false, true});
}

void Gate::mark_everything() {
  for (Slice& slice : slices_) mark_all(slice);
}

void Gate::stream_ends(StreamHandle stream) {
  for (Slice& slice : slices_) {
    for (Queue& queue : slice.queues) {
      if (queue.stream == stream) mark(slice, queue);
    }
  }
}

void Gate::host_function(uint32_t slot, ContextHandle context, StreamHandle stream) {
  if (slot >= slices_.size() || open(slot)) return;
  Slice& slice = slices_[slot];
  Queue& queue = slice.queues[queue_of(slice, context, stream)];
  mark(slice, queue);
  queue.behind_program = true;
}

void Gate::forget_context(ContextHandle context) {
  const uint64_t now_ns = base::now_ns();
  for (Slice& slice : slices_) {
    for (Queue& queue : slice.queues) {
      if (queue.owner != context) continue;
      for (const Marker& marker : queue.markers) {
        if (!marker.of_program) batch_ends(slice, marker.estimated_ns, now_ns);
      }
      if (queue.work.pieces() != 0) batch_ends(slice, queue.estimated_ns, now_ns);
    }
    const auto gone = [context](const Queue& queue) { return queue.owner == context; };
    slice.queues.erase(std::remove_if(slice.queues.begin(), slice.queues.end(), gone),
                       slice.queues.end());
  }
}

void Gate::begin_busy(Slice& slice, uint64_t now_ns) {
  slice.busy_since_ns = now_ns;
  slice.preempted_ns = preempted_ns(slice);
}

// The time of others is taken off, but never more than the whole time, whatever the page says.
uint64_t Gate::busy_for_ns(const Slice& slice, uint64_t now_ns) {
  const uint64_t all_ns = now_ns - slice.busy_since_ns;
  return all_ns - std::min(all_ns, preempted_ns(slice) - slice.preempted_ns);
}

void Gate::batch_ends(Slice& slice, uint64_t estimated_ns, uint64_t now_ns) {
  slice.unfinished_ns -= estimated_ns;
  slice.progress_ns = now_ns;
  const bool outside = slice.turn == slice.given_up;
  if (outside) slice.outside_estimated_ns += estimated_ns;
  if (--slice.batches != 0) return;
  slice.busy_ns += outside ? 0 : busy_for_ns(slice, now_ns);
  slice.idle_since_ns = now_ns;
  slice.done_ns = slice.waiting ? 0 : now_ns;
}

void Gate::piece_comes(Slice& slice, uint64_t now_ns) {
  if (slice.done_ns == 0) return;
  const uint64_t most_ns = 2 * slice.part->linger_ns.load(std::memory_order_relaxed);
  const uint64_t gap_ns = std::min(now_ns - slice.done_ns, most_ns);
  slice.usual_gap_ns = slice.usual_gap_ns == 0 ? gap_ns : (7 * slice.usual_gap_ns + gap_ns) / 8;
  slice.done_ns = 0;
  slice.awake = true;
}

// How long to keep the turn with nothing to do. Others may want the turn, so it is kept only if the
// next piece is likely to come in that time. A program that waited for the turn may sleep. The end
// of its first piece must wake it, so the second piece is late this once.
uint64_t Gate::linger_ns(const Slice& slice) {
  const uint64_t most_ns = slice.part->linger_ns.load(std::memory_order_relaxed);
  if (until_of(*slice.part) == kTurnWithoutEnd || slice.usual_gap_ns == 0) return most_ns;
  if (slice.usual_gap_ns >= most_ns) return kLingerLeastNs;
  return slice.awake ? std::min(most_ns, 3 * slice.usual_gap_ns + kLingerLeastNs) : most_ns;
}

void Gate::reap(Slice& slice, uint64_t now_ns) {
  for (Queue& queue : slice.queues) {
    while (!queue.markers.empty()) {
      Marker& next = queue.markers.front();
      if (host_->reached(next.event)) {
        reached(slice, queue, now_ns);
        continue;
      }
      next.undone_at_ns = now_ns;
      // It takes longer than estimated, and so may the work behind it. So the window fills.
      const uint64_t runs_ns = now_ns - std::max(next.begun_ns, queue.done_before_ns);
      if (next.timed && runs_ns > next.estimated_ns) {
        slice.unfinished_ns += runs_ns - next.estimated_ns;
        next.estimated_ns = runs_ns;
      }
      break;
    }
  }
}

// Handles the first marker of the queue. Two things are known about its time. It was reached
// between the last look that did not find it and now. Its work began only after the earlier work of
// the stream had ended.
void Gate::reached(Slice& slice, Queue& queue, uint64_t now_ns) {
  const Marker marker = queue.markers.front();
  queue.markers.pop_front();
  const uint64_t after_ns = std::max(marker.undone_at_ns, queue.done_after_ns);
  const uint64_t first_begin_ns = std::max(marker.begun_ns, queue.done_after_ns);
  const uint64_t last_begin_ns = std::max(marker.begun_ns, queue.done_before_ns);
  const uint64_t most_ns = now_ns - first_begin_ns;
  const uint64_t uncertainty_ns = (now_ns - after_ns) + (last_begin_ns - first_begin_ns);
  if (marker.timed) {
    // If somebody else used the GPU in between, the time includes the hardware's switches. Such a
    // measurement is uncertain, but better than none.
    const uint64_t others_ns = std::min(most_ns, preempted_ns(slice) - marker.preempted_ns);
    const bool certain = others_ns == 0 && uncertainty_ns <= std::max(kUncertaintyNs, most_ns / 8);
    estimates_.learn(marker.work, most_ns - others_ns, certain);
  }
  queue.done_after_ns = after_ns;
  queue.done_before_ns = now_ns;
  host_->give_back(queue.owner, marker.event);
  slice.progress_ns = now_ns;
  slice.program_since_ns = 0;
  if (!marker.of_program) batch_ends(slice, marker.estimated_ns, now_ns);
}

void Gate::look(bool quiet) {
  const uint64_t now_ns = base::now_ns();
  calls_since_look_ = 0;
  for (Slice& slice : slices_) look_at(slice, quiet, now_ns);
  find_pace();
}

void Gate::before_a_long_call() {
  if (pace_ == Pace::kNever) return;
  look(true);
  for (Slice& slice : slices_) {
    const bool seen = slice.turn == slice.part->turn.load(std::memory_order_relaxed);
    if (holds(slice) && seen && slice.batches == 0) give_up(slice, base::now_ns());
  }
  find_pace();
}

void Gate::look_at(Slice& slice, bool quiet, uint64_t now_ns) {
  const uint32_t turn = slice.part->turn.load(std::memory_order_acquire);
  if (turn == slice.given_up) return;
  if (turn != slice.turn) {
    look_outside(slice, now_ns);  // work that is over now was over before the turn
    begin_busy(slice, now_ns);
    slice.turn = turn;
    slice.asked_ns = 0;
    slice.idle_since_ns = now_ns;
    slice.pieces_before = slice.pieces;
    slice.awake = false;
  }
  take_hardware_slice(slice);
  reap(slice, now_ns);
  if (slice.pieces != slice.pieces_seen) {
    slice.pieces_seen = slice.pieces;
    slice.quiet_since_ns = now_ns;
  }
  const bool free = open(static_cast<uint32_t>(&slice - slices_.data()));
  const bool over = free || now_ns >= until_of(*slice.part);
  if (slice.batches != 0 && (over || quiet || now_ns - slice.quiet_since_ns >= kQuietNs)) {
    mark_all(slice);
    reap(slice, now_ns);
  }
  tell(slice, now_ns);
  if (in_program(slice)) {
    if (slice.program_since_ns == 0) slice.program_since_ns = now_ns;
    const bool long_since =
        now_ns - slice.program_since_ns >= slice.part->linger_ns.load(std::memory_order_relaxed);
    const bool needless = over || (until_of(*slice.part) != kTurnWithoutEnd && long_since);
    if (needless && !stalls(slice, now_ns, over ? kStalledPastTurnNs : kStalledNs))
      give_up(slice, now_ns);
  }
  if (slice.batches != 0) return;
  // The next piece for this slice may be right behind the piece that waits.
  if (blocked_since_ns_ != 0 &&
      now_ns - blocked_since_ns_ < slice.part->await_ns.load(std::memory_order_relaxed))
    slice.idle_since_ns = now_ns;
  if (over || (!slice.waiting && now_ns - slice.idle_since_ns >= linger_ns(slice)))
    give_up(slice, now_ns);
}

// The slice may change during the session. Only the page tells it; nobody calls.
void Gate::take_hardware_slice(Slice& slice) {
  const uint32_t us = slice.part->hardware_slice_us.load(std::memory_order_relaxed);
  if (us == slice.hardware_slice_us) return;
  slice.hardware_slice_us = us;
  host_->set_hardware_slice(static_cast<uint32_t>(&slice - slices_.data()), us);
}

void Gate::tell(Slice& slice, uint64_t now_ns) {
  const uint64_t running_ns = slice.batches != 0 ? busy_for_ns(slice, now_ns) : 0;
  slice.part->busy_ns.store(slice.busy_ns + running_ns, std::memory_order_relaxed);
  slice.part->units.store(slice.pieces, std::memory_order_relaxed);
  slice.part->queued_ns.store(slice.queued_ns, std::memory_order_relaxed);
}

// If a piece waits for another slice, more work for this slice is likely behind it. Exception: this
// turn has passed and nothing came.
uint32_t Gate::wants_after(const Slice& slice) const {
  if (slice.waiting && in_program(slice))
    return wire::kWantsNothing;  // until its work can continue
  if (slice.waiting) return wire::kWantsTurn;
  const bool waits =
      std::any_of(slices_.begin(), slices_.end(), [](const Slice& each) { return each.waiting; });
  const bool came = slice.pieces != slice.pieces_before || blocked_since_ns_ != 0;
  return waits && came ? wire::kWantsTurnToo : wire::kWantsNothing;
}

// Nothing waits and no turn is held. So nobody would notice an unasked turn.
void Gate::forget_other_wants() {
  for (const Slice& slice : slices_) {
    if (slice.waiting || holds(slice)) return;
  }
  for (Slice& slice : slices_) {
    if (slice.part->wants.load(std::memory_order_relaxed) != wire::kWantsTurnToo) continue;
    slice.part->wants.store(wire::kWantsNothing, std::memory_order_release);
    may_come_until_ns_ = base::now_ns() + kMayComeNs;
  }
}

void Gate::give_up(Slice& slice, uint64_t now_ns) {
  excuse_absence(slice, now_ns);
  if (slice.batches != 0) slice.busy_ns += busy_for_ns(slice, now_ns);
  slice.outside_since_ns = now_ns;
  slice.part->outside_ns.store(slice.outside_ns, std::memory_order_relaxed);
  const uint32_t wants = wants_after(slice);
  slice.part->wants.store(wants, std::memory_order_relaxed);
  slice.asked_ns = wants == wire::kWantsTurn ? now_ns : 0;
  slice.given_up = slice.turn;
  forget_other_wants();
  slice.part->drained.store(slice.turn, std::memory_order_release);
  ring();
  if (slice.queues.size() > kIdleQueuesMax && slice.batches == 0) slice.queues.clear();
}

void Gate::ring() {
  const uint64_t one = 1;
  if (write(bell_, &one, sizeof one) < 0)
    return;  // full: it rings already; closed: tendrild is gone, and this worker soon will be
}

void Gate::find_pace() {
  pace_ = Pace::kNever;
  if (may_come_until_ns_ != 0) {
    if (base::now_ns() < may_come_until_ns_)
      pace_ = Pace::kSometimes;
    else
      may_come_until_ns_ = 0;
  }
  for (Slice& slice : slices_) {
    if (!holds(slice)) continue;
    const bool endless = until_of(*slice.part) == kTurnWithoutEnd;
    pace_ = std::max(pace_, endless ? Pace::kSometimes : Pace::kAtOnce);
  }
}

// Short if the end is near or was expected just now; longer if the end is farther away.
void Gate::rest() {
  if (std::none_of(slices_.begin(), slices_.end(), holds))
    return;  // the last turn was just given up: the loop waits for a call
  const uint64_t now_ns = base::now_ns();
  uint64_t nap_ns = kNapMaxNs;
  for (const Slice& slice : slices_) {
    if (!holds(slice)) continue;
    // If nothing is unfinished, the next call is near.
    const uint64_t runs_ns = slice.batches != 0 ? now_ns - slice.progress_ns : 0;
    const uint64_t left_ns = slice.unfinished_ns > runs_ns ? slice.unfinished_ns - runs_ns : 0;
    nap_ns = std::min(nap_ns, std::max(left_ns / 4, runs_ns / 256));
  }
  if (nap_ns >= kShortSleepNs)
    nap(nap_ns);
  else
    sched_yield();
}

}  // namespace tendril::worker
