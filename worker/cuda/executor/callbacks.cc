// SPDX-License-Identifier: Apache-2.0
// See callbacks.h.
#include "worker/cuda/executor/callbacks.h"

#include <chrono>
#include <memory>

namespace tendril::worker::cuda {
namespace {

constexpr std::chrono::milliseconds kAttendInterval{1};

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
  if (result == CUDA_SUCCESS) static_cast<void>(request.release());  // the callback owns it
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
  {
    std::lock_guard<std::mutex> hold(all->mutex_);
    all->destroyed_.push_back(request->object);
    all->any_destroyed_.store(true, std::memory_order_release);
    if (all->ended_ || request->token == 0) return;
  }
  all->service_->push(wire::FrameKind::kCallback, 0, words, sizeof words);
  all->service_->flush();
}

std::vector<uint64_t> Callbacks::take_destroyed() {
  std::lock_guard<std::mutex> hold(mutex_);
  std::vector<uint64_t> ids;
  ids.swap(destroyed_);
  any_destroyed_.store(false, std::memory_order_release);
  return ids;
}

void Callbacks::ask_and_sleep(const Request& request) {
  std::unique_lock<std::mutex> hold(mutex_);
  if (ended_) return;
  const uint64_t invocation = next_++;
  waiting_.insert(invocation);
  hold.unlock();
  before_(request.stream, request.last);
  const uint64_t words[2] = {request.token, invocation};
  service_->push(wire::FrameKind::kCallback, 0, words, sizeof words);
  service_->flush();
  // The executor may be in a driver call that waits for this very function. Then nobody reads the
  // answer but us.
  bool alive = true;
  hold.lock();
  while (alive && !ended_ && waiting_.count(invocation) != 0) {
    if (changed_.wait_for(hold, kAttendInterval) == std::cv_status::no_timeout) continue;
    hold.unlock();
    alive = service_->attend();
    hold.lock();
  }
  hold.unlock();
  if (!alive) end();
}

void Callbacks::done(uint64_t invocation) {
  std::lock_guard<std::mutex> hold(mutex_);
  waiting_.erase(invocation);
  changed_.notify_all();
}

void Callbacks::end() {
  std::lock_guard<std::mutex> hold(mutex_);
  ended_ = true;
  waiting_.clear();
  changed_.notify_all();
}

}  // namespace tendril::worker::cuda
