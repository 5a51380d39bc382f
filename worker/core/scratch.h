// SPDX-License-Identifier: Apache-2.0
// Memory that lives until the next call: arrays that are passed to the driver or put into replies.
// Bounded, because a hostile client says how much. Executor thread.
#pragma once

#include <cstdint>
#include <memory>
#include <new>
#include <vector>

namespace tendril::worker {

class Scratch {
 public:
  static constexpr uint64_t kBytesMax = 64u << 20;  // of one call

  // A call is about to be run.
  void clear() {
    blocks_.clear();
    bytes_ = 0;
  }
  // Null: past the bound, or memory is out. Aligned as new aligns.
  void* take(uint64_t bytes) {
    if (bytes > kBytesMax - bytes_) return nullptr;
    bytes_ += bytes;
    blocks_.emplace_back(new (std::nothrow) uint8_t[bytes + 16]);
    return blocks_.back().get();
  }

 private:
  std::vector<std::unique_ptr<uint8_t[]>> blocks_;
  uint64_t bytes_ = 0;
};

}  // namespace tendril::worker
