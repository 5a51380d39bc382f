// SPDX-License-Identifier: Apache-2.0
// The parts of memory that need not be fast: the heap of device malloc, exact checking against what
// the program was given, and the text with which a fault explains itself. Thread-safe where
// engine.h says so.
#include "softgpu/ptx/memory.h"

#include <algorithm>
#include <cstdio>

namespace tendril::softgpu {
namespace {

constexpr uint64_t kHeapAlign = 16;

// The last block that begins at or before the address.
const MemoryBlock* block_before(const std::vector<MemoryBlock>& blocks, uint64_t address) {
  auto after = std::upper_bound(blocks.begin(), blocks.end(), address,
                                [](uint64_t a, const MemoryBlock& b) { return a < b.base; });
  return after == blocks.begin() ? nullptr : &*(after - 1);
}

// ", WORDS the allocation of n bytes at 0x...", with a count before the words unless it is 0.
std::string describe(const char* words, const MemoryBlock& b, uint64_t count) {
  char number[24] = "", text[160];
  if (count)
    std::snprintf(number, sizeof number, "%llu ", static_cast<unsigned long long>(count - 1));
  std::snprintf(text, sizeof text, ", %s%s the allocation of %llu bytes at 0x%llx", number, words,
                static_cast<unsigned long long>(b.bytes), static_cast<unsigned long long>(b.base));
  return text;
}

}  // namespace

bool in_block(const MemoryView& view, uint64_t address, uint64_t bytes) {
  const MemoryBlock* b = block_before(view.blocks, address);
  return b && address - b->base < b->bytes && bytes <= b->bytes - (address - b->base);
}

std::string explain_address(const MemoryView& view, uint64_t address) {
  if (!view.exact) return "";
  for (auto freed = view.freed.rbegin(); freed != view.freed.rend(); ++freed)
    if (address - freed->base < freed->bytes && !in_block(view, address, 1))
      return describe("in memory that was freed:", *freed, 0);
  const MemoryBlock* b = block_before(view.blocks, address);
  if (!b) return ", before every allocation";
  const uint64_t offset = address - b->base;
  if (offset < b->bytes) return describe("crossing the end of", *b, 0);
  return describe("bytes past the end of", *b, offset - b->bytes + 1);
}

DeviceHeap::DeviceHeap(uint64_t base, uint64_t bytes) {
  if (bytes) free_[base] = bytes;
}

uint64_t DeviceHeap::allocate(uint64_t bytes) {
  if (bytes > ~0ull - kHeapAlign) return 0;
  bytes = std::max<uint64_t>((bytes + kHeapAlign - 1) / kHeapAlign * kHeapAlign, kHeapAlign);
  std::lock_guard<std::mutex> guard(lock_);
  for (auto it = free_.begin(); it != free_.end(); ++it) {
    if (it->second < bytes) continue;
    const uint64_t base = it->first, rest = it->second - bytes;
    free_.erase(it);
    if (rest) free_[base + bytes] = rest;
    used_[base] = bytes;
    return base;
  }
  return 0;
}

bool DeviceHeap::release(uint64_t address) {
  std::lock_guard<std::mutex> guard(lock_);
  auto found = used_.find(address);
  if (found == used_.end()) return false;
  auto [it, fresh] = free_.emplace(address, found->second);
  used_.erase(found);
  auto next = std::next(it);
  if (next != free_.end() && it->first + it->second == next->first) {
    it->second += next->second;
    free_.erase(next);
  }
  if (it != free_.begin()) {
    auto previous = std::prev(it);
    if (previous->first + previous->second == it->first) {
      previous->second += it->second;
      free_.erase(it);
    }
  }
  return true;
}

}  // namespace tendril::softgpu
