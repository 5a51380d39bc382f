// SPDX-License-Identifier: Apache-2.0
// The worker's line to tendrild about parking (wire/assignment.h: kPark). tendrild says under which
// number the session's device memory is to be in the host's memory, or that it is to be on the GPU.
// The executor does it between calls and answers. worker/process/control.h implements the line: a
// listening thread takes the orders. `wanted` and `wait` are for the executor, as the answers are.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "base/fd.h"

namespace tendril::worker {

enum class ParkChore : uint8_t {
  kNone = 0,
  kCopy = 1,    // copy to the host, and release nothing: a park later is quick then
  kForget = 2,  // give the host's memory back
};

class ParkLine {
 public:
  virtual ~ParkLine() = default;

  // The number of the park that is ordered and not taken back; 0: the memory belongs on the GPU.
  uint32_t wanted() const { return wanted_.load(std::memory_order_relaxed); }
  // What is to be done when there is time for it. One load.
  ParkChore chore() const { return chore_.load(std::memory_order_relaxed); }
  // That one is done, or cannot be done. Nothing, if another one has come.
  virtual void end_chore(ParkChore done) = 0;
  // Blocks until `wanted` is not `number`, or the time is over, or tendrild is gone.
  virtual void wait(uint32_t number, int timeout_ms) = 0;

  // Where to copy what leaves now. None: to this process' memory.
  virtual base::Fd take_file() = 0;
  // `bytes` are in the host's memory and free on the GPUs. `copied`: for that, since the last time.
  virtual void parked(uint32_t number, uint64_t bytes, uint64_t copied) = 0;
  // Everything stays on the GPUs. `why`: for people, at most 63 bytes, without a full stop.
  virtual void stays(uint32_t number, const std::string& why) = 0;
  virtual void wants_wake(uint32_t number) = 0;
  virtual void returned(uint32_t number) = 0;

 protected:
  std::atomic<uint32_t> wanted_{0};
  std::atomic<ParkChore> chore_{ParkChore::kNone};
};

}  // namespace tendril::worker
