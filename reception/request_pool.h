// SPDX-License-Identifier: Apache-2.0
// A few threads that perform requests in the order of their arrival, so many at once and no more.
// Threads are started when there is work for them. Any thread may call.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace tendril::reception {

class RequestPool {
 public:
  using Task = std::function<void()>;

  // `name`: of its threads, at most 15 letters.
  RequestPool(std::string name, size_t threads_max)
      : name_(std::move(name)), threads_max_(threads_max) {}
  ~RequestPool();

  // `number`: by which it can be withdrawn; 0: it cannot be. After stop() the task is dropped.
  void submit(uint64_t number, Task task);
  // Forgets a task that has not begun. False: it has.
  bool withdraw(uint64_t number);
  // The numbers of the tasks that have not begun, the next one first.
  std::vector<uint64_t> waiting();
  // Drops what has not begun and waits for the rest. False: something still runs.
  bool stop(int timeout_ms);

 private:
  void run();

  const std::string name_;
  const size_t threads_max_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::pair<uint64_t, Task>> tasks_;  // guarded by mutex_
  std::vector<std::thread> threads_;             // guarded by mutex_
  size_t idle_ = 0, running_ = 0;                // guarded by mutex_
  bool stopping_ = false;                        // guarded by mutex_
};

}  // namespace tendril::reception
