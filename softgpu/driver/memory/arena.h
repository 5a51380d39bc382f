// SPDX-License-Identifier: Apache-2.0
// One contiguous range of addresses from which allocations are cut: a device's memory, or the
// window of pinned host memory. It tracks which 2 MiB pages hold something (the engine's validity
// map) and gives empty pages back to the system. Not thread-safe: MemoryMap holds its lock around
// every call.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "softgpu/engine.h"

namespace tendril::softgpu {

inline constexpr uint64_t kAllocationAlign = 256;  // what cuMemAlloc promises

class Arena {
 public:
  // `base` is the address that programs see. With 0 it equals the host address of the backing
  // memory. `in_process`: pages in use are also reserved at those addresses of this process, with
  // nothing behind them, and addresses that are taken are not used.
  Arena(uint64_t base, uint64_t bytes, bool in_process = false)
      : base_(base), bytes_(bytes), in_process_(in_process) {}
  ~Arena();
  Arena(const Arena&) = delete;

  // Maps the backing memory if that has not happened yet.
  bool commit();
  // An address, or 0 if no hole is large enough.
  uint64_t allocate(uint64_t bytes, uint64_t align = kAllocationAlign);
  void free(uint64_t address, uint64_t bytes);

  bool contains(uint64_t address) const { return address >= base_ && address - base_ < bytes_; }
  uint64_t base() const { return base_; }
  uint64_t bytes() const { return bytes_; }
  uint8_t* host(uint64_t address) const { return memory_ + (address - base_); }
  bool page_valid(uint64_t address) const { return valid_[(address - base_) / kPageBytes] != 0; }
  MemoryRegion region() const;
  // Memory file behind a device's arena; -1 if it is not committed.
  int file() const { return file_; }
  uint64_t largest_hole() const;

 private:
  void count_pages(uint64_t offset, uint64_t bytes, int step);
  uint64_t address_of(uint64_t page) const { return base_ + page * kPageBytes; }
  bool find_addresses(uint64_t* offset, uint64_t bytes, uint64_t align, uint64_t end) const;

  uint64_t base_;
  uint64_t bytes_;
  bool in_process_;
  uint8_t* memory_ = nullptr;
  int file_ = -1;
  std::map<uint64_t, uint64_t> holes_;  // offset -> bytes
  std::vector<uint32_t> users_;         // allocations that touch each page
  std::vector<uint8_t> valid_;
};

// Reserves addresses of this process, with nothing behind them. False if they are taken.
bool take_addresses(uint64_t address, uint64_t bytes);
// Bytes an allocation of this size takes.
inline uint64_t round_up(uint64_t value, uint64_t align) {
  return (value + align - 1) / align * align;
}

}  // namespace tendril::softgpu
