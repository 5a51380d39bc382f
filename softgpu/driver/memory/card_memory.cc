// SPDX-License-Identifier: Apache-2.0
// See card_memory.h.

#include "softgpu/driver/memory/card_memory.h"

#include <algorithm>
#include <bit>
#include <map>
#include <mutex>
#include <utility>

#include "softgpu/driver/config.h"
#include "softgpu/driver/memory/memory_map.h"

namespace tendril::softgpu {
namespace {

constexpr uint64_t kPoolPiece = 32u << 20, kStreamBytes = 560u << 10;
constexpr uint64_t kThreadsPerProcessor = 2048, kLocalIncluded = 1024;
constexpr uint64_t kTileBytes = 64, kTileRowsMost = 128, kTileRowsLeast = 8;

struct Hidden {
  std::mutex lock;
  std::map<std::pair<int, HiddenMemory::Kind>, base::PageBlocks> blocks;
};

Hidden& hidden() {
  static auto& only = *new Hidden;
  return only;
}

// Host memory that is pinned, by device.
struct Pinned {
  std::mutex lock;
  std::map<int, uint64_t> bytes;
};

Pinned& pinned() {
  static auto& only = *new Pinned;
  return only;
}

uint64_t pinned_cost(uint64_t bytes) { return (bytes >> 30) * base::kGpuPageBytes; }

}  // namespace

bool costs_as_card() { return config().card_costs; }

bool take_hidden(int device, HiddenMemory::Kind kind, uint64_t bytes, HiddenMemory* out) {
  MemoryMap& map = MemoryMap::instance();
  if (!costs_as_card() || !base::shares_a_page(bytes)) {
    const uint64_t charged = costs_as_card() ? base::whole_pages(bytes) : bytes;
    if (!map.charge(device, charged)) return false;
    *out = {device, kind, charged, {}};
    return true;
  }
  Hidden& all = hidden();
  std::lock_guard guard(all.lock);
  base::PageBlocks& blocks = all.blocks[{device, kind}];
  if (!blocks.fits(bytes) && !map.charge(device, base::kGpuPageBytes)) return false;
  bool fresh = false;
  *out = {device, kind, 0, blocks.take(bytes, &fresh)};
  return true;
}

void give_back_hidden(const HiddenMemory& memory) {
  if (memory.device < 0) return;
  MemoryMap& map = MemoryMap::instance();
  if (memory.place.bytes == 0) {
    map.discharge(memory.device, memory.charged);
    return;
  }
  Hidden& all = hidden();
  std::lock_guard guard(all.lock);
  if (all.blocks[{memory.device, memory.kind}].give_back(memory.place))
    map.discharge(memory.device, base::kGpuPageBytes);
}

uint64_t array_cost(uint64_t row_bytes, uint64_t rows, uint64_t slices) {
  if (!costs_as_card()) return row_bytes * rows * slices;
  const uint64_t tile = std::clamp(std::bit_ceil(rows), kTileRowsLeast, kTileRowsMost);
  return base::rounded_up(row_bytes, kTileBytes) * base::rounded_up(rows, tile) * slices;
}

uint64_t pool_cost(uint64_t bytes) {
  return costs_as_card() ? base::rounded_up(bytes, kPoolPiece) : bytes;
}

uint64_t local_cost(uint64_t bytes) {
  if (!costs_as_card() || bytes <= kLocalIncluded) return 0;
  return base::whole_pages((bytes - kLocalIncluded) * config().sm_count * kThreadsPerProcessor);
}

uint64_t stream_cost(uint64_t streams) {
  return costs_as_card() ? base::whole_pages(streams * kStreamBytes) : 0;
}

uint64_t graph_cost(uint64_t bytes) { return costs_as_card() ? base::whole_pages(bytes) : 0; }

bool pin_host(int device, uint64_t bytes) {
  if (!costs_as_card()) return true;
  Pinned& all = pinned();
  std::lock_guard guard(all.lock);
  uint64_t& total = all.bytes[device];
  if (!change_charge(device, pinned_cost(total), pinned_cost(total + bytes))) return false;
  total += bytes;
  return true;
}

void unpin_host(int device, uint64_t bytes) {
  if (!costs_as_card()) return;
  Pinned& all = pinned();
  std::lock_guard guard(all.lock);
  uint64_t& total = all.bytes[device];
  change_charge(device, pinned_cost(total), pinned_cost(total - bytes));
  total -= bytes;
}

bool change_charge(int device, uint64_t before, uint64_t after) {
  MemoryMap& map = MemoryMap::instance();
  if (after > before) return map.charge(device, after - before);
  if (after < before) map.discharge(device, before - after);
  return true;
}

}  // namespace tendril::softgpu
