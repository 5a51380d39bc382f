// SPDX-License-Identifier: Apache-2.0
// The driver's end of the board's clock. In real time it is the host's clock, and the rest here
// does nothing. In the other modes work takes its time on the board's timeline: queues submit it,
// and one thread of the process takes the ends. Every thread that waits says so, because a
// simulated clock moves only while all wait. Any thread.
#pragma once

#include <cstdint>
#include <functional>

#include "softgpu/board/timeline.h"

namespace tendril::softgpu {

// What one operation of a queue has used so far, on this thread.
struct Charge {
  int device = 0;
  Engine engine = Engine::kCompute;
  uint64_t context = 0;
  int64_t ns = 0;
  uint64_t order = 0;  // of the operation
};
Charge& charge();

class Clock {
 public:
  static Clock& instance();

  bool timed() const { return mode_ != TimeMode::kReal; }
  bool executes() const { return mode_ != TimeMode::kNoExec; }
  // The time that events record. Inside an operation that has used device time, it is the time
  // after that.
  int64_t now_ns();

  // `done` runs when the charge has been served, on the thread that takes ends.
  void submit(const Charge& charge, std::function<void()> done);
  void cancel(uint64_t context);
  // Stops this thread for so long.
  void sleep(int64_t ns);

  // Who runs and who waits. Threads of the pool count as work, others as the program.
  void submits();
  void blocks();
  void resumes(uint32_t program_threads, uint32_t pool_threads);
  void task_begins();
  void task_ends();
  // A query was answered "not yet".
  void asked_in_vain();

  // Around a wait for what is not on the clock, by a thread of either kind.
  class Pause {
   public:
    Pause() { instance().blocks(); }
    ~Pause() { instance().resumes(is_pool_thread() ? 0 : 1, is_pool_thread() ? 1 : 0); }
    Pause(const Pause&) = delete;
  };

  // Marks this thread as one of the pool.
  static void on_pool_thread();
  static bool is_pool_thread();

 private:
  Clock();
  bool simulated() const { return mode_ >= TimeMode::kVirtual; }
  void start_taking();

  TimeMode mode_;
  Timeline timeline_;
};

}  // namespace tendril::softgpu
