// SPDX-License-Identifier: Apache-2.0
// Tokens, queues and the thread pool. See scheduler.h. Threads are detached, and everything global
// is leaked on purpose: a program may leave main while work runs.

#include "softgpu/driver/stream/scheduler.h"

#include <pthread.h>

#include <chrono>
#include <thread>

#include "softgpu/driver/stream/clock.h"

namespace tendril::softgpu {
namespace {

std::atomic<uint64_t> g_orders{0};

constexpr auto kIdleTime = std::chrono::seconds(2);  // a thread without work leaves after this

struct Pool {
  std::mutex lock;
  std::condition_variable changed;
  std::deque<std::function<void()>> tasks;
  unsigned idle = 0;
  std::atomic<unsigned> threads{0};
};

Pool& pool() {
  static auto& instance = *new Pool;
  return instance;
}

void pool_thread() {
  Clock::on_pool_thread();
  Pool& p = pool();
  std::unique_lock guard(p.lock);
  for (;;) {
    if (p.tasks.empty()) {
      ++p.idle;
      bool woken = p.changed.wait_for(guard, kIdleTime, [&] { return !p.tasks.empty(); });
      --p.idle;
      if (!woken) break;
    }
    std::function<void()> task = std::move(p.tasks.front());
    p.tasks.pop_front();
    guard.unlock();
    task();
    task = nullptr;
    Clock::instance().task_ends();
    guard.lock();
  }
  p.threads.fetch_sub(1);
}

}  // namespace

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

uint64_t next_order() { return g_orders.fetch_add(1, std::memory_order_relaxed) + 1; }

void run_on_pool(std::function<void()> what) {
  Clock::instance().task_begins();
  Pool& p = pool();
  bool start;
  {
    std::lock_guard guard(p.lock);
    p.tasks.push_back(std::move(what));
    start = p.idle < p.tasks.size();
    if (start) p.threads.fetch_add(1);
  }
  if (start) {
    std::thread(pool_thread).detach();
  } else {
    p.changed.notify_one();
  }
}

unsigned pool_threads() { return pool().threads.load(); }

void Token::wait() {
  if (done()) return;
  std::unique_lock guard(lock_);
  if (done()) return;
  ++(Clock::is_pool_thread() ? pool_waiters_ : program_waiters_);
  Clock::instance().blocks();
  changed_.wait(guard, [&] { return done(); });
}

bool Token::wait_ms(int64_t timeout_ms) {
  std::unique_lock guard(lock_);
  if (done()) return true;
  uint32_t& waiters = Clock::is_pool_thread() ? pool_waiters_ : program_waiters_;
  ++waiters;
  Clock::instance().blocks();
  if (changed_.wait_for(guard, std::chrono::milliseconds(timeout_ms), [&] { return done(); }))
    return true;
  --waiters;
  Clock::instance().resumes(Clock::is_pool_thread() ? 0 : 1, Clock::is_pool_thread() ? 1 : 0);
  return false;
}

void Token::then(std::function<void()> what) {
  {
    std::lock_guard guard(lock_);
    if (!done()) {
      waiting_.push_back(std::move(what));
      return;
    }
  }
  what();
}

void Token::complete() {
  std::vector<std::function<void()>> ready;
  {
    std::lock_guard guard(lock_);
    done_.store(true, std::memory_order_release);
    // Those who waited run from here on, even if the host lets them wait longer. The clock must not
    // move meanwhile.
    Clock::instance().resumes(program_waiters_, pool_waiters_);
    ready.swap(waiting_);
    changed_.notify_all();
  }
  for (auto& what : ready) what();
}

TokenPtr Queue::push(QueuedOp op) {
  Clock::instance().submits();
  op.order = next_order();
  if (!op.token) op.token = std::make_shared<Token>();
  TokenPtr token = op.token;
  TokenPtr missing;
  for (const TokenPtr& other : op.after) {
    if (!other->done()) missing = other;
  }
  {
    std::lock_guard guard(lock_);
    last_ = token;
    ops_.push_back(std::move(op));
    if (active_) return token;
    active_ = true;
  }
  auto start = [self = shared_from_this()] { run_on_pool([self] { self->drain(); }); };
  if (missing) {
    missing->then(std::move(start));  // wakes no thread that would only find that it must wait
  } else {
    start();
  }
  return token;
}

TokenPtr Queue::push_inline(QueuedOp op, std::unique_lock<std::mutex>& order) {
  if (Clock::instance().timed()) {  // it may have to wait for its time
    TokenPtr token = push(std::move(op));
    order.unlock();
    return token;
  }
  charge().order = op.order = next_order();
  if (!op.token) op.token = std::make_shared<Token>();
  TokenPtr token = op.token;
  {
    std::lock_guard guard(lock_);
    last_ = token;
    if (active_) {
      ops_.push_back(std::move(op));
      return token;
    }
    active_ = true;
  }
  order.unlock();
  op.run();
  op.run = nullptr;
  token->complete();
  {
    std::lock_guard guard(lock_);
    active_ = !ops_.empty();
    if (!active_) return token;
  }
  run_on_pool([self = shared_from_this()] { self->drain(); });
  return token;
}

TokenPtr Queue::in_the_way() const {
  constexpr size_t kOpsMax = 1024;  // about what NVIDIA's driver takes of a stream
  std::lock_guard guard(lock_);
  return ops_.size() < kOpsMax ? nullptr : ops_.front().token;
}

TokenPtr Queue::last() const {
  std::lock_guard guard(lock_);
  return last_ && !last_->done() ? last_ : nullptr;
}

void Queue::drain() {
  for (;;) {
    TokenPtr missing;
    QueuedOp op;
    {
      std::lock_guard guard(lock_);
      if (ops_.empty()) {
        active_ = false;
        return;
      }
      for (const TokenPtr& other : ops_.front().after)
        if (!other->done()) missing = other;
      if (!missing) {
        op = std::move(ops_.front());
        ops_.pop_front();
      }
    }
    if (missing) {
      missing->then([self = shared_from_this()] { run_on_pool([self] { self->drain(); }); });
      return;
    }
    charge() = {};
    charge().order = op.order;
    op.run();
    op.run = nullptr;  // releases what the work holds before anyone learns of its end
    op.after.clear();
    if (Clock::instance().timed() && charge().ns > 0) {
      const Charge used = charge();
      charge() = {};
      Clock::instance().submit(used, [self = shared_from_this(), token = op.token] {
        token->complete();
        self->go_on();
      });
      return;
    }
    op.token->complete();
  }
}

// After an operation whose time is over.
void Queue::go_on() {
  {
    std::lock_guard guard(lock_);
    active_ = !ops_.empty();
    if (!active_) return;
  }
  run_on_pool([self = shared_from_this()] { self->drain(); });
}

}  // namespace tendril::softgpu
