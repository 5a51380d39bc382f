// SPDX-License-Identifier: Apache-2.0
// A futex and a small lock that spins briefly and then sleeps. Used in the place of std::mutex: it
// is four bytes, costs two atomic operations without contention, never throws, and can be reset in
// a forked child. Any thread.
#pragma once

#include <atomic>
#include <cstdint>

namespace tendril::base {

// Sleeps while *word == expected, at most timeout_us (< 0: without limit). May wake without cause,
// so callers loop. `shared`: the word lies in memory that processes share.
void futex_wait(const std::atomic<uint32_t>* word, uint32_t expected, int64_t timeout_us,
                bool shared = false);
void futex_wake(const std::atomic<uint32_t>* word, int count, bool shared = false);

class Lock {
 public:
  bool try_lock() {
    uint32_t expected = 0;
    return state_.compare_exchange_strong(expected, 1, std::memory_order_acquire,
                                          std::memory_order_relaxed);
  }
  void lock() {
    if (!try_lock()) lock_slow();
  }
  // For a lock that is held a little longer, such as for a system call: spins up to so many
  // microseconds before it sleeps.
  void lock(uint32_t spin_us);
  void unlock() {
    if (state_.exchange(0, std::memory_order_release) == 2) futex_wake(&state_, 1);
  }
  // For a forked child, where the holder may not exist.
  void reset_after_fork() { state_.store(0, std::memory_order_relaxed); }

 private:
  void lock_slow();
  std::atomic<uint32_t> state_{0};  // 0 free, 1 held, 2 held and somebody may sleep
};

class Locked {
 public:
  explicit Locked(Lock& lock) : lock_(lock) { lock_.lock(); }
  Locked(Lock& lock, uint32_t spin_us) : lock_(lock) { lock_.lock(spin_us); }
  ~Locked() { lock_.unlock(); }
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;

 private:
  Lock& lock_;
};

// A counter to sleep on: read it, look at the state it guards, then wait until the counter changes.
class Event {
 public:
  uint32_t read() const { return count_.load(std::memory_order_seq_cst); }
  void signal() {
    count_.fetch_add(1, std::memory_order_seq_cst);
    if (sleepers_.load(std::memory_order_seq_cst) != 0) futex_wake(&count_, INT32_MAX);
  }
  void wait(uint32_t seen, int64_t timeout_us) {
    sleepers_.fetch_add(1, std::memory_order_seq_cst);
    if (count_.load(std::memory_order_seq_cst) == seen) futex_wait(&count_, seen, timeout_us);
    sleepers_.fetch_sub(1, std::memory_order_seq_cst);
  }

 private:
  std::atomic<uint32_t> count_{0};
  std::atomic<uint32_t> sleepers_{0};
};

}  // namespace tendril::base
