// SPDX-License-Identifier: Apache-2.0
// See staging.h.
#include "worker/cuda/memory/staging.h"

#include <sys/mman.h>

namespace tendril::worker::cuda {
namespace {

constexpr uint64_t kSmallest = 4096;
constexpr uint64_t kKeptMost = 256u << 20;

unsigned log2_up(uint64_t bytes) {
  unsigned log = 12;
  while ((uint64_t{1} << log) < bytes && log < 47) ++log;
  return log;
}

}  // namespace

Block Staging::take(uint64_t bytes) {
  const unsigned log = log2_up(bytes < kSmallest ? kSmallest : bytes);
  Block block;
  {
    const base::Locked locked(lock_);
    if (!free_[log].empty()) {
      block = free_[log].back();
      free_[log].pop_back();
      free_bytes_ -= block.bytes;
      return block;
    }
    block.age = age_;
  }
  const uint64_t size = uint64_t{1} << log;
  if (host_ != nullptr && !host_->take(size)) return block;
  void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    if (host_ != nullptr) host_->give_back(size);
    return block;
  }
  block.data = static_cast<uint8_t*>(memory);
  block.bytes = size;
  // Unpinned memory still works, only slower; so a refusal (limits of locked memory) is no error.
  block.pinned = driver_->cuMemHostRegister_v2 != nullptr &&
                 driver_->cuMemHostRegister_v2(memory, block.bytes, CU_MEMHOSTREGISTER_PORTABLE) ==
                     CUDA_SUCCESS;
  return block;
}

void Staging::give_back(const Block& block) {
  if (block.data == nullptr) return;
  {
    const base::Locked locked(lock_);
    if (block.age == age_ && free_bytes_ + block.bytes <= kKeptMost) {
      free_[log2_up(block.bytes)].push_back(block);
      free_bytes_ += block.bytes;
      return;
    }
  }
  drop(block);
}

void Staging::forget() {
  std::vector<Block> old;
  {
    const base::Locked locked(lock_);
    ++age_;
    for (std::vector<Block>& list : free_) {
      old.insert(old.end(), list.begin(), list.end());
      list.clear();
    }
    free_bytes_ = 0;
  }
  for (const Block& block : old) drop(block);
}

// What stays registered, because another context did it, must stay mapped: the driver would go on
// using these pages for whatever comes to lie at the address.
void Staging::drop(const Block& block) {
  if (block.pinned) {
    const CUresult result = driver_->cuMemHostUnregister(block.data);
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED) return;
  }
  munmap(block.data, block.bytes);
  if (host_ != nullptr) host_->give_back(block.bytes);
}

CUevent Staging::take_event(CUcontext context) {
  {
    const base::Locked locked(lock_);
    for (size_t i = events_.size(); i-- > 0;) {
      if (events_[i].context != context) continue;
      const CUevent spare = events_[i].event;
      events_[i] = events_.back();
      events_.pop_back();
      return spare;
    }
  }
  CUevent event = nullptr;
  const CUresult result = driver_->cuEventCreate(&event, CU_EVENT_DISABLE_TIMING);
  return result == CUDA_SUCCESS ? event : nullptr;
}

CUevent Staging::record_event(CUcontext context, CUstream stream, CUresult* failure) {
  CUevent event = take_event(context);
  const CUresult result =
      event != nullptr ? driver_->cuEventRecord(event, stream) : CUDA_ERROR_OUT_OF_MEMORY;
  if (result == CUDA_SUCCESS) return event;
  give_back_event(context, event);
  if (failure != nullptr) *failure = result;
  return nullptr;
}

void Staging::give_back_event(CUcontext context, CUevent event) {
  if (event == nullptr) return;
  const base::Locked locked(lock_);
  events_.push_back({context, event});
}

void Staging::forget_events(CUcontext context) {
  const base::Locked locked(lock_);
  for (size_t i = 0; i < events_.size();) {
    if (events_[i].context == context) {
      events_[i] = events_.back();
      events_.pop_back();
    } else {
      ++i;
    }
  }
}

}  // namespace tendril::worker::cuda
