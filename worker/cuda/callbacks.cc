// SPDX-License-Identifier: Apache-2.0
// See callbacks.h.
#include "worker/cuda/callbacks.h"

#include <memory>

namespace tendril::worker::cuda {

CUresult Callbacks::launch(gpu::Driver* driver, CUstream stream, uint64_t token) {
  auto request = std::make_unique<Request>(Request{this, token});
  const CUresult result = driver->cuLaunchHostFunc(stream, [](void* data) {
    std::unique_ptr<Request> mine(static_cast<Request*>(data));
    run(mine.get());
  }, request.get());
  if (result == CUDA_SUCCESS) request.release();
  return result;
}

void Callbacks::run(void* data) {
  Request* request = static_cast<Request*>(data);
  request->owner->ask_and_sleep(request->token);
}

void Callbacks::ask_and_sleep(uint64_t token) {
  pthread_mutex_lock(&mutex_);
  const bool ended = ended_;
  if (!ended) waiting_.insert(token);
  pthread_mutex_unlock(&mutex_);
  if (ended) return;
  service_->push(wire::FrameKind::kCallback, 0, &token, sizeof token);
  service_->flush();
  pthread_mutex_lock(&mutex_);
  while (!ended_ && waiting_.count(token) != 0) pthread_cond_wait(&changed_, &mutex_);
  pthread_mutex_unlock(&mutex_);
}

void Callbacks::done(uint64_t token) {
  pthread_mutex_lock(&mutex_);
  waiting_.erase(token);
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
