// SPDX-License-Identifier: Apache-2.0
// See clock.h.

#include "softgpu/driver/stream/clock.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>

#include "softgpu/driver/config.h"
#include "softgpu/driver/stream/scheduler.h"

namespace tendril::softgpu {
namespace {

// A program that asks so often in a row without submitting anything waits in a loop. A few queries
// are no wait: the worker looks at its events now and then.
constexpr uint32_t kQuestions = 64;
constexpr int64_t kTakerPatienceMs = 3'600'000;

enum class Role : uint8_t { kProgram, kPool, kTaker };

Role& role() {
  static thread_local Role mine = Role::kProgram;
  return mine;
}

struct Ends {
  std::mutex lock;
  std::unordered_map<uint64_t, std::function<void()>> waiting;
  uint64_t next_cookie = 1;
};

Ends& ends() {
  static auto& instance = *new Ends;
  return instance;
}

std::atomic<uint32_t> g_questions{0};

void take_ends(Timeline* timeline) {
  role() = Role::kTaker;
  for (;;) {
    uint64_t cookie = 0;
    if (!timeline->next_end(kTakerPatienceMs, &cookie)) continue;
    std::function<void()> done;
    {
      std::lock_guard guard(ends().lock);
      auto found = ends().waiting.find(cookie);
      done = std::move(found->second);
      ends().waiting.erase(found);
    }
    done();
    timeline->delivered();
  }
}

}  // namespace

Charge& charge() {
  static thread_local Charge mine;
  return mine;
}

Clock::Clock() : mode_(config().mode), timeline_(board()) {}

Clock& Clock::instance() {
  static Clock& clock = *new Clock;
  return clock;
}

int64_t Clock::now_ns() {
  return timed() ? timeline_.now_ns() + charge().ns : tendril::softgpu::now_ns();
}

void Clock::start_taking() {
  static std::once_flag once;
  std::call_once(once, [this] { std::thread(take_ends, &timeline_).detach(); });
}

void Clock::submit(const Charge& charge, std::function<void()> done) {
  start_taking();
  JobRequest request;
  request.device = charge.device;
  request.engine = charge.engine;
  request.context = charge.context;
  request.cost_ns = charge.ns;
  request.order = charge.order;
  {
    std::lock_guard guard(ends().lock);
    request.cookie = ends().next_cookie++;
    ends().waiting[request.cookie] = std::move(done);
  }
  timeline_.submit(request);
}

void Clock::cancel(uint64_t context) {
  if (timed()) timeline_.cancel(context);
}

void Clock::sleep(int64_t ns) {
  if (ns <= 0) return;
  if (!timed()) {
    std::this_thread::sleep_for(std::chrono::nanoseconds(ns));
    return;
  }
  auto token = std::make_shared<Token>();
  Charge timer;
  timer.engine = Engine::kTimer;
  timer.ns = ns;
  timer.order = next_order();
  submits();
  submit(timer, [token] { token->complete(); });
  token->wait();
}

void Clock::submits() {
  if (!simulated() || role() != Role::kProgram) return;
  g_questions.store(0, std::memory_order_relaxed);
  timeline_.host_runs();
}

void Clock::blocks() {
  if (!simulated()) return;
  if (role() == Role::kPool) {
    timeline_.task_ends();
  } else {
    timeline_.host_blocks();
  }
}

void Clock::resumes(uint32_t program_threads, uint32_t pool_threads) {
  if (!simulated()) return;
  if (program_threads != 0) timeline_.host_resumes(program_threads);
  if (pool_threads != 0) timeline_.tasks_resume(pool_threads);
}

void Clock::task_begins() {
  if (simulated()) timeline_.task_begins();
}

void Clock::task_ends() {
  if (simulated()) timeline_.task_ends();
}

void Clock::asked_in_vain() {
  if (simulated() && g_questions.fetch_add(1, std::memory_order_relaxed) + 1 >= kQuestions)
    timeline_.host_polls();
}

void Clock::on_pool_thread() { role() = Role::kPool; }

bool Clock::is_pool_thread() { return role() == Role::kPool; }

}  // namespace tendril::softgpu
