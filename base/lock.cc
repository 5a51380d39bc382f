// SPDX-License-Identifier: Apache-2.0
// The slow halves of lock.h.
#include "base/lock.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

namespace tendril::base {

void futex_wait(const std::atomic<uint32_t>* word, uint32_t expected, int64_t timeout_us,
                bool shared) {
  timespec t;
  if (timeout_us >= 0) {
    t.tv_sec = time_t(timeout_us / 1'000'000);
    t.tv_nsec = long(timeout_us % 1'000'000) * 1000;
  }
  int operation = shared ? FUTEX_WAIT : FUTEX_WAIT | FUTEX_PRIVATE_FLAG;
  syscall(SYS_futex, word, operation, expected, timeout_us >= 0 ? &t : nullptr, nullptr, 0);
}

void futex_wake(const std::atomic<uint32_t>* word, int count, bool shared) {
  int operation = shared ? FUTEX_WAKE : FUTEX_WAKE | FUTEX_PRIVATE_FLAG;
  syscall(SYS_futex, word, operation, count, nullptr, nullptr, 0);
}

void Lock::lock_slow() {
  // About 2 us of spinning. That is longer than encoding one call and shorter than a sleep and
  // wake-up.
  int spins = usable_cpus() > 1 ? 60 : 0;
  for (int i = 0; i < spins; ++i) {
    cpu_pause();
    if (state_.load(std::memory_order_relaxed) == 0 && try_lock()) return;
  }
  while (state_.exchange(2, std::memory_order_acquire) != 0) futex_wait(&state_, 2, -1);
}

void Lock::lock(uint32_t spin_us) {
  Spin spin(usable_cpus() > 1 ? spin_us : 0);
  while (!try_lock()) {
    if (!spin.again()) return lock_slow();
    for (int i = 0; i < 16; ++i) cpu_pause();
  }
}

}  // namespace tendril::base
