// SPDX-License-Identifier: Apache-2.0
// Memory that lives until the next call, for arrays that go to the driver or into replies. It is
// bounded, because a hostile client says how much it needs. Executor thread.
#pragma once

#include <cstdint>
#include <memory>
#include <new>
#include <vector>

namespace tendril::worker {

class Scratch {
 public:
  static constexpr uint64_t kBytesMax = 64u << 20;  // for one call

  // A call is about to run.
  void clear() {
    blocks_.clear();
    bytes_ = 0;
  }
  // Null: over the bound, or out of memory. Aligned like memory from new.
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
