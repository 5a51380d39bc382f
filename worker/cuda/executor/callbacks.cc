// SPDX-License-Identifier: Apache-2.0
// See callbacks.h.
#include "worker/cuda/executor/callbacks.h"

#include <time.h>

#include <memory>

#include "base/clock.h"

namespace tendril::worker::cuda {
namespace {

constexpr uint64_t kAttendNs = 1'000'000;

}  // namespace

// It may run any number of times, and lives as long as the worker.
CUresult Callbacks::capture(gpu::Driver* driver, CUstream stream, uint64_t token) {
  return driver->cuLaunchHostFunc(stream, run, lasting(token));
}

CUresult Callbacks::launch(gpu::Driver* driver, CUstream stream, uint64_t token, uint64_t last) {
  auto request = std::make_unique<Request>(Request{this, token, 0, stream, last});
  const CUresult result = driver->cuLaunchHostFunc(
      stream,
      [](void* data) {
        std::unique_ptr<Request> mine(static_cast<Request*>(data));
        run(mine.get());
      },
      request.get());
  if (result == CUDA_SUCCESS) request.release();
  return result;
}

void Callbacks::run(void* data) {
  Request* request = static_cast<Request*>(data);
  request->owner->ask_and_sleep(*request);
}

void Callbacks::destroyed(void* data) {
  const std::unique_ptr<Request> request(static_cast<Request*>(data));
  Callbacks* all = request->owner;
  const uint64_t words[2] = {request->token, 0};  // no invocation: nobody waits
  pthread_mutex_lock(&all->mutex_);
  all->destroyed_.push_back(request->object);
  all->any_destroyed_.store(true, std::memory_order_release);
  const bool tell = !all->ended_ && request->token != 0;
  pthread_mutex_unlock(&all->mutex_);
  if (!tell) return;
  all->service_->push(wire::FrameKind::kCallback, 0, words, sizeof words);
  all->service_->flush();
}

std::vector<uint64_t> Callbacks::take_destroyed() {
  pthread_mutex_lock(&mutex_);
  std::vector<uint64_t> ids;
  ids.swap(destroyed_);
  any_destroyed_.store(false, std::memory_order_release);
  pthread_mutex_unlock(&mutex_);
  return ids;
}

void Callbacks::ask_and_sleep(const Request& request) {
  pthread_mutex_lock(&mutex_);
  const bool ended = ended_;
  const uint64_t invocation = next_++;
  if (!ended) waiting_.insert(invocation);
  pthread_mutex_unlock(&mutex_);
  if (ended) return;
  before_(request.stream, request.last);
  const uint64_t words[2] = {request.token, invocation};
  service_->push(wire::FrameKind::kCallback, 0, words, sizeof words);
  service_->flush();
  // The executor may be in a driver call that waits for this very function. Then nobody reads the
  // answer but us.
  bool alive = true;
  pthread_mutex_lock(&mutex_);
  while (alive && !ended_ && waiting_.count(invocation) != 0) {
    const uint64_t until_ns = base::now_ns() + kAttendNs;
    const timespec until{static_cast<time_t>(until_ns / 1'000'000'000),
                         static_cast<long>(until_ns % 1'000'000'000)};
    if (pthread_cond_clockwait(&changed_, &mutex_, CLOCK_MONOTONIC, &until) == 0) continue;
    pthread_mutex_unlock(&mutex_);
    alive = service_->attend();
    pthread_mutex_lock(&mutex_);
  }
  pthread_mutex_unlock(&mutex_);
  if (!alive) end();
}

void Callbacks::done(uint64_t invocation) {
  pthread_mutex_lock(&mutex_);
  waiting_.erase(invocation);
  pthread_cond_broadcast(&changed_);
  pthread_mutex_unlock(&mutex_);
}

void Callbacks::end() {
  pthread_mutex_lock(&mutex_);
  ended_ = true;
  waiting_.clear();
  pthread_cond_broadcast(&changed_);
  pthread_mutex_unlock(&mutex_);
}

}  // namespace tendril::worker::cuda
