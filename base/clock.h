// SPDX-License-Identifier: Apache-2.0
// Time, and the primitive of busy waiting. Any thread; never fails. Durations and deadlines are of
// the monotonic clock only.
#pragma once

#include <sched.h>
#include <time.h>

#include <atomic>
#include <cstdint>

namespace tendril::base {

inline uint64_t now_ns() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return uint64_t(t.tv_sec) * 1'000'000'000u + uint64_t(t.tv_nsec);
}
// For people, for logs, and for what servers do at one time without talking to each other.
inline uint64_t wall_ns() {
  timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  return uint64_t(t.tv_sec) * 1'000'000'000u + uint64_t(t.tv_nsec);
}
inline uint64_t now_us() { return now_ns() / 1000; }

// Tells the core that this is a busy wait.
inline void cpu_pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield" ::: "memory");
#endif
}

// Number of processors that this process may run on, read once. Nothing spins when there is only
// one.
unsigned usable_cpus();
// So many that a thread may spin for long. With fewer, whoever spins is soon in the way.
inline bool has_many_cpus() { return usable_cpus() >= 8; }

// A busy wait of bounded length. The awaited thread may need this very processor. So after a few
// microseconds the wait yields now and then; not always, because each yield costs as much as a
// look. On few processors it also ends as soon as a yield shows that others want this processor:
// GPU work that takes processors, as the software GPU's does, would get half of it otherwise.
class Spin {
 public:
  explicit Spin(uint32_t limit_us) : limit_ns_(uint64_t{limit_us} * 1000) {}
  // Call after a look that found nothing. False: stop waiting.
  bool again() {
    if (limit_ns_ == 0) return false;
    const uint64_t now = now_ns();
    if (begun_ns_ == 0) begun_ns_ = now;
    const uint64_t spent_ns = now - begun_ns_;
    if (spent_ns >= limit_ns_) return false;
    if (spent_ns >= yield_at_ns_) {
      yield_at_ns_ = spent_ns + kYieldEveryNs;
      sched_yield();
      if (!has_many_cpus() && now_ns() - now > kWantedNs) return false;
    }
    return true;
  }
  // Something came: the next wait starts from the beginning.
  void reset() {
    begun_ns_ = 0;
    yield_at_ns_ = kYieldAfterNs;
  }

 private:
  static constexpr uint64_t kYieldAfterNs =
      10'000;  // longer than a round trip over shared memory, or loopback
  static constexpr uint64_t kYieldEveryNs = 2'000;
  // A yield that lets nobody run takes less than 1 us, an answer of a peer less than this.
  static constexpr uint64_t kWantedNs = 50'000;
  const uint64_t limit_ns_;
  uint64_t begun_ns_ = 0, yield_at_ns_ = kYieldAfterNs;
};

// How long to spin in a wait of a kind that comes again and again, from how long the last one took.
// On few processors a thread that spins through GPU work keeps others from them, and a wake-up is
// little beside such a wait. So after a long wait the next one sleeps at once. Any thread.
class LearntSpin {
 public:
  uint32_t spin_us(uint32_t most_us) const {
    const bool is_short = last_ns_.load(std::memory_order_relaxed) < kShortNs;
    return is_short || has_many_cpus() ? most_us : 0;
  }
  void took(uint64_t ns) { last_ns_.store(ns, std::memory_order_relaxed); }

 private:
  // Longer than a round trip in which both ends sleep.
  static constexpr uint64_t kShortNs = 150'000;
  std::atomic<uint64_t> last_ns_{0};
};

// A point in time that a wait must not pass; timeout_ms < 0: none.
class Deadline {
 public:
  explicit Deadline(int timeout_ms)
      : at_ns_(timeout_ms < 0 ? UINT64_MAX : now_ns() + uint64_t(timeout_ms) * 1'000'000u) {}
  bool passed() const { return at_ns_ != UINT64_MAX && now_ns() >= at_ns_; }
  // For poll(2): -1 = for ever, otherwise at least 0, rounded up.
  int left_ms() const {
    if (at_ns_ == UINT64_MAX) return -1;
    uint64_t now = now_ns();
    if (now >= at_ns_) return 0;
    uint64_t left = (at_ns_ - now + 999'999u) / 1'000'000u;
    return left > 0x7fffffff ? 0x7fffffff : int(left);
  }

 private:
  uint64_t at_ns_;
};

// How long a thread that waits for GPU work looks for its end before it sleeps:
// TENDRIL_WAIT_SPIN_US. A driver spins while there are more processors than contexts. Where there
// are many processors we spin too, up to a bound: each sleep on the way there and back costs a
// wake-up before the GPU has work again (0.4 ms in all on an H200's host). 0 on one processor.
uint32_t wait_spin_us();

}  // namespace tendril::base
