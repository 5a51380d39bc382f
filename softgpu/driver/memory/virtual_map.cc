// SPDX-License-Identifier: Apache-2.0
// The part of MemoryMap behind cuMemAddressReserve and cuMemMap. Address ranges have nothing behind
// them until memory files are mapped into them. Validity is per 2 MiB page and per device. Programs
// get the same granularity.

#include <sys/mman.h>

#include "base/check.h"
#include "softgpu/driver/memory/memory_map.h"

namespace tendril::softgpu {

Reservation::~Reservation() {
  if (host != nullptr) munmap(host, bytes);
  if (held) munmap(reinterpret_cast<void*>(base), bytes);
}

Reservation* MemoryMap::reservation_locked(uint64_t address, uint64_t bytes) const {
  auto next = reservations_.upper_bound(address);
  if (next == reservations_.begin()) return nullptr;
  Reservation* range = std::prev(next)->second.get();
  uint64_t offset = address - range->base;
  return offset <= range->bytes && bytes <= range->bytes - offset ? range : nullptr;
}

uint64_t MemoryMap::reserve(uint64_t bytes, uint64_t align, uint64_t wished) {
  std::unique_lock guard(lock_);
  const AddressPlan& plan = address_plan();
  auto taken = [&](uint64_t base) {
    uint64_t end = base + bytes;
    if (end < base) return true;
    if (base < plan.virtual_base && end > plan.devices) return true;  // the devices' own ranges
    auto next = reservations_.lower_bound(end);
    if (next != reservations_.begin() &&
        std::prev(next)->second->base + std::prev(next)->second->bytes > base)
      return true;
    auto allocation = allocations_.lower_bound(end);
    return allocation != allocations_.begin() &&
           std::prev(allocation)->first + std::prev(allocation)->second.bytes > base;
  };
  auto next_from = [&](uint64_t base) {
    for (const auto& [start, range] : reservations_)
      if (start + range->bytes > base && start < base + bytes)
        base = round_up(start + range->bytes, align);
    return base;
  };
  auto take = [&](uint64_t base) {
    return !taken(base) && (!plan.in_process || take_addresses(base, bytes));
  };
  uint64_t base = wished;
  if (base == 0 || base % align != 0 || !take(base)) {
    base = next_from(round_up(plan.virtual_base, align));
    for (; !take(base); base = next_from(base + align))
      if (!plan.in_process || bytes >= plan.end - base) return 0;
  }
  void* host = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (host == MAP_FAILED) return 0;
  auto range = std::make_shared<Reservation>();
  range->base = base;
  range->bytes = bytes;
  range->host = static_cast<uint8_t*>(host);
  range->held = plan.in_process;
  reservations_[base] = std::move(range);
  return base;
}

CUresult MemoryMap::unreserve(uint64_t address, uint64_t bytes) {
  std::unique_lock running(execution_);
  std::unique_lock guard(lock_);
  auto found = reservations_.find(address);
  if (found == reservations_.end() || found->second->bytes != bytes)
    return CUDA_ERROR_INVALID_VALUE;
  auto next = allocations_.lower_bound(address);
  if (next != allocations_.end() && next->first < address + bytes) return CUDA_ERROR_INVALID_VALUE;
  reservations_.erase(found);
  changed();
  return CUDA_SUCCESS;
}

CUresult MemoryMap::map(uint64_t address, uint64_t bytes, int file, uint64_t offset,
                        uint64_t handle, int device) {
  // No kernel touches these pages yet, so nobody waits for running ones.
  std::unique_lock guard(lock_);
  Reservation* range = reservation_locked(address, bytes);
  if (range == nullptr) return CUDA_ERROR_INVALID_VALUE;
  auto next = allocations_.lower_bound(address + bytes);
  if (next != allocations_.begin() &&
      std::prev(next)->first + std::prev(next)->second.bytes > address)
    return CUDA_ERROR_INVALID_VALUE;
  void* at = mmap(range->host + (address - range->base), bytes, PROT_READ | PROT_WRITE,
                  MAP_SHARED | MAP_FIXED, file, static_cast<off_t>(offset));
  if (at == MAP_FAILED) return CUDA_ERROR_MAP_FAILED;
  Allocation& made = allocations_[address];
  made = {address, bytes, bytes, 0, MemoryKind::kMapped, device};
  made.id = next_id_++;
  made.handle = handle;
  changed();
  return CUDA_SUCCESS;
}

CUresult MemoryMap::unmap(uint64_t address, uint64_t bytes, std::vector<uint64_t>* handles_done) {
  std::unique_lock running(execution_);
  std::unique_lock guard(lock_);
  Reservation* range = reservation_locked(address, bytes);
  if (range == nullptr) return CUDA_ERROR_INVALID_VALUE;
  auto after = allocations_.lower_bound(address + bytes);
  const bool vacant = after == allocations_.begin() ||
                      std::prev(after)->second.base + std::prev(after)->second.bytes <= address;
  if (vacant) return CUDA_SUCCESS;  // measured on an H200
  uint64_t at = address;
  while (at < address + bytes) {
    auto found = allocations_.find(at);
    if (found == allocations_.end() || found->second.kind != MemoryKind::kMapped ||
        found->second.bytes > address + bytes - at)
      return CUDA_ERROR_INVALID_VALUE;
    at += found->second.bytes;
  }
  for (at = address; at < address + bytes;) {
    auto found = allocations_.find(at);
    at += found->second.bytes;
    handles_done->push_back(found->second.handle);
    allocations_.erase(found);
  }
  void* const emptied = mmap(range->host + (address - range->base), bytes, PROT_NONE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  TENDRIL_CHECK(emptied != MAP_FAILED);
  for (auto& [device, valid] : range->valid)
    for (uint64_t page = (address - range->base) / kPageBytes;
         page < (address + bytes - range->base) / kPageBytes; ++page)
      set_page_valid(&valid[page], false);
  changed();
  return CUDA_SUCCESS;
}

CUresult MemoryMap::set_access(uint64_t address, uint64_t bytes, int device, bool allowed) {
  std::unique_lock guard(lock_);
  Reservation* range = reservation_locked(address, bytes);
  if (range == nullptr || address % kPageBytes != 0 || bytes % kPageBytes != 0)
    return CUDA_ERROR_INVALID_VALUE;
  for (uint64_t at = address; at < address + bytes;) {
    auto found = locate(at);
    if (found == allocations_.end() || found->second.kind != MemoryKind::kMapped)
      return CUDA_ERROR_INVALID_VALUE;
    at = found->first + found->second.bytes;
  }
  auto& valid = range->valid[device];
  if (valid.empty()) valid.assign(range->bytes / kPageBytes + 1, 0);
  for (uint64_t page = (address - range->base) / kPageBytes;
       page < (address + bytes - range->base) / kPageBytes; ++page)
    set_page_valid(&valid[page], allowed);
  changed();
  return CUDA_SUCCESS;
}

int MemoryMap::access(uint64_t address, int device) const {
  std::shared_lock guard(lock_);
  Reservation* range = reservation_locked(address, 1);
  if (range == nullptr) return -1;
  auto found = range->valid.find(device);
  return found != range->valid.end() && found->second[(address - range->base) / kPageBytes] != 0;
}

std::optional<std::pair<uint64_t, uint64_t>> MemoryMap::reservation_of(uint64_t address) const {
  std::shared_lock guard(lock_);
  Reservation* range = reservation_locked(address, 1);
  if (range == nullptr) return std::nullopt;
  return std::make_pair(range->base, range->bytes);
}

uint64_t MemoryMap::add_import(uint8_t* host, uint64_t lead, uint64_t bytes,
                               const Allocation& like) {
  const uint64_t mapped = round_up(lead + bytes, kPageBytes);
  uint64_t start = reserve(mapped, kPageBytes, 0);
  if (start == 0) return 0;
  std::unique_lock guard(lock_);
  Reservation& range = *reservations_[start];
  munmap(range.host, range.bytes);
  range.host = host;
  for (int device = 0; device < 64; ++device)
    if (arenas_.count(device) != 0) range.valid[device].assign(mapped / kPageBytes + 1, 1);
  Allocation& made = allocations_[start + lead];
  made = like;
  made.base = start + lead;
  made.bytes = bytes;
  made.kind = MemoryKind::kImported;
  made.id = next_id_++;
  changed();
  return made.base;
}

}  // namespace tendril::softgpu
