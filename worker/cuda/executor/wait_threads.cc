// SPDX-License-Identifier: Apache-2.0
// The threads of waits.h. Their number is bounded, because a client decides how many waits there
// are.
#include <algorithm>
#include <chrono>

#include "worker/cuda/executor/waits.h"

namespace tendril::worker::cuda {
namespace {

// Threads that sleep for waits. Each context that is waited for has one more.
constexpr unsigned kSleepersMax = 32;
// How often one thread looks at the waits for which no thread is left.
constexpr std::chrono::microseconds kLook{200};
constexpr std::chrono::milliseconds kAttend{1};

}  // namespace

bool Waiters::end_after_use(WaitKind kind, void* object) {
  for (size_t i = 0; i < polled_.size();) {
    if (used_by(polled_[i]) == object)
      hand_over(take_polled(i));
    else
      ++i;
  }
  const std::lock_guard<std::mutex> hold(mutex_);
  const auto use = uses_.find(object);
  if (use == uses_.end()) return false;
  use->second.destroy = true;
  use->second.kind = kind;
  return true;
}

// Without any thread the executor waits itself.
bool Waiters::hand_over(Wait wait) {
  const bool of_call = wait.delivered == nullptr;
  if (of_call && wait.owner == nullptr) wait.owner = owner_of(wait);
  {
    const std::lock_guard<std::mutex> hold(mutex_);
    if (threads_ != 0 || start(thread_main)) {
      give_to_thread(wait);
      return true;
    }
  }
  if (!of_call) return false;
  const CUcontext before = executor_->contexts().current_in_driver();
  sleep_until_done(wait);
  executor_->contexts().forget_current();
  if (before != nullptr) executor_->contexts().use(before);
  return true;
}

// mutex_ held.
bool Waiters::start(void* (*main)(void*)) {
  pthread_t thread;
  if (pthread_create(&thread, nullptr, main, this) != 0) return false;
  pthread_detach(thread);
  if (main != thread_main) return true;
  ++threads_;
  ++idle_threads_;  // until it takes something
  return true;
}

// mutex_ held.
void Waiters::give_to_thread(const Wait& wait) {
  if (void* object = used_by(wait)) ++uses_[object].waits;
  if (wait.kind == WaitKind::kContext && wait.delivered == nullptr) {
    const auto [waits, fresh] = of_contexts_.try_emplace(wait.driver_context);
    waits->second.push_back(wait);
    if (!fresh) return;  // its thread looks again
    waiting_contexts_.push_back(wait.driver_context);
  } else {
    sleeping_.push_back(wait);
    if (sleepers_ + sleeping_.size() > kSleepersMax) {
      if (!looking_) looking_ = start(look_main);
      looked_at_.notify_one();
    }
  }
  const bool room = threads_ < kSleepersMax + of_contexts_.size();
  if (room && sleeping_.size() + waiting_contexts_.size() > idle_threads_) start(thread_main);
  handed_over_.notify_one();
}

// mutex_ held: is there something for a thread that has nothing to do?
bool Waiters::may_take() const {
  return !waiting_contexts_.empty() || (!sleeping_.empty() && sleepers_ < kSleepersMax);
}

void* Waiters::thread_main(void* self) {
  Waiters* waiters = static_cast<Waiters*>(self);
  Hold hold(waiters->mutex_);
  for (;;) {
    waiters->handed_over_.wait(hold, [waiters] { return waiters->may_take() || waiters->ending_; });
    if (!waiters->may_take()) break;
    --waiters->idle_threads_;
    waiters->take_next(&hold);
    ++waiters->idle_threads_;
  }
  --waiters->idle_threads_;
  --waiters->threads_;
  waiters->thread_ended_.notify_one();
  return nullptr;
}

void Waiters::take_next(Hold* hold) {
  if (!waiting_contexts_.empty()) {
    const CUcontext context = waiting_contexts_.front();
    waiting_contexts_.pop_front();
    return sleep_for_context(context, hold);
  }
  const Wait wait = sleeping_.front();
  sleeping_.pop_front();
  under_way_.push_back(wait);
  ++sleepers_;
  hold->unlock();
  sleep_until_done(wait);
  hold->lock();
  --sleepers_;
  over(wait, hold);
}

// Whoever comes while the thread is in the driver may wait for more than that call does.
void Waiters::sleep_for_context(CUcontext context, Hold* hold) {
  for (;;) {
    const auto waiting = of_contexts_.find(context);
    std::vector<Wait> waits;
    waits.swap(waiting->second);
    if (waits.empty()) {
      of_contexts_.erase(waiting);
      return;
    }
    under_way_.insert(under_way_.end(), waits.begin(), waits.end());
    hold->unlock();
    gpu::Driver& driver = executor_->driver();
    driver.cuCtxSetCurrent(context);
    const CUresult result = driver.cuCtxSynchronize();
    for (const Wait& wait : waits) complete(wait, result, false);
    executor_->service().flush();
    hold->lock();
    for (const Wait& wait : waits) over(wait, hold);
  }
}

// For any number of waits, when no thread is left that could sleep. It never waits in the driver,
// because some of these may need what others do when they are over.
void* Waiters::look_main(void* self) {
  Waiters* waiters = static_cast<Waiters*>(self);
  std::vector<Wait> mine;
  Hold hold(waiters->mutex_);
  const auto left_over = [waiters] {
    return !waiters->sleeping_.empty() &&
           waiters->sleepers_ + waiters->sleeping_.size() > kSleepersMax;
  };
  for (;;) {
    while (left_over()) {
      mine.push_back(waiters->sleeping_.front());
      waiters->under_way_.push_back(mine.back());
      waiters->sleeping_.pop_front();
    }
    if (mine.empty()) {
      if (waiters->ending_) break;
      waiters->looked_at_.wait(hold);
      continue;
    }
    if (!waiters->look_at(&mine, waiters->ending_context_, &hold))
      waiters->looked_at_.wait_for(hold, kLook);
  }
  waiters->looking_ = false;
  waiters->thread_ended_.notify_one();
  return nullptr;
}

// False: none of the waits was over.
bool Waiters::look_at(std::vector<Wait>* waits, CUcontext ending, Hold* hold) {
  gpu::Driver& driver = executor_->driver();
  std::vector<Wait> left, ended;
  hold->unlock();
  for (Wait& wait : *waits) {
    CUresult result = CUDA_SUCCESS;
    if (wait.delivered == nullptr) {
      driver.cuCtxSetCurrent(wait.driver_context);
      result = query(&wait);
      if (result == CUDA_ERROR_NOT_READY && ending != nullptr && concerns(wait, ending))
        result = CUDA_ERROR_CONTEXT_IS_DESTROYED;
    }
    if (result == CUDA_ERROR_NOT_READY) {
      left.push_back(wait);
      continue;
    }
    if (wait.delivered != nullptr || result == CUDA_SUCCESS)
      sleep_until_done(wait);  // it returns at once
    else
      complete(wait, result, false);
    ended.push_back(wait);
  }
  if (!ended.empty()) executor_->service().flush();
  hold->lock();
  for (const Wait& wait : ended) over(wait, hold);
  waits->swap(left);
  return !ended.empty();
}

// A thread has done the wait. mutex_ held, except while an object is destroyed.
void Waiters::over(const Wait& wait, Hold* hold) {
  const auto use = uses_.find(used_by(wait));
  if (use != uses_.end() && --use->second.waits == 0) {
    const auto [object, last] = *use;
    uses_.erase(use);
    hold->unlock();
    gpu::Driver& driver = executor_->driver();
    if (last.destroy && last.kind == WaitKind::kEvent)
      driver.cuEventDestroy_v2(static_cast<CUevent>(object));
    else if (last.destroy)
      driver.cuStreamDestroy_v2(static_cast<CUstream>(object));
    hold->lock();
  }
  const auto same = [&wait](const Wait& other) {
    return other.reply_id == wait.reply_id && other.begun_ns == wait.begun_ns &&
           other.delivered == wait.delivered;
  };
  const auto one = std::find_if(under_way_.begin(), under_way_.end(), same);
  if (one != under_way_.end()) {
    *one = under_way_.back();
    under_way_.pop_back();
  }
  wait_ended_.notify_all();
}

// Those that no thread has begun.
void Waiters::end_waiting(CUcontext context, Hold* hold) {
  std::vector<Wait> waits;
  const auto of_context = of_contexts_.find(context);
  if (of_context != of_contexts_.end()) waits.swap(of_context->second);
  for (auto it = sleeping_.begin(); it != sleeping_.end();) {
    if (it->delivered != nullptr || !concerns(*it, context)) {
      ++it;
      continue;
    }
    waits.push_back(*it);
    it = sleeping_.erase(it);
  }
  hold->unlock();
  for (const Wait& wait : waits) complete(wait, CUDA_ERROR_CONTEXT_IS_DESTROYED, true);
  hold->lock();
  for (const Wait& wait : waits) over(wait, hold);
}

bool Waiters::end_waits_of(CUcontext context) {
  for (size_t i = 0; i < polled_.size();) {
    if (!concerns(polled_[i], context)) {
      ++i;
      continue;
    }
    Wait wait = take_polled(i);
    executor_->contexts().use(wait.driver_context);
    const CUresult result = query(&wait);
    complete(wait, result != CUDA_ERROR_NOT_READY ? result : CUDA_ERROR_CONTEXT_IS_DESTROYED, true);
  }
  const auto concerned = [context](const Wait& wait) { return concerns(wait, context); };
  bool alive = true;
  Hold hold(mutex_);
  end_waiting(context, &hold);
  ending_context_ = context;
  looked_at_.notify_one();
  while (alive && std::any_of(under_way_.begin(), under_way_.end(), concerned)) {
    if (wait_ended_.wait_for(hold, kAttend) == std::cv_status::no_timeout) continue;
    hold.unlock();
    // What they wait for may be a function of the program's.
    executor_->service().flush();
    alive = executor_->service().attend();
    hold.lock();
  }
  ending_context_ = nullptr;
  hold.unlock();
  executor_->service().flush();
  return alive;
}

void Waiters::sleep_until_done(const Wait& wait) {
  if (wait.delivered != nullptr) {
    {
      std::lock_guard<std::mutex> hold(delivery_mutex_);
      deliver_in_own_context();
    }
    std::lock_guard<std::mutex> hold(mutex_);
    *wait.delivered = true;
    delivered_.notify_all();
    return;
  }
  gpu::Driver& driver = executor_->driver();
  driver.cuCtxSetCurrent(wait.driver_context);
  CUresult result = CUDA_ERROR_UNKNOWN;
  switch (wait.kind) {
    case WaitKind::kStream:
      // The program may destroy its stream meanwhile, but not our event.
      result = wait.own_event != nullptr
                   ? driver.cuEventSynchronize(wait.own_event)
                   : driver.cuStreamSynchronize(static_cast<CUstream>(wait.object));
      break;
    case WaitKind::kEvent:
      result = driver.cuEventSynchronize(static_cast<CUevent>(wait.object));
      break;
    case WaitKind::kContext:
      result = driver.cuCtxSynchronize();
      break;
  }
  complete(wait, result, false);
  executor_->service().flush();
}

}  // namespace tendril::worker::cuda
