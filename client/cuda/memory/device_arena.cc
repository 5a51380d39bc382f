// SPDX-License-Identifier: Apache-2.0
// See device_arena.h.
#include "client/cuda/memory/device_arena.h"

#include <algorithm>

namespace tendril::client::cuda {

void DeviceArena::open(uint64_t base, uint64_t bytes, uint64_t own) {
  const base::Locked locked(lock_);
  base_ = base;
  holes_.add(base, own);
  bytes_.store(bytes, std::memory_order_release);
}

DeviceArena::Taken DeviceArena::take_locked(const Context* context, uint64_t bytes,
                                            uint64_t* address) {
  if (paid_ < bytes) return Taken::kNotPaid;
  if (!holes_.take(bytes, address)) return Taken::kNoAddresses;
  blocks_[*address] = {bytes, context};
  paid_ -= bytes;
  wanted_ = 0;
  return Taken::kYes;
}

void DeviceArena::give_locked(uint64_t address) {
  const auto block = blocks_.find(address);
  if (!block->second.shared) paid_ += block->second.bytes;
  holes_.add(address, block->second.bytes);
  blocks_.erase(block);
}

void DeviceArena::share(uint64_t address) {
  const base::Locked locked(lock_);
  const auto block = blocks_.find(address);
  if (block != blocks_.end()) block->second.shared = true;
}

uint64_t DeviceArena::want(uint64_t bytes) {
  const base::Locked locked(lock_);
  wanted_ = bytes;
  return bytes > paid_ ? bytes - paid_ : 0;
}

uint64_t DeviceArena::ahead() {
  const base::Locked locked(lock_);
  const uint64_t now = next_ahead_;
  next_ahead_ = std::min(2 * next_ahead_, kAheadMost);
  return now;
}

void DeviceArena::paid(uint64_t bytes, uint64_t left) {
  const base::Locked locked(lock_);
  paid_ += bytes;
  most_ = std::min(kAheadMost, base::rounded_up(left / 8, base::kGpuPageBytes));
}

void DeviceArena::forget(const Context* context) {
  const base::Locked locked(lock_);
  for (auto block = blocks_.begin(); block != blocks_.end();) {
    if (block->second.context != context) {
      ++block;
      continue;
    }
    holes_.add(block->first, block->second.bytes);
    block = blocks_.erase(block);
  }
}

}  // namespace tendril::client::cuda
