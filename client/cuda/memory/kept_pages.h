// SPDX-License-Identifier: Apache-2.0
// Pinned and managed host memory that the program has freed, for its next allocation of that size.
// Pinning and unpinning need the worker, and a free would have to wait for the GPU. Instead whoever
// takes memory from here asks whether the GPU may still use it. host_memory.cc calls this, under a
// lock of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "client/cuda/memory/range_map.h"

namespace tendril::client::cuda {

class KeptPages {
 public:
  static constexpr uint64_t kBytesMost = 64u << 20;
  static constexpr size_t kBlocksMost = 64;

  struct Block {
    Range range;
    // Session::calls when the program freed it: the GPU may use it for what was sent before.
    uint64_t calls = 0;
  };

  // Is all that had been sent at `calls` over, if a wait has ended that began after `waited` calls?
  // That wait's own call may be the last one.
  static bool covered(uint64_t calls, uint64_t waited) { return waited + 1 >= calls; }

  static bool fits(const Range& range) { return !range.mirrored && range.bytes <= kBytesMost; }
  void keep(const Block& block) {
    blocks_.push_back(block);
    bytes_ += block.range.bytes;
  }
  bool full() const { return bytes_ > kBytesMost || blocks_.size() > kBlocksMost; }
  Block oldest() { return remove(0); }
  // The youngest block of the context that has room for `bytes` and no more pages than that needs;
  // accept(block) has the last word. base 0: none.
  template <typename Accept>
  Block take(const Context* context, uint64_t bytes, Accept&& accept) {
    for (size_t i = blocks_.size(); i-- > 0;) {
      const Range& range = blocks_[i].range;
      if (range.context == context && pages(range.bytes) == pages(bytes) && accept(blocks_[i]))
        return remove(i);
    }
    return {};
  }
  // Any block of a context that ends. base 0: none is left.
  Block take_any(const Context* context) {
    for (size_t i = 0; i < blocks_.size(); ++i)
      if (blocks_[i].range.context == context) return remove(i);
    return {};
  }

 private:
  static uint64_t pages(uint64_t bytes) { return (bytes + 4095) / 4096; }
  Block remove(size_t index) {
    const Block block = blocks_[index];
    blocks_.erase(blocks_.begin() + static_cast<std::ptrdiff_t>(index));
    bytes_ -= block.range.bytes;
    return block;
  }

  std::vector<Block> blocks_;  // the oldest first
  uint64_t bytes_ = 0;
};

}  // namespace tendril::client::cuda
