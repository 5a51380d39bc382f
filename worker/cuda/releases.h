// SPDX-License-Identifier: Apache-2.0
// What calls without reply give up: memory, modules, registered host memory. Drivers wait for the GPU before they take such things
// back, in program order behind all work; the executor must not. So one thread gives them back, one after the other, in the order of the
// calls. Allocations that find no room, and the end of a context, wait for it (Executor::with_room, await_releases).
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>

#include "gpu/driver.h"

namespace tendril::worker::cuda {

class Executor;
struct WorkerContext;

class Releases {
 public:
  using Release = std::function<CUresult(Executor&)>;
  explicit Releases(Executor* executor) : executor_(executor) {}

  void add(WorkerContext* context, Release release);
  bool pending() const { return pending_.load(std::memory_order_acquire) != 0; }
  // Waits for everything added before. Without the turn.
  void drain();
  // Does what is left and ends the thread.
  void end();

 private:
  struct Item {
    WorkerContext* context;
    Release release;
  };
  static void* thread_main(void* self);

  Executor* const executor_;
  pthread_mutex_t mutex_ = PTHREAD_MUTEX_INITIALIZER;
  pthread_cond_t changed_ = PTHREAD_COND_INITIALIZER;
  std::deque<Item> items_;
  std::atomic<uint64_t> pending_{0};
  uint64_t added_ = 0, done_ = 0;
  bool started_ = false;
  bool ending_ = false;
};

}  // namespace tendril::worker::cuda
