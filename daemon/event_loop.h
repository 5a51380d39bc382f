// SPDX-License-Identifier: Apache-2.0
// One thread that waits for descriptors and timers and runs posted tasks. It is the daemon's
// supervisor. It starts every worker, because the kernel ties a worker's life to the thread that
// started it. It sees workers exit, reads their output and watches clients' connections. Callbacks
// run on the loop's thread and must not block.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/fd.h"
#include "base/result.h"

namespace tendril::daemon {

class EventLoop {
 public:
  using Task = std::function<void()>;
  using Callback = std::function<void(uint32_t epoll_events)>;

  static base::Result<std::unique_ptr<EventLoop>> create();
  ~EventLoop();

  void start();
  // Runs the tasks posted before, then ends the thread. May be called repeatedly.
  void stop();

  // Any thread. Nothing runs after stop().
  void post(Task task);
  // Any thread; runs once, not before `delay_ms` have passed.
  void after(int delay_ms, Task task);

  // Loop thread only. The caller keeps the descriptor, and must unwatch it before closing it.
  base::Status watch(int fd, uint32_t epoll_events, Callback callback);
  void unwatch(int fd);

 private:
  EventLoop() = default;
  void run();
  void wake();
  int run_due();  // runs posted and due tasks; returns milliseconds to the next timer, -1: none

  base::Fd epoll_, event_;
  std::thread thread_;
  std::mutex mutex_;
  bool stopping_ = false;                               // guarded by mutex_
  std::vector<Task> posted_;                            // guarded by mutex_
  std::multimap<uint64_t, Task> timers_;                // by time in ns; guarded by mutex_
  std::map<int, std::shared_ptr<Callback>> callbacks_;  // loop thread
};

}  // namespace tendril::daemon
