// SPDX-License-Identifier: Apache-2.0
// Calls whose answer must wait for the GPU, and copies to and from the client that are under way. A wait is polled by the executor for
// a short while (so a quick kernel costs no thread switch), then given to a thread that sleeps in the driver. When it is over,
// everything the client may now look at is sent first: finished copies, device printf; then the reply. What may take long to send
// is sent by the waiter threads, never by the executor.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "worker/cuda/executor.h"
#include "worker/cuda/readback.h"
#include "worker/cuda/staging.h"

namespace tendril::worker::cuda {

struct Wait {
  Executor::WaitKind kind = Executor::WaitKind::kStream;
  void* object = nullptr;           // CUstream, CUevent, or null for a context
  WorkerContext* context = nullptr;
  CUcontext driver_context = nullptr;
  uint32_t reply_id = 0;
  uint64_t begun_ns = 0;
  std::unique_ptr<Readback> readback;  // a copy to the client: `object` is its event
  // Nothing to wait for: deliver, and tell the caller, if it waits. For callers that may not call the driver, or should not send.
  bool only_deliver = false;
  bool* delivered = nullptr;
};

// Something the GPU still reads: a block on loan or a piece of a transfer. It is given back when its event is over.
struct Flight {
  Loan loan;
  session::Piece piece;  // data null: none
};

class Waiters {
 public:
  explicit Waiters(Executor* executor);
  // Ends the threads once everything handed over is over. Not for a worker that leaves: work of a client that died may never end.
  ~Waiters();

  // With the turn.
  void add(Wait wait);
  bool polling() const { return polled_count_.load(std::memory_order_relaxed) != 0; }
  // One look at every polled wait. The reader, with the turn.
  void poll();

  void add_delivery(Readback readback);
  // Sends every delivery that is complete. Any thread; takes long when one of them is large.
  void deliver();
  // The same from a driver's callback thread.
  void deliver_from_callback();
  // Waits for and sends all of them (a context ends). May take long.
  void deliver_all();

  // The GPU reads the flight's memory until what is enqueued on `stream` now has run. Any thread.
  void in_flight(CUstream stream, Flight flight);
  // Before a flight has a piece: may one more slot of the pool be with the GPU? That half of them is not keeps the network
  // busy, and keeps streams that are held up from holding up others.
  bool reserve_slot();
  // Gives back what is over. Any thread.
  void reclaim();
  // The context is gone: its events with it, and nothing reads what was in flight there.
  void forget(CUcontext context);

  Staging& staging() { return staging_; }

 private:
  static void* thread_main(void* self);
  void sleep_until_done(Wait wait);
  void complete(const Wait& wait, CUresult result);
  void hand_over(Wait wait);
  CUresult query(const Wait& wait);
  CUresult synchronise(const Wait& wait);
  void settle(Wait wait, CUresult result);
  void land(Flight flight);

  Executor* executor_;
  Staging staging_;
  std::vector<Wait> polled_;
  std::atomic<size_t> polled_count_{0};

  pthread_mutex_t mutex_ = PTHREAD_MUTEX_INITIALIZER;
  pthread_cond_t handed_over_ = PTHREAD_COND_INITIALIZER;
  pthread_cond_t delivered_ = PTHREAD_COND_INITIALIZER;
  pthread_cond_t thread_ended_ = PTHREAD_COND_INITIALIZER;
  std::deque<Wait> sleeping_;
  unsigned threads_ = 0, idle_threads_ = 0;
  bool ending_ = false;

  // A reply may follow only when what it covers has been sent: who sends has the first of these, for as long as it takes.
  pthread_mutex_t sending_mutex_ = PTHREAD_MUTEX_INITIALIZER;
  pthread_mutex_t delivery_mutex_ = PTHREAD_MUTEX_INITIALIZER;
  std::deque<Readback> deliveries_;
  std::atomic<size_t> undelivered_{0};  // in deliveries_ or being sent
  std::atomic<size_t> undelivered_large_{0};

  pthread_mutex_t flights_mutex_ = PTHREAD_MUTEX_INITIALIZER;
  std::deque<Flight> flights_;
  std::atomic<size_t> in_flight_{0};
  std::atomic<uint32_t> slots_in_flight_{0};
};

}  // namespace tendril::worker::cuda
