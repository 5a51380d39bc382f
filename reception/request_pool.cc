// SPDX-License-Identifier: Apache-2.0
// See request_pool.h.
#include "reception/request_pool.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <system_error>

#include "reception/log.h"

namespace tendril::reception {

void RequestPool::submit(uint64_t number, Task task) {
  std::lock_guard<std::mutex> hold(mutex_);
  if (stopping_) return;
  tasks_.emplace_back(number, std::move(task));
  changed_.notify_one();
  if (tasks_.size() <= idle_ || threads_.size() >= threads_max_) return;
  try {
    threads_.emplace_back([this] { run(); });
  } catch (const std::system_error&) {
    // The others do the work. Without any, the next request tries again.
    log(Level::kError, "cannot start a thread for requests: %zu are there", threads_.size());
  }
}

bool RequestPool::withdraw(uint64_t number) {
  std::lock_guard<std::mutex> hold(mutex_);
  const auto found = std::find_if(tasks_.begin(), tasks_.end(), [number](const auto& task) {
    return number != 0 && task.first == number;
  });
  if (found == tasks_.end()) return false;
  tasks_.erase(found);
  return true;
}

std::vector<uint64_t> RequestPool::waiting() {
  std::lock_guard<std::mutex> hold(mutex_);
  std::vector<uint64_t> numbers;
  for (const auto& task : tasks_) {
    if (task.first != 0) numbers.push_back(task.first);
  }
  return numbers;
}

void RequestPool::run() {
  pthread_setname_np(pthread_self(), name_.c_str());
  std::unique_lock<std::mutex> hold(mutex_);
  for (;;) {
    ++idle_;
    changed_.wait(hold, [this] { return stopping_ || !tasks_.empty(); });
    --idle_;
    if (stopping_) return;
    Task task = std::move(tasks_.front().second);
    tasks_.pop_front();
    ++running_;
    hold.unlock();
    task();
    task = nullptr;  // what it holds may ask for the lock when it ends
    hold.lock();
    --running_;
    if (stopping_) changed_.notify_all();
  }
}

bool RequestPool::stop(int timeout_ms) {
  std::deque<std::pair<uint64_t, Task>> dropped;
  std::unique_lock<std::mutex> hold(mutex_);
  stopping_ = true;
  dropped.swap(tasks_);
  changed_.notify_all();
  const bool ended = changed_.wait_for(hold, std::chrono::milliseconds(timeout_ms),
                                       [this] { return running_ == 0; });
  hold.unlock();
  return ended;
}

RequestPool::~RequestPool() {
  (void)stop(0);
  for (std::thread& thread : threads_) thread.join();
}

}  // namespace tendril::reception
