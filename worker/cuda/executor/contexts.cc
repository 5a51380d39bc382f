// SPDX-License-Identifier: Apache-2.0
// See contexts.h.
#include "worker/cuda/executor/contexts.h"

#include "api/cuda_kinds.gen.h"

namespace tendril::worker::cuda {

using api::cuda::Kind;

CUresult Contexts::enter(uint32_t index) {
  current_ = nullptr;
  if (index == 0) return CUDA_SUCCESS;
  WorkerContext* context = index < contexts_.size() ? contexts_[index].get() : nullptr;
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  current_ = context;
  return use(context->context);
}

CUresult Contexts::change(CUcontext context) {
  const CUresult result = driver_->cuCtxSetCurrent(context);
  driver_current_ = result == CUDA_SUCCESS ? context : nullptr;
  return result;
}

WorkerContext* Contexts::find(uint64_t id) {
  const uint32_t index = api::id_index(id);
  if (api::cuda::id_kind(id) != Kind::kContext || index >= contexts_.size()) return nullptr;
  return contexts_[index].get();
}

WorkerContext* Contexts::add(uint64_t id) {
  constexpr uint32_t kContextsMax = 4096;
  const uint32_t index = api::id_index(id);
  if (api::cuda::id_kind(id) != Kind::kContext || index == 0 || index >= kContextsMax)
    return nullptr;
  if (index >= contexts_.size()) contexts_.resize(index + 1);
  if (contexts_[index] != nullptr)
    retired_.push_back(std::move(contexts_[index]));  // calls may still use it
  contexts_[index] = std::make_unique<WorkerContext>();
  return contexts_[index].get();
}

void Contexts::retire(uint64_t id) {
  WorkerContext* context = find(id);
  if (context == nullptr) return;
  if (current_ == context) current_ = nullptr;
  driver_current_ = nullptr;
  retired_.push_back(std::move(contexts_[api::id_index(id)]));
}

void Contexts::remember(CUresult result) {
  if (current_ == nullptr) return;
  // The end of the capture reports these errors.
  if (result >= CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED &&
      result <= CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD)
    return;
  int expected = 0;
  current_->deferred.compare_exchange_strong(expected, static_cast<int>(result));
}

CUresult Contexts::take_deferred_of(WorkerContext* context) {
  return context != nullptr ? static_cast<CUresult>(context->deferred.exchange(0)) : CUDA_SUCCESS;
}

}  // namespace tendril::worker::cuda
