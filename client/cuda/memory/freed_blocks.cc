// SPDX-License-Identifier: Apache-2.0
// See freed_blocks.h.
#include "client/cuda/memory/freed_blocks.h"

#include <string.h>

namespace tendril::client::cuda {

uint64_t FreedBlocks::take(const FreedBlock& wanted) {
  if (empty()) return 0;
  const base::Locked locked(lock_);
  for (uint32_t i = size(); i-- > 0;) {
    const FreedBlock& block = blocks_[i];
    if (block.bytes == wanted.bytes && block.stream == wanted.stream && block.pool == wanted.pool &&
        block.context == wanted.context) {
      return remove(i).address;
    }
  }
  return 0;
}

FreedBlock FreedBlocks::remove(uint32_t index) {
  const FreedBlock block = blocks_[index];
  const uint32_t left = size() - 1;
  memmove(&blocks_[index], &blocks_[index + 1], (left - index) * sizeof block);
  bytes_ -= block.bytes;
  count_.store(left, std::memory_order_relaxed);
  return block;
}

}  // namespace tendril::client::cuda
