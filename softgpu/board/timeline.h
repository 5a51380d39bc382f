// SPDX-License-Identifier: Apache-2.0
// The clock of a board whose time is not the host's, and the work on it. Work (a kernel with its
// duration, a copy, a sleep) is submitted and ends on the clock. Ends are delivered to the process
// that submitted.
//
// A simulated clock moves only when nothing holds it: no running thread of a program that may
// submit more, no work that is being executed, no end that its process has not seen. Then it jumps
// to the next end, delivers that one, and stops. So after any end exactly one process runs, and the
// same programs give the same times however the host schedules them. Seat and order break ties;
// arrival does not. A paced clock follows the host's.
#pragma once

#include <cstdint>

#include "softgpu/board/board.h"
#include "softgpu/board/board_data.h"

namespace tendril::softgpu {

inline constexpr int64_t kForEverNs = int64_t{1} << 60;  // work that never ends

struct JobRequest {
  int device = 0;
  Engine engine = Engine::kTimer;
  uint64_t context = 0;
  int64_t cost_ns = 0;
  uint64_t order = 0;  // of this process; breaks ties
  uint64_t cookie = 0;
};

class Timeline {
 public:
  explicit Timeline(Board& board) : board_(board) {}

  bool simulated() const;
  int64_t now_ns();

  // A thread of the program submits. It may submit more.
  void host_runs();
  // A thread of the program starts to wait for work; it goes on.
  void host_blocks();
  void host_resumes(uint32_t threads);
  // A thread of the program asks in a loop and hears "not yet". It waits for the clock, but only if
  // none of its work was being executed or ended meanwhile. Otherwise the answer may have changed
  // although the clock did not move.
  void host_polls();
  void task_begins();
  void task_ends();  // or waits for other work
  void tasks_resume(uint32_t threads);

  void submit(const JobRequest& request);
  // Ends everything that a context has on the clock. The ends are delivered as usual.
  void cancel(uint64_t context);

  // The next end of this process' work. Waits at most `patience_ms` of the host's time. The clock
  // stands still until `delivered`.
  bool next_end(int64_t patience_ms, uint64_t* cookie);
  void delivered();

 private:
  void join_clock();
  void advance();
  int64_t wait_ns();
  void look_for_holders();
  bool take_end(uint64_t* cookie);

  Board& board_;
};

// Under the board's lock, for board.cc. Brings a device's accounts up to now. Forgets a dead
// process' work. After a death with the lock held, it rebuilds the rings from the jobs if, and only
// if, they were being changed; work that has begun then begins again.
int64_t settle(BoardData& data, int device);
void drop_jobs(BoardData& data, uint32_t process);
void repair_jobs(BoardData& data);

}  // namespace tendril::softgpu
