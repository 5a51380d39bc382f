// SPDX-License-Identifier: Apache-2.0
// Calls whose answer must wait for the GPU, and copies to the client that are under way. The
// executor polls a wait for a short while, so a quick kernel costs no thread switch. Then a thread
// sleeps in the driver for it. There are a few such threads; when all of them sleep, one more looks
// after all other waits in turn. When the wait is over, all that the client may now look at goes
// first (finished copies, what kernels printed), then the reply. If no kernel of the context
// prints, the driver is synchronised with after the reply
// (docs/decisions/0015-answers-before-synchronising.md).
#pragma once

#include <pthread.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "worker/cuda/executor/executor.h"
#include "worker/cuda/memory/staging.h"

namespace tendril::worker::cuda {

enum class WaitKind : uint8_t { kStream, kEvent, kContext };

struct Wait {
  static constexpr unsigned kStreamsMax = 8;
  WaitKind kind = WaitKind::kStream;
  void* object = nullptr;  // CUstream, CUevent, or null for a context
  WorkerContext* context = nullptr;
  CUcontext driver_context = nullptr;
  uint32_t reply_id = 0;
  uint64_t begun_ns = 0;
  // For a context that is polled: the streams that were not idle when last asked.
  CUstream streams[kStreamsMax];
  unsigned stream_count = 0;
  // For a small copy to the client: what to send with the reply.
  Block block;
  uint64_t bytes = 0;
  // An event of ours to give back. For a stream or a context it is behind all that is waited for
  // but what `streams` have.
  CUevent own_event = nullptr;
  // No kernel of the context has printed: the reply need not wait until the driver has been
  // synchronised with.
  bool quiet = false;
  // The context of the object, if threads use the object itself.
  CUcontext owner = nullptr;
  // Only deliver, then set this: for callers on a driver's callback thread, where the driver may
  // not be called.
  bool* delivered = nullptr;
};

// A copy to the client, or a piece of one, which is sent before any reply that could tell it is
// done.
struct Delivery {
  CUcontext context = nullptr;
  CUevent event = nullptr;
  Block block;
  uint64_t host = 0, bytes = 0;
  uint64_t transfer = 0, offset = 0;  // for bulk data
  bool last = true;                   // no piece of the transfer comes after it
  bool soon = false;  // a thread sends it as soon as it is there, whether or not somebody waits
  CUstream stream = nullptr;  // where it is enqueued, while that stream lives
  uint64_t number = 0;        // of deliveries, in their order; 0: its stream is no more
};

// Something the GPU still reads: given back when its event is over.
struct InFlight {
  CUcontext context = nullptr;
  CUevent event = nullptr;
  Block block;
  session::Piece piece;
  bool is_piece = false;
};

class Waiters {
 public:
  explicit Waiters(Executor* executor);
  // Ends the threads once every wait that was handed over is over. Not for a worker that leaves:
  // work of a client that died may never end.
  ~Waiters() { finish(); }
  // The same before the end. What is not sent by then is dropped, since contexts may end now: no
  // wait and no copy to the client may come afterwards.
  void finish();

  // For handlers: the call's reply goes out when the GPU is there. The handler returns this result.
  CUresult answer_after(WaitKind kind, void* object);
  // As above, for a copy to the client: what the stream has now, then the reply, with the data of
  // `block` unless they go beside it. Events and blocks are the staging's.
  CUresult answer_after_copy(CUstream stream, const Block& block, uint64_t bytes);
  bool polling() const { return !polled_.empty(); }
  // Has a polled wait ended, which nobody has taken note of since? Who waited calls again soon.
  bool some_ended() const { return ended_; }
  void note_ended() { ended_ = false; }
  // A wait has been replied to before the driver was synchronised with. That is still to be done,
  // before any call that could tell. Executor thread.
  bool owes_synchronising() const { return owed_.event != nullptr; }
  void synchronise_owed();
  // One look at every polled wait. Executor thread.
  void poll();
  // `stream` is about to be destroyed. Executor thread.
  void forget_stream(CUstream stream);
  // The client destroys a stream or an event. True: a wait still uses it. Then the last such wait
  // destroys it, and nobody else may. Executor thread.
  bool end_after_use(WaitKind kind, void* object);
  // `context` is about to be destroyed. Ends its waits: those under way end with their work, the
  // others at once. False: the session is over before that. Executor thread.
  bool end_waits_of(CUcontext context);

  // An event behind a copy into `block`, which is enqueued on `stream` last. When this fails, both
  // have been given back.
  CUresult mark_copy(CUcontext context, CUstream stream, const Block& block, CUevent* event);
  // Once what is enqueued on `stream` now has run, `delivery` may be sent. When this fails, its
  // block has been given back.
  CUresult add_delivery(CUstream stream, Delivery delivery);
  // Sends deliveries until the rest holds no more than `most` bytes with these new ones, or none
  // has become ready for *patience_ns; then that is 0.
  void make_room(uint64_t bytes, uint64_t most, uint64_t* patience_ns);
  // Sends every delivery that is complete. Any thread; the context must be current.
  void deliver();
  // The same from a driver's callback thread, where no question may be asked of the driver. What
  // was enqueued on `stream` up to number `last` is complete.
  void deliver_from_callback(CUstream stream, uint64_t last);
  // The number of the delivery that was added last. Executor thread.
  uint64_t last_delivery() const { return last_delivery_; }
  // What the client may look at once it has the answer that comes next: finished copies, what
  // kernels have printed, and the news that they have written its memory.
  void send_news(bool on_executor);
  // Waits for and sends all of them (a context ends).
  void deliver_all();

  // The GPU reads `block` or `piece` until what is enqueued on `stream` now has run.
  void in_flight(CUstream stream, InFlight item);
  // Gives back what is over. Then waits until no more than `pieces_at_most` are in flight.
  void reclaim(size_t pieces_at_most);
  // `context` has ended: its events are no more, and nothing that is in flight for it is read any
  // more. Executor thread.
  void forget_context(CUcontext context);

  Staging& staging() { return staging_; }

 private:
  // A stream or an event that waits on threads use.
  struct Use {
    unsigned waits = 0;
    bool destroy = false;  // when the last of them is over
    WaitKind kind = WaitKind::kEvent;
  };

  using Hold = std::unique_lock<std::mutex>;

  Wait of_call(WaitKind kind, void* object);
  bool too_many() const;
  void add(const Wait& wait);
  static void* used_by(const Wait& wait);
  CUcontext owner_of(const Wait& wait);
  static bool concerns(const Wait& wait, CUcontext context) {
    return wait.driver_context == context || wait.owner == context;
  }
  Wait take_polled(size_t i);
  bool may_take() const;
  bool start(void* (*main)(void*));
  static void* thread_main(void* self);
  void take_next(Hold* hold);
  void sleep_for_context(CUcontext context, Hold* hold);
  static void* look_main(void* self);
  bool look_at(std::vector<Wait>* waits, CUcontext ending, Hold* hold);
  void over(const Wait& wait, Hold* hold);
  void end_waiting(CUcontext context, Hold* hold);
  void sleep_until_done(const Wait& wait);
  void complete(const Wait& wait, CUresult result, bool on_executor);
  bool hand_over(Wait wait);
  void give_to_thread(const Wait& wait);
  CUresult query(Wait* wait);
  CUresult synchronise(const Wait& wait);
  bool is_quiet() const;
  void end(Wait wait, CUresult result);
  bool begin_context_wait(Wait* wait);
  void begin_stream_wait(Wait* wait);
  static void* delivery_main(void* self);
  void send_soon();
  uint64_t delivery_bytes();
  void deliver_locked();
  void deliver_in_own_context();
  void send_delivery(const Delivery& delivery);
  void give_back_spent();

  Executor* executor_;
  const uint32_t poll_us_;
  base::Spin poll_spin_{UINT32_MAX};  // since a wait was last added or over
  base::LearntSpin waits_;
  bool ended_ = false;
  struct {
    CUcontext context = nullptr;
    CUevent event = nullptr;
  } owed_;
  Staging staging_;
  std::vector<Wait> polled_;
  std::atomic<uint64_t> outstanding_{0};  // waits that have not been answered
  std::mutex mutex_;  // of sleeping_, its threads, what they use, and Wait::delivered
  std::condition_variable handed_over_, delivered_, thread_ended_, wait_ended_, looked_at_;
  std::deque<Wait> sleeping_;  // those that no thread has taken yet
  // Waits for contexts. A thread does all that have come for one of them.
  std::unordered_map<CUcontext, std::vector<Wait>> of_contexts_;
  std::deque<CUcontext> waiting_contexts_;  // those that no thread has taken yet
  std::vector<Wait> under_way_;             // on threads
  std::unordered_map<void*, Use> uses_;
  CUcontext ending_context_ = nullptr;
  unsigned threads_ = 0, idle_threads_ = 0;
  unsigned sleepers_ = 0;  // threads that do other waits than those for contexts
  bool looking_ = false;   // the thread runs that looks after the waits for which none is left
  bool ending_ = false;
  std::mutex delivery_mutex_;  // of deliveries_, what is counted of them, and their thread
  std::deque<Delivery> deliveries_;
  std::vector<Block> spent_;  // of deliveries that have been sent, before they are given back
  std::atomic<size_t> delivery_count_{0};
  uint64_t delivery_bytes_ = 0;
  uint64_t last_delivery_ = 0;
  size_t soon_count_ = 0;
  std::condition_variable soon_;
  pthread_t delivery_thread_{};
  bool delivery_thread_runs_ = false, deliveries_end_ = false;
  std::deque<InFlight> flights_;
  size_t pieces_in_flight_ = 0;
};

}  // namespace tendril::worker::cuda
