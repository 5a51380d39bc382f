// SPDX-License-Identifier: Apache-2.0
// See releases.h.
#include "worker/cuda/releases.h"

#include "worker/cuda/executor.h"

namespace tendril::worker::cuda {

void Releases::add(WorkerContext* context, Release release) {
  pthread_mutex_lock(&mutex_);
  items_.push_back({context, std::move(release)});
  ++added_;
  pending_.fetch_add(1, std::memory_order_acq_rel);
  pthread_t thread;
  if (!started_ && pthread_create(&thread, nullptr, thread_main, this) == 0) {
    started_ = true;
    pthread_detach(thread);
  }
  pthread_cond_broadcast(&changed_);
  pthread_mutex_unlock(&mutex_);
}

void Releases::drain() {
  pthread_mutex_lock(&mutex_);
  const uint64_t until = added_;
  while (started_ && done_ < until) pthread_cond_wait(&changed_, &mutex_);
  pthread_mutex_unlock(&mutex_);
}

void Releases::end() {
  pthread_mutex_lock(&mutex_);
  ending_ = true;
  pthread_cond_broadcast(&changed_);
  while (started_) pthread_cond_wait(&changed_, &mutex_);
  pthread_mutex_unlock(&mutex_);
}

void* Releases::thread_main(void* self) {
  Releases* all = static_cast<Releases*>(self);
  Seat seat;
  for (;;) {
    pthread_mutex_lock(&all->mutex_);
    while (all->items_.empty() && !all->ending_) pthread_cond_wait(&all->changed_, &all->mutex_);
    if (all->items_.empty()) break;
    const Item item = std::move(all->items_.front());
    all->items_.pop_front();
    pthread_mutex_unlock(&all->mutex_);
    all->executor_->run_release(&seat, item.context, item.release);
    pthread_mutex_lock(&all->mutex_);
    ++all->done_;
    all->pending_.fetch_sub(1, std::memory_order_acq_rel);
    pthread_cond_broadcast(&all->changed_);
    pthread_mutex_unlock(&all->mutex_);
  }
  pthread_mutex_unlock(&all->mutex_);
  all->executor_->leave_seat(&seat);
  pthread_mutex_lock(&all->mutex_);
  all->started_ = false;
  pthread_cond_broadcast(&all->changed_);
  pthread_mutex_unlock(&all->mutex_);
  return nullptr;
}

}  // namespace tendril::worker::cuda
