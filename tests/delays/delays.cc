// SPDX-License-Identifier: Apache-2.0
// Preloaded into whatever a test starts, this makes threads late where they speak to each other: at
// sockets, polls, locks, futexes and their own beginning, at random and for milliseconds. A test,
// or the code under it, may take an order for granted. Then it fails here in minutes; on a busy
// machine it would fail once in a thousand runs. Only tests preload it; `scripts/longtest delays`
// uses it for all of them. It must never change what a call does or answers, errno included.
//   TENDRIL_DELAYS_ONE_IN  one call in so many is late (default 200)
//   TENDRIL_DELAYS_MAX_US  by at most this (default 3000)
#include <dlfcn.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdlib>

namespace {

// The real call. No lock, and nothing that runs at start: the first caller may be a constructor.
template <typename F>
F* behind(std::atomic<F*>& known, const char* name) {
  F* real = known.load(std::memory_order_relaxed);
  if (real == nullptr) {
    real = reinterpret_cast<F*>(dlsym(RTLD_NEXT, name));
    known.store(real, std::memory_order_relaxed);
  }
  return real;
}

long real_syscall(long number, long a = 0, long b = 0, long c = 0, long d = 0, long e = 0,
                  long f = 0) {
  static std::atomic<long (*)(long, ...)> known{nullptr};
  return behind(known, "syscall")(number, a, b, c, d, e, f);
}

uint32_t number_of(const char* name, uint32_t otherwise) {
  const char* text = getenv(name);
  const unsigned long number = text == nullptr ? 0 : strtoul(text, nullptr, 10);
  return number > 0 ? uint32_t(number) : otherwise;
}

// Each thread's own, seeded by the time of its first use. So each run takes other chances, which is
// the point.
uint64_t chance() {
  static thread_local uint64_t state = 0;
  if (state == 0) {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    state = (uint64_t(now.tv_nsec) * 2654435761u ^ reinterpret_cast<uintptr_t>(&state)) | 1;
  }
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return state >> 16;
}

void sleep_up_to(uint32_t max_us) {
  const timespec time{0, long(chance() % max_us) * 1000};
  real_syscall(SYS_nanosleep, reinterpret_cast<long>(&time));
}

void late() {
  static std::atomic<uint32_t> one_in{0}, max_us{0};
  const int error = errno;
  if (one_in.load(std::memory_order_acquire) == 0) {
    max_us.store(number_of("TENDRIL_DELAYS_MAX_US", 3000), std::memory_order_relaxed);
    one_in.store(number_of("TENDRIL_DELAYS_ONE_IN", 200), std::memory_order_release);
  }
  const uint64_t drawn = chance();
  if (drawn % one_in.load(std::memory_order_relaxed) == 0) {
    sleep_up_to(max_us.load(std::memory_order_relaxed));
  } else if (drawn % 32 == 1) {
    real_syscall(SYS_sched_yield);
  }
  errno = error;
}

struct Start {
  void* (*run)(void*);
  void* argument;
};

void* start_late(void* given) {
  const Start start = *static_cast<Start*>(given);
  free(given);
  if (chance() % 4 == 0) sleep_up_to(5000);
  return start.run(start.argument);
}

}  // namespace

#define TENDRIL_LATE(result, name, parameters, arguments, before) \
  extern "C" result name parameters {                             \
    static std::atomic<result(*) parameters> known{nullptr};      \
    auto* real = behind(known, #name);                            \
    if (before) late();                                           \
    const result answer = real arguments;                         \
    late();                                                       \
    return answer;                                                \
  }

TENDRIL_LATE(ssize_t, send, (int fd, const void* data, size_t bytes, int flags),
             (fd, data, bytes, flags), true)
TENDRIL_LATE(ssize_t, sendmsg, (int fd, const msghdr* message, int flags), (fd, message, flags),
             true)
TENDRIL_LATE(ssize_t, recv, (int fd, void* into, size_t bytes, int flags), (fd, into, bytes, flags),
             false)
TENDRIL_LATE(ssize_t, recvmsg, (int fd, msghdr* message, int flags), (fd, message, flags), false)
TENDRIL_LATE(ssize_t, write, (int fd, const void* data, size_t bytes), (fd, data, bytes), false)
TENDRIL_LATE(ssize_t, writev, (int fd, const iovec* parts, int count), (fd, parts, count), false)
TENDRIL_LATE(int, poll, (pollfd * fds, nfds_t count, int timeout_ms), (fds, count, timeout_ms),
             false)
TENDRIL_LATE(int, epoll_wait, (int fd, epoll_event* found, int max, int wait_ms),
             (fd, found, max, wait_ms), false)
TENDRIL_LATE(int, pthread_mutex_lock, (pthread_mutex_t * mutex) noexcept, (mutex), true)
TENDRIL_LATE(int, pthread_mutex_unlock, (pthread_mutex_t * mutex) noexcept, (mutex), false)

extern "C" long syscall(long number, ...) noexcept {
  va_list list;
  va_start(list, number);
  long given[6];
  for (long& one : given) one = va_arg(list, long);
  va_end(list);
  const bool wakes_or_waits =
      number == SYS_futex;  // of std::atomic, and of code here that calls the kernel itself
  if (wakes_or_waits) late();
  const long answer =
      real_syscall(number, given[0], given[1], given[2], given[3], given[4], given[5]);
  if (wakes_or_waits) late();
  return answer;
}

extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes,
                              void* (*run)(void*), void* argument) noexcept {
  static std::atomic<int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*)> known{
      nullptr};
  auto* start = static_cast<Start*>(malloc(sizeof(Start)));
  if (start == nullptr) return EAGAIN;
  *start = {run, argument};
  const int result = behind(known, "pthread_create")(thread, attributes, start_late, start);
  if (result != 0) free(start);
  late();
  return result;
}
