// SPDX-License-Identifier: Apache-2.0
// Whose turn it is. One thread at a time runs handlers and touches the session's state: it has the turn. One thread takes the calls off
// the lane: the reader. A thread that is about to do something that may take long (a driver call that waits for the GPU, bytes that are
// still on the network) leaves: it gives the turn up and takes it again afterwards. A reader that stays away longer than a moment is
// replaced by a stand-in, so that the calls of the client's other threads go on (docs/decisions/0005).
#pragma once

#include <atomic>
#include <cstdint>

#include "base/lock.h"

namespace tendril::worker::cuda {

class Turn {
 public:
  using Read = void (*)(void* executor);
  // `read` is what a stand-in does as the reader; it returns when is_reader has become false, or at the session's end.
  Turn(Read read, void* executor) : read_(read), executor_(executor) {}

  // The calling thread becomes the first reader.
  void begin();
  // Ends the other threads; waits until each has finished what it is at.
  void end();
  // The reader's, for each call. Whoever comes back goes first.
  void take();
  // Everybody else's.
  void take_back();
  void give() { lock_.unlock(); }

  // Around something that may take long. With the turn.
  void leave();
  void come_back();

  // With the turn: does this thread take the calls?
  bool is_reader() const;

 private:
  static void* watch_main(void* self);
  void start_watch();
  bool stand_in(uint32_t seen);

  const Read read_;
  void* const executor_;
  base::Lock lock_;
  std::atomic<uint32_t> returning_{0};
  std::atomic<const void*> reader_{nullptr};
  std::atomic<uint32_t> away_{0};  // odd: the reader has left
  base::Event left_;
  std::atomic<bool> ending_{false};
  base::Event ended_;
  bool watched_ = false;  // a thread stands by; with the turn
  uint32_t threads_ = 0;
};

}  // namespace tendril::worker::cuda
