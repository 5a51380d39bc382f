// SPDX-License-Identifier: Apache-2.0
// See event_loop.h.
#include "daemon/event_loop.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include "base/clock.h"

namespace tendril::daemon {

base::Result<std::unique_ptr<EventLoop>> EventLoop::create() {
  std::unique_ptr<EventLoop> loop(new EventLoop);
  loop->epoll_.reset(epoll_create1(EPOLL_CLOEXEC));
  loop->event_.reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!loop->epoll_.valid() || !loop->event_.valid()) {
    return base::errno_status(base::Code::kExhausted, "cannot create the daemon's event loop",
                              errno);
  }
  epoll_event event = {};
  event.events = EPOLLIN;
  event.data.fd = loop->event_.get();
  if (epoll_ctl(loop->epoll_.get(), EPOLL_CTL_ADD, loop->event_.get(), &event) != 0) {
    return base::errno_status(base::Code::kExhausted, "cannot create the daemon's event loop",
                              errno);
  }
  return loop;
}

EventLoop::~EventLoop() { stop(); }

void EventLoop::start() {
  thread_ = std::thread([this] {
    pthread_setname_np(pthread_self(), "supervisor");
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, nullptr);
    run();
  });
}

void EventLoop::stop() {
  {
    std::lock_guard<std::mutex> hold(mutex_);
    stopping_ = true;
  }
  wake();
  if (thread_.joinable()) thread_.join();
}

void EventLoop::wake() {
  const ssize_t ignored = eventfd_write(event_.get(), 1);
  (void)ignored;
}

void EventLoop::post(Task task) {
  {
    std::lock_guard<std::mutex> hold(mutex_);
    if (stopping_) return;
    posted_.push_back(std::move(task));
  }
  wake();
}

void EventLoop::after(int delay_ms, Task task) {
  {
    std::lock_guard<std::mutex> hold(mutex_);
    if (stopping_) return;
    timers_.emplace(base::now_ns() + static_cast<uint64_t>(delay_ms) * 1'000'000u, std::move(task));
  }
  wake();
}

base::Status EventLoop::watch(int fd, uint32_t epoll_events, Callback callback) {
  epoll_event event = {};
  event.events = epoll_events;
  event.data.fd = fd;
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
    return base::errno_status(base::Code::kExhausted, "cannot watch a descriptor", errno);
  }
  callbacks_[fd] = std::make_shared<Callback>(std::move(callback));
  return base::Status();
}

void EventLoop::unwatch(int fd) {
  if (callbacks_.erase(fd) != 0) epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
}

int EventLoop::run_due() {
  for (;;) {
    std::vector<Task> tasks;
    {
      std::lock_guard<std::mutex> hold(mutex_);
      tasks.swap(posted_);
      const uint64_t now = base::now_ns();
      while (!timers_.empty() && timers_.begin()->first <= now) {
        tasks.push_back(std::move(timers_.begin()->second));
        timers_.erase(timers_.begin());
      }
      if (tasks.empty()) {
        if (timers_.empty()) return -1;
        return static_cast<int>((timers_.begin()->first - now) / 1'000'000u) + 1;
      }
    }
    for (Task& task : tasks) task();
  }
}

void EventLoop::run() {
  for (;;) {
    const int timeout_ms = run_due();
    {
      std::lock_guard<std::mutex> hold(mutex_);
      if (stopping_) return;
    }
    epoll_event events[64];
    const int count = epoll_wait(epoll_.get(), events, 64, timeout_ms);
    for (int i = 0; i < count; ++i) {
      if (events[i].data.fd == event_.get()) {
        eventfd_t ignored;
        eventfd_read(event_.get(), &ignored);
        continue;
      }
      // A callback may unwatch others or itself. So look it up now, and keep it alive while it
      // runs.
      const auto found = callbacks_.find(events[i].data.fd);
      if (found == callbacks_.end()) continue;
      const std::shared_ptr<Callback> callback = found->second;
      (*callback)(events[i].events);
    }
  }
}

}  // namespace tendril::daemon
