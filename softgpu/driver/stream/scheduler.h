// SPDX-License-Identifier: Apache-2.0
// Asynchrony of the software GPU: tokens (something will be done), queues (work in order), and an
// elastic pool of threads that run queues with work. An idle queue owns no thread. A queue's head
// waits for tokens of other queues without holding a thread.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

namespace tendril::softgpu {

int64_t now_ns();

// Completion of one piece of work. Completed exactly once.
class Token {
 public:
  bool done() const { return done_.load(std::memory_order_acquire); }
  void wait();
  // False if the time is over first.
  bool wait_ms(int64_t timeout_ms);
  // Runs `what` when done: at once on this thread, or later on the thread that completes.
  void then(std::function<void()> what);
  void complete();

 private:
  std::atomic<bool> done_{false};
  uint32_t program_waiters_ = 0, pool_waiters_ = 0;  // for the clock
  std::mutex lock_;
  std::condition_variable changed_;
  std::vector<std::function<void()>> waiting_;
};
using TokenPtr = std::shared_ptr<Token>;

// Runs `what` soon on some thread of the pool. Starts a thread if all are busy, because work may
// block for long.
void run_on_pool(std::function<void()> what);
// Threads alive now. For tests.
unsigned pool_threads();

// Numbers the requests of programs in their order.
uint64_t next_order();

// (Not `Op`: the engine in ptx/ has one, in the same namespace.)
struct QueuedOp {
  std::function<void()> run;
  std::vector<TokenPtr>
      // of other queues; all are earlier than this op, so waiting cannot form a circle
      after;
  TokenPtr token;      // made by push when empty
  uint64_t order = 0;  // given by push
};

class Queue : public std::enable_shared_from_this<Queue> {
 public:
  TokenPtr push(QueuedOp op);
  // Appends. If this is the only op, it runs on this thread before the call returns. The caller's
  // lock orders appends to several queues and is released before the op runs. The op must have
  // nothing to wait for.
  TokenPtr push_inline(QueuedOp op, std::unique_lock<std::mutex>& order);
  // Where as much is queued as a driver takes: the token of what must be over before there is room.
  // Null: there is room.
  TokenPtr in_the_way() const;
  // Token of the op that was appended last; null if everything is done.
  TokenPtr last() const;
  bool idle() const { return last() == nullptr; }

 private:
  void drain();
  void go_on();

  mutable std::mutex lock_;
  std::deque<QueuedOp> ops_;
  bool active_ = false;  // someone drains, will drain, or waits for a token in order to drain
  TokenPtr last_;
};

}  // namespace tendril::softgpu
