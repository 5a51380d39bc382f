// SPDX-License-Identifier: Apache-2.0
// See waits.h.
#include "worker/cuda/waits.h"

#include <time.h>

#include "worker/cuda/output.h"

namespace tendril::worker::cuda {
namespace {

constexpr uint64_t kPollNs = 200'000;  // then a thread takes over; a thread switch costs some 10 us
constexpr size_t kDeliveriesMax = 4096;
constexpr uint32_t kSlotsInFlightMax = 8;  // half of a worker's slots (worker/run.cc)
constexpr size_t kBusyLooksMax = 2;

uint64_t now_ns() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(now.tv_nsec);
}

}  // namespace

Waiters::Waiters(Executor* executor) : executor_(executor), staging_(&executor->driver()) {}

Waiters::~Waiters() {
  pthread_mutex_lock(&mutex_);
  ending_ = true;
  pthread_cond_broadcast(&handed_over_);
  while (threads_ != 0) pthread_cond_wait(&thread_ended_, &mutex_);
  pthread_mutex_unlock(&mutex_);
}

CUresult Waiters::query(const Wait& wait) {
  gpu::Driver& d = executor_->driver();
  switch (wait.kind) {
    case Executor::WaitKind::kStream:
      return d.cuStreamQuery(static_cast<CUstream>(wait.object));
    case Executor::WaitKind::kEvent:
      return d.cuEventQuery(static_cast<CUevent>(wait.object));
    case Executor::WaitKind::kContext:
      return CUDA_ERROR_NOT_READY;  // there is no query for a context
  }
  return CUDA_ERROR_UNKNOWN;
}

// Also after a query said that all is done: a driver takes what was freed in stream order for free, and trims its pools, only when
// somebody synchronises.
CUresult Waiters::synchronise(const Wait& wait) {
  gpu::Driver& d = executor_->driver();
  switch (wait.kind) {
    case Executor::WaitKind::kStream:
      return d.cuStreamSynchronize(static_cast<CUstream>(wait.object));
    case Executor::WaitKind::kEvent:
      return d.cuEventSynchronize(static_cast<CUevent>(wait.object));
    case Executor::WaitKind::kContext:
      return d.cuCtxSynchronize();
  }
  return CUDA_ERROR_UNKNOWN;
}

void Waiters::add(Wait wait) {
  wait.begun_ns = now_ns();
  // A context has no query; and only the reader polls.
  if (wait.kind == Executor::WaitKind::kContext || !executor_->is_reader()) return hand_over(std::move(wait));
  const CUresult result = query(wait);
  if (result != CUDA_ERROR_NOT_READY) return settle(std::move(wait), result);
  polled_.push_back(std::move(wait));
  polled_count_.store(polled_.size(), std::memory_order_relaxed);
}

// The GPU is there. The executor answers itself what is quickly answered.
void Waiters::settle(Wait wait, CUresult result) {
  const bool large = wait.readback != nullptr && wait.readback->is_large();
  if (large || undelivered_large_.load(std::memory_order_acquire) != 0) return hand_over(std::move(wait));
  if (result == CUDA_SUCCESS) result = synchronise(wait);
  complete(wait, result);
}

void Waiters::hand_over(Wait wait) {
  pthread_mutex_lock(&mutex_);
  sleeping_.push_back(std::move(wait));
  pthread_t thread;
  if (sleeping_.size() > idle_threads_ && pthread_create(&thread, nullptr, thread_main, this) == 0) {
    pthread_detach(thread);
    ++threads_;
  }
  pthread_cond_signal(&handed_over_);
  pthread_mutex_unlock(&mutex_);
}

void Waiters::deliver_from_callback() {
  if (undelivered_.load(std::memory_order_acquire) == 0) return;
  bool done = false;
  Wait job;
  job.only_deliver = true;
  job.delivered = &done;
  hand_over(std::move(job));
  pthread_mutex_lock(&mutex_);
  while (!done) pthread_cond_wait(&delivered_, &mutex_);
  pthread_mutex_unlock(&mutex_);
}

void Waiters::poll() {
  const uint64_t now = now_ns();
  for (size_t i = 0; i < polled_.size();) {
    executor_->use(polled_[i].driver_context);
    const CUresult result = query(polled_[i]);
    const bool late = result == CUDA_ERROR_NOT_READY && now - polled_[i].begun_ns > kPollNs;
    if (result == CUDA_ERROR_NOT_READY && !late) {
      ++i;
      continue;
    }
    Wait wait = std::move(polled_[i]);
    if (i + 1 != polled_.size()) polled_[i] = std::move(polled_.back());
    polled_.pop_back();
    polled_count_.store(polled_.size(), std::memory_order_relaxed);
    if (late)
      hand_over(std::move(wait));
    else
      settle(std::move(wait), result);
  }
}

void* Waiters::thread_main(void* self) {
  Waiters* w = static_cast<Waiters*>(self);
  for (;;) {
    pthread_mutex_lock(&w->mutex_);
    ++w->idle_threads_;
    while (w->sleeping_.empty() && !w->ending_) pthread_cond_wait(&w->handed_over_, &w->mutex_);
    --w->idle_threads_;
    if (w->sleeping_.empty()) break;
    Wait wait = std::move(w->sleeping_.front());
    w->sleeping_.pop_front();
    pthread_mutex_unlock(&w->mutex_);
    w->sleep_until_done(std::move(wait));
  }
  --w->threads_;
  pthread_cond_signal(&w->thread_ended_);
  pthread_mutex_unlock(&w->mutex_);
  return nullptr;
}

void Waiters::sleep_until_done(Wait wait) {
  if (wait.only_deliver) {
    deliver();
    pthread_mutex_lock(&mutex_);
    if (wait.delivered != nullptr) *wait.delivered = true;
    pthread_cond_broadcast(&delivered_);
    pthread_mutex_unlock(&mutex_);
    return;
  }
  executor_->driver().cuCtxSetCurrent(wait.driver_context);
  complete(wait, synchronise(wait));
  executor_->service().flush();
}

void Waiters::complete(const Wait& wait, CUresult result) {
  session::Service& service = executor_->service();
  deliver();
  executor_->output().send(&service);
  if (result == CUDA_SUCCESS) result = executor_->take_deferred_of(wait.context);
  if (wait.readback != nullptr)
    wait.readback->answer(wait.reply_id, result);
  else
    service.reply(wait.reply_id, result, nullptr, 0);
}

void Waiters::add_delivery(Readback readback) {
  pthread_mutex_lock(&delivery_mutex_);
  if (readback.is_large()) undelivered_large_.fetch_add(1, std::memory_order_acq_rel);
  deliveries_.push_back(std::move(readback));
  const size_t count = undelivered_.fetch_add(1, std::memory_order_acq_rel) + 1;
  pthread_mutex_unlock(&delivery_mutex_);
  if (count % kDeliveriesMax != 0) return;
  // Nobody has waited for a long time: what is over need not keep its memory.
  Wait job;
  job.only_deliver = true;
  hand_over(std::move(job));
}

void Waiters::deliver() {
  if (undelivered_.load(std::memory_order_acquire) == 0) return;
  gpu::Driver& d = executor_->driver();
  pthread_mutex_lock(&sending_mutex_);
  pthread_mutex_lock(&delivery_mutex_);
  for (size_t i = 0; i < deliveries_.size();) {
    if (d.cuEventQuery(deliveries_[i].event()) == CUDA_ERROR_NOT_READY) {
      ++i;
      continue;
    }
    Readback done = std::move(deliveries_[i]);
    deliveries_.erase(deliveries_.begin() + static_cast<std::ptrdiff_t>(i));
    pthread_mutex_unlock(&delivery_mutex_);
    done.announce(CUDA_SUCCESS);
    undelivered_.fetch_sub(1, std::memory_order_acq_rel);
    if (done.is_large()) undelivered_large_.fetch_sub(1, std::memory_order_acq_rel);
    pthread_mutex_lock(&delivery_mutex_);
  }
  pthread_mutex_unlock(&delivery_mutex_);
  pthread_mutex_unlock(&sending_mutex_);
}

void Waiters::deliver_all() {
  gpu::Driver& d = executor_->driver();
  pthread_mutex_lock(&delivery_mutex_);
  std::vector<CUevent> events;
  for (const Readback& readback : deliveries_) events.push_back(readback.event());
  pthread_mutex_unlock(&delivery_mutex_);
  for (CUevent event : events) d.cuEventSynchronize(event);
  deliver();
}

void Waiters::in_flight(CUstream stream, Flight flight) {
  gpu::Driver& d = executor_->driver();
  // A context that refuses is broken; nothing reads the memory any more once the stream is idle.
  if (flight.loan.event() == nullptr || d.cuEventRecord(flight.loan.event(), stream) != CUDA_SUCCESS)
    d.cuStreamSynchronize(stream);
  pthread_mutex_lock(&flights_mutex_);
  flights_.push_back(std::move(flight));
  in_flight_.store(flights_.size(), std::memory_order_release);
  pthread_mutex_unlock(&flights_mutex_);
  reclaim();
}

bool Waiters::reserve_slot() {
  if (slots_in_flight_.fetch_add(1, std::memory_order_acq_rel) < kSlotsInFlightMax) return true;
  slots_in_flight_.fetch_sub(1, std::memory_order_acq_rel);
  return false;
}

void Waiters::land(Flight flight) {
  if (flight.piece.data == nullptr) return;
  executor_->service().release(flight.piece);
  slots_in_flight_.fetch_sub(1, std::memory_order_acq_rel);
}

// Streams end out of order, but mostly they do not: a few at the front are looked at.
void Waiters::reclaim() {
  if (in_flight_.load(std::memory_order_acquire) == 0) return;
  gpu::Driver& d = executor_->driver();
  pthread_mutex_lock(&flights_mutex_);
  for (size_t i = 0, busy = 0; i < flights_.size() && busy < kBusyLooksMax;) {
    CUevent event = flights_[i].loan.event();
    if (event != nullptr && d.cuEventQuery(event) == CUDA_ERROR_NOT_READY) {
      ++i;
      ++busy;
      continue;
    }
    land(std::move(flights_[i]));
    flights_.erase(flights_.begin() + static_cast<std::ptrdiff_t>(i));
  }
  in_flight_.store(flights_.size(), std::memory_order_release);
  pthread_mutex_unlock(&flights_mutex_);
}

void Waiters::forget(CUcontext context) {
  std::deque<Flight> left;
  pthread_mutex_lock(&flights_mutex_);
  for (Flight& flight : flights_) {
    if (flight.loan.context() != context) {
      left.push_back(std::move(flight));
      continue;
    }
    flight.loan.forget_event();
    land(std::move(flight));
  }
  flights_.swap(left);
  in_flight_.store(flights_.size(), std::memory_order_release);
  pthread_mutex_unlock(&flights_mutex_);
  staging_.forget_events(context);
}

}  // namespace tendril::worker::cuda
