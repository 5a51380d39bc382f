// SPDX-License-Identifier: Apache-2.0
// The gate in front of a GPU whose time is divided. Work for its processors passes only in the
// session's turns, and only as much as can end soon after the turn. tendrild gives the turns
// (wire/turn_page.h); docs/decisions/0012-turns.md has the reasons. The gate learns from markers
// which work is done. A marker is an event behind about half a millisecond of work. So the gate
// does not call the driver for every small launch. A session that has the whole GPU has no gate:
// one relaxed load tells.
//
// Executor thread only. The executor waits here and holds no lock. Meanwhile it serves what must
// not wait (GateHost::serve).
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "worker/core/turns.h"
#include "worker/core/work_estimates.h"

namespace tendril::worker {

// Objects of the API's driver. The gate compares them and hands them back to its host.
using ContextHandle = struct OpaqueContext*;
using StreamHandle = struct OpaqueStream*;
using EventHandle = struct OpaqueEvent*;

// What the gate needs from the executor. Tests put a simulated GPU here.
class GateHost {
 public:
  virtual ~GateHost() = default;
  // The context that `stream` belongs to. `current` is the context of the call.
  virtual ContextHandle owner(ContextHandle current, StreamHandle stream) = 0;
  // Records an event behind all work of `stream` so far. Null: it cannot, because the stream
  // captures or the context is broken.
  virtual EventHandle mark(ContextHandle context, StreamHandle stream) = 0;
  // True also when the event can never be reached because of an error.
  virtual bool reached(EventHandle event) = 0;
  virtual void give_back(ContextHandle context, EventHandle event) = 0;
  // Called while the executor waits here. Does the work that must not wait. False: the session is
  // over.
  virtual bool serve() = 0;
  // True: something else, such as a wait, must be looked at often.
  virtual bool busy() = 0;
  // Sets the time slice that the hardware gives the slice's contexts when others run too.
  virtual void set_hardware_slice(uint32_t slot, uint32_t us) = 0;
};

class Gate {
 public:
  // `legacy_stream`: an event in this stream waits for the work of other streams, as in CUDA. Null:
  // the API has no such stream.
  Gate(GateHost* host, Turns turns, uint32_t slots, StreamHandle legacy_stream);

  // A context was made on this slot's GPU, or existed before the session. Sets its hardware time
  // slice too.
  void has_context(uint32_t slot);
  // True: this slot's GPU has no gate.
  bool open(uint32_t slot) const {
    return page_->slices[slot].regime.load(std::memory_order_relaxed) == wire::TurnRegime::kFree;
  }
  // A piece of work of this kind (work_kind) is about to be given to `stream`. Returns when it may
  // be given. The pieces that passed earlier have been given. False: the session is over.
  bool pass(uint32_t slot, ContextHandle context, StreamHandle stream, const WorkKind& kind);
  // The same, but never waits and never marks. So several pieces may pass before the first is
  // given. False: this piece needs a wait or a marker.
  bool pass_at_once(uint32_t slot, ContextHandle context, StreamHandle stream,
                    const WorkKind& kind);

  // How soon the executor's loop must call `look` again if no call comes.
  enum class Pace : uint8_t { kNever, kSometimes, kAtOnce };
  Pace pace() const { return pace_; }
  // Sees which work is done. Gives up turns that are over or no longer needed. `quiet`: no call has
  // come for a while.
  void look(bool quiet);
  // The driver is about to keep this thread for milliseconds, because it compiles or loads code.
  // Gives up the turns in which nothing runs.
  void before_a_long_call();
  // After each call; cheap.
  void look_between_calls() {
    if (launching_ != nullptr) launched();
    if (pace_ == Pace::kNever) return;
    if (++calls_since_look_ >= (pace_ == Pace::kAtOnce ? kCallsUnseen : 8 * kCallsUnseen))
      look(false);
  }
  // Naps between two looks of pace kAtOnce that found nothing, if the running work will take a
  // while. Does nothing if the last turn has just been given up.
  void rest();

  // Some stream is about to capture. Marks its work now, because that is impossible later.
  void mark_everything();
  // Something is about to be given to a stream other than the legacy one. Marks the legacy stream
  // first. The reason: an event in the legacy stream waits for all earlier work of the blocking
  // streams, and their later work waits for the event. An event that comes late would tie streams
  // together that the program did not tie.
  void leaves_legacy_stream() {
    if (legacy_unmarked_) mark_legacy_streams();
  }
  void stream_ends(StreamHandle stream);
  // A host function is about to be given to `stream`. The gate marks earlier work in front of it,
  // and its end behind it. Two reasons: its duration says nothing about the GPU, and the turn goes
  // to others while nothing else of the slice can run.
  void host_function(uint32_t slot, ContextHandle context, StreamHandle stream);
  // The context and its events are gone.
  void forget_context(ContextHandle context);

 private:
  static constexpr uint32_t kCallsUnseen = 8;
  // A marker and the work before it.
  struct Marker {
    EventHandle event;
    WorkEstimates::Batch work;
    uint64_t begun_ns;      // when the first of it was submitted
    uint64_t estimated_ns;  // grows if it takes longer
    uint64_t undone_at_ns;  // when it was last seen unfinished
    uint64_t preempted_ns;  // of the slice's turns, when it was begun
    bool timed;             // false: its end does not tell how long it took
    bool of_program;        // behind a host function, and without work
  };
  // A stream, and its work that is not known to be over.
  struct Queue {
    ContextHandle context = nullptr, owner = nullptr;
    StreamHandle stream = nullptr;
    WorkEstimates::Batch work;                                  // not marked yet
    uint64_t begun_ns = 0, estimated_ns = 0, preempted_ns = 0;  // preempted_ns: when the work began
    bool mark_next = false;
    bool behind_program = false;  // the unmarked work is or will be behind a host function
    std::deque<Marker> markers;
    uint64_t done_after_ns = 0, done_before_ns = 0;  // the last marker was reached between these
    bool idle() const { return work.pieces() == 0 && markers.empty(); }
    bool in_program() const { return !markers.empty() && markers.front().of_program; }
  };
  struct Slice {
    wire::TurnPart* part = nullptr;
    std::vector<Queue> queues;
    size_t last_queue = 0;
    uint32_t batches = 0;        // markers, and queues with unmarked work
    uint64_t unfinished_ns = 0;  // estimated
    uint64_t pieces = 0, pieces_seen = 0, quiet_since_ns = 0;
    uint64_t pieces_before = 0;  // this turn
    uint64_t idle_since_ns = 0, busy_since_ns = 0, busy_ns = 0, queued_ns = 0, stalled_ns = 0;
    uint64_t preempted_ns = 0;  // when it began to be busy
    uint64_t done_ns = 0;       // when all was last seen to be over; 0: a piece has come since
    uint64_t usual_gap_ns = 0;  // from done_ns to the next piece
    bool awake = false;         // in this turn a piece has come after a gap
    uint64_t progress_ns = 0;   // when something was last seen to begin or end
    uint32_t turn = 0;          // the last one seen
    uint32_t given_up = 0;      // the last one given up
    uint32_t hardware_slice_us = 0;
    // When this slice last asked the arbiter for a turn; 0: it has no request.
    uint64_t asked_ns = 0;
    bool waiting = false;  // a piece waits
    uint64_t waiting_since_ns = 0, waiting_piece_ns = 0;
    // When all unfinished work was first seen to wait for host functions.
    uint64_t program_since_ns = 0;
    // Time of work that ran without a turn: in total, and (estimated) since `outside_since_ns`.
    uint64_t outside_ns = 0, outside_since_ns = 0, outside_estimated_ns = 0;
  };

  static bool holds(const Slice& slice) {
    return slice.part->turn.load(std::memory_order_acquire) != slice.given_up;
  }
  bool may_pass(const Slice& slice, const Queue& queue, uint64_t piece_ns) const;
  bool wait_to_pass(Slice& slice, ContextHandle context, StreamHandle stream, uint64_t piece_ns);
  void sleep_until_turn(Slice& slice, uint64_t now_ns);
  static uint64_t preempted_ns(const Slice& slice) {
    return slice.part->preempted_ns.load(std::memory_order_relaxed);
  }
  static void begin_busy(Slice& slice, uint64_t now_ns);
  static uint64_t busy_for_ns(const Slice& slice, uint64_t now_ns);
  static bool in_program(const Slice& slice);
  static bool stalls(const Slice& slice, uint64_t now_ns, uint64_t most_ns);
  void look_outside(Slice& slice, uint64_t now_ns);
  size_t queue_of(Slice& slice, ContextHandle context, StreamHandle stream);
  void add_piece(Slice& slice, Queue& queue, const WorkKind& kind, uint64_t piece_ns);
  void launched();
  static void excuse_absence(Slice& slice, uint64_t now_ns);
  void mark(Slice& slice, Queue& queue);
  void mark_all(Slice& slice);
  void mark_legacy_streams();
  void mark_program(Queue& queue);
  void reap(Slice& slice, uint64_t now_ns);
  void reached(Slice& slice, Queue& queue, uint64_t now_ns);
  void batch_ends(Slice& slice, uint64_t estimated_ns, uint64_t now_ns);
  void look_at(Slice& slice, bool quiet, uint64_t now_ns);
  void take_hardware_slice(Slice& slice);
  static void piece_comes(Slice& slice, uint64_t now_ns);
  static uint64_t linger_ns(const Slice& slice);
  uint32_t wants_after(const Slice& slice) const;
  void give_up(Slice& slice, uint64_t now_ns);
  void forget_other_wants();
  void tell(Slice& slice, uint64_t now_ns);
  void ring();
  void find_pace();

  GateHost* host_;
  const StreamHandle legacy_stream_;
  wire::TurnPage* page_;
  const int bell_;
  WorkEstimates estimates_;
  std::vector<Slice> slices_;
  // This slice was idle, and its first piece is being given to the driver.
  Slice* launching_ = nullptr;
  // Since when the waiting piece is for a slice without a turn; 0: no such piece. Meanwhile, and
  // for a little longer, turns may come unasked for other slices (kWantsTurnToo).
  uint64_t blocked_since_ns_ = 0, may_come_until_ns_ = 0;
  Pace pace_ = Pace::kNever;
  uint32_t calls_since_look_ = 0;
  bool legacy_unmarked_ = false;  // legacy streams may have unmarked work
};

}  // namespace tendril::worker
