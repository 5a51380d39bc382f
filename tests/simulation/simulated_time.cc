// SPDX-License-Identifier: Apache-2.0
// See simulated_time.h.
#include "tests/simulation/simulated_time.h"

#include <errno.h>
#include <linux/futex.h>
#include <stdarg.h>
#include <sys/syscall.h>
#include <time.h>

#include <algorithm>

namespace tendril::simulation {
namespace {

constexpr size_t kStackBytes = 256 << 10;
SimulatedTime* the_time = nullptr;

}  // namespace

SimulatedTime::SimulatedTime() { the_time = this; }
SimulatedTime::~SimulatedTime() { the_time = nullptr; }
SimulatedTime* SimulatedTime::active() {
  return the_time != nullptr && (the_time->running_ != nullptr || !the_time->runs_) ? the_time
                                                                                    : nullptr;
}

void SimulatedTime::at(uint64_t time_ns, std::function<void()> action) {
  events_.push({std::max(time_ns, now_ns_), order_++, std::move(action)});
}

void SimulatedTime::enter() {
  the_time->running_->body();
  the_time->leave();  // for good
}

void SimulatedTime::start(std::function<void()> body) {
  Fiber* const fiber = fibers_.emplace_back(std::make_unique<Fiber>()).get();
  fiber->stack.reset(new char[kStackBytes]);
  fiber->body = std::move(body);
  getcontext(&fiber->context);
  fiber->context.uc_stack.ss_sp = fiber->stack.get();
  fiber->context.uc_stack.ss_size = kStackBytes;
  fiber->context.uc_link = nullptr;
  makecontext(&fiber->context, enter, 0);
  at(now_ns_, [this, fiber] { resume(fiber); });
}

void SimulatedTime::resume(Fiber* fiber) {
  running_ = fiber;
  swapcontext(&main_, &fiber->context);
  running_ = nullptr;
}

void SimulatedTime::leave() { swapcontext(&running_->context, &main_); }

void SimulatedTime::run(uint64_t until_ns) {
  until_ns_ = until_ns;
  runs_ = true;
  while (!events_.empty() && events_.top().time_ns <= until_ns_) {
    const Event event = events_.top();
    events_.pop();
    now_ns_ = event.time_ns;
    event.action();
  }
  runs_ = false;
  now_ns_ = until_ns_;
}

void SimulatedTime::spend(uint64_t ns) {
  const uint64_t then_ns = now_ns_ + ns;
  if (running_ == nullptr) return run(then_ns);
  if (then_ns <= until_ns_ && (events_.empty() || events_.top().time_ns > then_ns)) {
    now_ns_ = then_ns;  // nothing happens meanwhile
    return;
  }
  Fiber* const me = running_;
  at(then_ns, [this, me] { resume(me); });
  leave();
}

bool SimulatedTime::sleep(const void* word, uint64_t most_ns) {
  if (running_ == nullptr) {
    outside_word_ = word;
    outside_woken_ = false;
    run(now_ns_ + most_ns + kOversleptNs);
    outside_word_ = nullptr;
    return outside_woken_;
  }
  Fiber* const me = running_;
  const uint64_t number = ++me->sleeps;
  me->word = word;
  me->sleeping = true;
  me->woken = false;
  at(now_ns_ + most_ns + kOversleptNs, [this, me, number] {
    if (me->sleeping && me->sleeps == number) resume(me);
  });
  leave();
  me->sleeping = false;
  return me->woken;
}

void SimulatedTime::wake(const void* word) {
  if (outside_word_ == word && !outside_woken_) {
    outside_woken_ = true;
    until_ns_ = std::min(until_ns_, now_ns_ + kWakeNs);
  }
  for (const std::unique_ptr<Fiber>& fiber : fibers_) {
    if (!fiber->sleeping || fiber->woken || fiber->word != word) continue;
    fiber->woken = true;
    at(now_ns_ + kWakeNs, [this, who = fiber.get(), number = fiber->sleeps] {
      if (who->sleeping && who->sleeps == number) resume(who);
    });
  }
}

}  // namespace tendril::simulation

using tendril::simulation::SimulatedTime;

extern "C" {

int __real_clock_gettime(clockid_t clock, timespec* time);
int __real_nanosleep(const timespec* time, timespec* left);
int __real_sched_yield();
long __real_syscall(long number, ...);

int __wrap_clock_gettime(clockid_t clock, timespec* time) {
  SimulatedTime* const simulated = SimulatedTime::active();
  if (simulated == nullptr) return __real_clock_gettime(clock, time);
  simulated->spend(SimulatedTime::kLookNs);
  time->tv_sec = static_cast<time_t>(simulated->now_ns() / 1'000'000'000);
  time->tv_nsec = static_cast<long>(simulated->now_ns() % 1'000'000'000);
  return 0;
}

int __wrap_nanosleep(const timespec* time, timespec* left) {
  SimulatedTime* const simulated = SimulatedTime::active();
  if (simulated == nullptr) return __real_nanosleep(time, left);
  simulated->spend(static_cast<uint64_t>(time->tv_nsec) + SimulatedTime::kOversleptNs);
  return 0;
}

int __wrap_sched_yield() {
  SimulatedTime* const simulated = SimulatedTime::active();
  if (simulated == nullptr) return __real_sched_yield();
  simulated->spend(SimulatedTime::kYieldNs);
  return 0;
}

long __wrap_syscall(long number, ...) {
  va_list list;
  va_start(list, number);
  long a[6];
  for (long& each : a) each = va_arg(list, long);
  va_end(list);
  SimulatedTime* const simulated = SimulatedTime::active();
  if (simulated == nullptr || number != SYS_futex || a[1] != FUTEX_WAIT)
    return __real_syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
  const auto* const word = reinterpret_cast<const uint32_t*>(a[0]);
  const auto* const most = reinterpret_cast<const timespec*>(a[3]);
  errno = EAGAIN;
  if (*word != static_cast<uint32_t>(a[2])) return -1;
  if (simulated->sleep(word, static_cast<uint64_t>(most->tv_nsec))) return 0;
  errno = ETIMEDOUT;
  return -1;
}

}  // extern "C"
