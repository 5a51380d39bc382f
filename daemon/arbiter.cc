// SPDX-License-Identifier: Apache-2.0
// See arbiter.h.
#include "daemon/arbiter.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/clock.h"

namespace tendril::daemon {
namespace {

using base::Code;
using base::Status;

constexpr uint64_t kSpinNs = 400'000;  // at most this long while a bell is expected
constexpr uint64_t kTimerKey = 0, kStopKey = UINT64_MAX;  // others are sessions' ids

// Wakes every worker that sleeps on this turn's number, so that it looks at the page again. The
// futex is not private, because the worker is another process.
void wake(wire::TurnPart* page) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&page->turn), FUTEX_WAKE, INT_MAX, nullptr,
          nullptr, 0);
}

// The windows of gangs follow the wall clock.
int64_t wall_offset_ns() {
  return static_cast<int64_t>(base::wall_ns()) - static_cast<int64_t>(base::now_ns());
}

}  // namespace

Arbiter::Arbiter(const lease::SharingOptions& options) : turns_(options, wake) {}

base::Result<std::unique_ptr<Arbiter>> Arbiter::start(const lease::SharingOptions& options) {
  std::unique_ptr<Arbiter> arbiter(new Arbiter(options));
  arbiter->epoll_.reset(epoll_create1(EPOLL_CLOEXEC));
  arbiter->timer_.reset(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  arbiter->stop_.reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!arbiter->epoll_.valid() || !arbiter->timer_.valid() || !arbiter->stop_.valid())
    return base::errno_status(Code::kExhausted, "cannot create the arbiter of the GPUs' time",
                              errno);
  Status status = arbiter->watch(arbiter->timer_.get(), kTimerKey, EPOLLIN);
  if (status.ok()) status = arbiter->watch(arbiter->stop_.get(), kStopKey, EPOLLIN);
  if (!status.ok()) return status;
  arbiter->thread_ = std::thread([raw = arbiter.get()] { raw->run(); });
  return arbiter;
}

Arbiter::~Arbiter() {
  eventfd_write(stop_.get(), 1);
  if (thread_.joinable()) thread_.join();
}

Status Arbiter::watch(int fd, uint64_t key, uint32_t events) {
  epoll_event event = {};
  event.events = events;
  event.data.u64 = key;
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0) return Status();
  return base::errno_status(Code::kExhausted, "cannot watch a worker's bell", errno);
}

void Arbiter::run() {
  pthread_setname_np(pthread_self(), "arbiter");
  // While this thread is late the GPU stands idle. Not every user may ask for this priority; it
  // works without.
  setpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)), -10);
  base::Spin spin(kSpinNs / 1000);
  std::vector<uint64_t> rang;
  for (;;) {
    epoll_event events[64];
    const bool soon = base::now_ns() < spin_until_ns_ && base::usable_cpus() > 1;
    const int count = epoll_wait(epoll_.get(), events, 64, soon ? 0 : -1);
    if (count < 0 && errno != EINTR) return;
    if (count == 0 && spin.again()) {
      base::cpu_pause();
      continue;
    }
    spin.reset();
    rang.clear();
    std::lock_guard<std::mutex> hold(mutex_);
    for (int i = 0; i < count; ++i) {
      const uint64_t key = events[i].data.u64;
      if (key == kStopKey) return;
      if (key != kTimerKey) {
        rang.push_back(key);
        continue;
      }
      uint64_t ignored;
      if (::read(timer_.get(), &ignored, sizeof ignored) > 0) armed_ns_ = lease::TurnPolicy::kNever;
    }
    turns_.set_wall_offset(wall_offset_ns());  // somebody may set the clock
    turns_.hear(base::now_ns(), rang);
    follow();
  }
}

// The timer is absolute and as exact as the kernel's clock. A sleep with a time-out may last 50 us
// too long.
void Arbiter::follow() {
  spin_until_ns_ = turns_.listen_until_ns();
  const uint64_t at_ns = turns_.look_again_ns();
  if (at_ns >= armed_ns_) return;  // we look earlier, and arm it again then
  armed_ns_ = at_ns;
  itimerspec when = {};
  when.it_value.tv_sec = static_cast<time_t>(at_ns / 1'000'000'000u);
  when.it_value.tv_nsec = static_cast<long>(at_ns % 1'000'000'000u);
  timerfd_settime(timer_.get(), TFD_TIMER_ABSTIME, &when, nullptr);
}

void Arbiter::open(uint64_t lease_id, const std::vector<wire::SliceGrant>& slices,
                   const wire::LeaseTerms& terms) {
  std::lock_guard<std::mutex> hold(mutex_);
  turns_.open(base::now_ns(), lease_id, slices, terms);
}

void Arbiter::change(uint64_t lease_id, const std::vector<wire::SliceGrant>& slices,
                     const wire::LeaseTerms& terms) {
  std::lock_guard<std::mutex> hold(mutex_);
  turns_.change(base::now_ns(), lease_id, slices, terms);
  follow();
}

void Arbiter::pause(uint64_t lease_id, bool paused) {
  std::lock_guard<std::mutex> hold(mutex_);
  turns_.pause(base::now_ns(), lease_id, paused);
  follow();
}

void Arbiter::set_gang(uint64_t lease_id, uint64_t gang) {
  std::lock_guard<std::mutex> hold(mutex_);
  turns_.set_gang(lease_id, gang);
}

bool Arbiter::in_gang(uint64_t lease_id) {
  std::lock_guard<std::mutex> hold(mutex_);
  return turns_.in_gang(lease_id);
}

void Arbiter::close(uint64_t lease_id) {
  std::lock_guard<std::mutex> hold(mutex_);
  turns_.close(base::now_ns(), lease_id);
  follow();
}

base::Result<Arbiter::Seat> Arbiter::join(uint64_t session_id, uint64_t lease_id) {
  auto page = SharedPage<wire::TurnPage>::create("tendril-turns");
  if (!page.ok()) return page.status();
  // Each worker has a bell of its own, because a worker could silence a shared one.
  base::Fd bell(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!bell.valid())
    return base::errno_status(Code::kExhausted, "cannot make a worker's bell", errno);
  auto place = std::make_unique<Place>(page.take(), std::move(bell));
  std::lock_guard<std::mutex> hold(mutex_);
  if (!turns_.has_lease(lease_id))
    return Status(Code::kClosed, "the lease ended while the session was being set up");
  // Edge-triggered: every ring wakes this thread, and nobody needs to read the bell.
  const Status watched = watch(place->bell.get(), session_id, EPOLLIN | EPOLLET);
  if (!watched.ok()) return watched;
  const Seat seat = {place->page.fd(), place->bell.get()};
  turns_.join(session_id, lease_id, place->page.get());
  places_[session_id] = std::move(place);
  return seat;
}

void Arbiter::leave(uint64_t session_id) {
  std::lock_guard<std::mutex> hold(mutex_);
  const auto found = places_.find(session_id);
  if (found == places_.end()) return;
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, found->second->bell.get(), nullptr);
  turns_.leave(base::now_ns(), session_id);
  places_.erase(found);
  follow();
}

std::vector<wire::SliceUse> Arbiter::use_of(uint64_t lease_id) {
  std::lock_guard<std::mutex> hold(mutex_);
  return turns_.use_of(base::now_ns(), lease_id);
}

void Arbiter::describe(uint64_t session_id, wire::SessionRecord* record) {
  std::lock_guard<std::mutex> hold(mutex_);
  turns_.describe(session_id, record);
}

lease::LeaseTurns::Work Arbiter::work_of(uint64_t lease_id) {
  std::lock_guard<std::mutex> hold(mutex_);
  return turns_.work_of(lease_id);
}

uint64_t Arbiter::used_ns(uint32_t gpu_index) {
  std::lock_guard<std::mutex> hold(mutex_);
  return turns_.used_ns(base::now_ns(), gpu_index);
}

uint64_t Arbiter::turns_given(uint32_t gpu_index) {
  std::lock_guard<std::mutex> hold(mutex_);
  return turns_.turns_given(gpu_index);
}

}  // namespace tendril::daemon
