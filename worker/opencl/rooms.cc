// SPDX-License-Identifier: Apache-2.0
// See rooms.h.
#include "worker/opencl/rooms.h"

#include <new>

namespace tendril::worker::opencl {
namespace {

constexpr uint64_t kPaddingBytes = 64;
constexpr size_t kKeptMost = 16;

}  // namespace

Rooms::Memory Rooms::find_kept() {
  const std::lock_guard<std::mutex> hold(mutex_);
  if (kept_.empty()) return nullptr;
  Memory memory = std::move(kept_.back());
  kept_.pop_back();
  return memory;
}

// False: there are enough.
bool Rooms::keep(Memory* memory) {
  const std::lock_guard<std::mutex> hold(mutex_);
  if (kept_.size() >= kKeptMost) return false;
  kept_.push_back(std::move(*memory));
  return true;
}

// Kept rooms end before anybody is refused.
bool Rooms::charge(uint64_t bytes) {
  while (!host_.take(bytes)) {
    if (find_kept() == nullptr) return false;
    host_.give_back(kPartBytes);
  }
  return true;
}

Room Rooms::take(uint64_t bytes) {
  const bool may_stay = bytes <= kPartBytes && bytes > kPartBytes / 2;
  Memory memory = may_stay ? find_kept() : nullptr;
  if (memory == nullptr) {
    if (may_stay) bytes = kPartBytes;
    if (!charge(bytes)) return nullptr;
    memory.reset(new (std::nothrow) uint8_t[bytes + kPaddingBytes]);
    if (memory == nullptr) {
      host_.give_back(bytes);
      return nullptr;
    }
  }
  return Room(memory.release(), [this, bytes, may_stay](uint8_t* data) {
    Memory mine(data);
    if (!may_stay || !keep(&mine)) host_.give_back(may_stay ? kPartBytes : bytes);
  });
}

}  // namespace tendril::worker::opencl
