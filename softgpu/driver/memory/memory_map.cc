// SPDX-License-Identifier: Apache-2.0
// The process-wide table of addresses. See memory_map.h; virtual ranges are in virtual_map.cc.

#include "softgpu/driver/memory/memory_map.h"

#include <sys/mman.h>

#include <algorithm>

#include "softgpu/board/board.h"
#include "softgpu/driver/config.h"
#include "softgpu/driver/memory/card_memory.h"

namespace tendril::softgpu {
namespace {

constexpr uint64_t kHostWindow = 64ull << 30;  // addresses only; memory is taken when touched
constexpr size_t kFreedKept = 64;
// A device has more addresses than memory, as with page tables. So holes between allocations cost
// nothing.
constexpr uint64_t kSpareAddresses = 4;
constexpr uint64_t kSmallHostWindow = 1ull << 30;  // if the system refuses the big one

}  // namespace

const AddressPlan& address_plan() {
  return config().process_addresses ? kWithinProcesses : kBeyondProcesses;
}

MemoryMap& MemoryMap::instance() {
  static auto& map = *new MemoryMap;
  return map;
}

MemoryMap::MemoryMap() {
  host_arena_ = std::make_unique<Arena>(0, kHostWindow);
  if (!host_arena_->commit()) host_arena_ = std::make_unique<Arena>(0, kSmallHostWindow);
  host_arena_->commit();
}

Arena& MemoryMap::arena_locked(int device) {
  auto& slot = arenas_[device];
  if (!slot) {
    const AddressPlan& plan = address_plan();
    const uint64_t wanted = config().device[device].memory_bytes * kSpareAddresses;
    const uint64_t addresses = plan.in_process ? plan.stride : std::min(wanted, plan.stride);
    slot = std::make_unique<Arena>(plan.devices + device * plan.stride, addresses, plan.in_process);
    changed();
  }
  return *slot;
}

Arena& MemoryMap::arena(int device) {
  std::unique_lock guard(lock_);
  Arena& found = arena_locked(device);
  found.commit();
  return found;
}

MemoryMap::Table::const_iterator MemoryMap::locate(uint64_t address) const {
  auto next = allocations_.upper_bound(address);
  if (next == allocations_.begin()) return allocations_.end();
  --next;
  // An empty array still has its own address.
  uint64_t bytes = next->second.bytes == 0 ? 1 : next->second.bytes;
  return address - next->first < bytes ? next : allocations_.end();
}

bool MemoryMap::charge(int device, uint64_t bytes) {
  return board().charge(device, bytes, faults().device[device].oom_after_bytes);
}

void MemoryMap::discharge(int device, uint64_t bytes) { board().discharge(device, bytes); }

uint64_t MemoryMap::used(int device) const { return board().memory_used(device); }

uint64_t MemoryMap::allocate_device(int device, uint64_t bytes, MemoryKind kind, CUcontext context,
                                    CUmemoryPool pool) {
  if (bytes > config().device[device].memory_bytes) return 0;
  Allocation like = {0, bytes, 0, 0, kind, device, context};
  like.pool = pool;
  if (costs_as_card() && base::shares_a_page(bytes)) return allocate_in_page(device, bytes, like);
  like.charged = costs_as_card() ? base::whole_pages(bytes)
                                 : round_up(bytes == 0 ? 1 : bytes, kAllocationAlign);
  if (!charge(device, like.charged)) return 0;
  const uint64_t address = allocate(device, like.charged, like);
  if (address == 0) discharge(device, like.charged);
  return address;
}

uint64_t MemoryMap::allocate_uncharged(int device, uint64_t bytes, MemoryKind kind,
                                       CUcontext context, CUmemoryPool pool) {
  if (bytes > config().device[device].memory_bytes) return 0;
  Allocation like = {0, bytes, 0, 0, kind, device, context};
  like.pool = pool;
  return allocate(device, round_up(bytes == 0 ? 1 : bytes, kAllocationAlign), like);
}

uint64_t MemoryMap::add_locked(uint64_t address, uint64_t bytes, uint64_t reserved,
                               const Allocation& like) {
  changed();
  Allocation& made = allocations_[address];
  made = like;
  made.base = address;
  made.bytes = bytes;
  made.reserved = reserved;
  made.id = next_id_++;
  return address;
}

uint64_t MemoryMap::allocate_in_page(int device, uint64_t bytes, const Allocation& like) {
  std::unique_lock guard(lock_);
  SharedPages& pages = shared_pages_[device];
  uint64_t page = 0;
  if (!pages.blocks.fits(bytes)) {
    if (!charge(device, base::kGpuPageBytes)) return 0;
    page = arena_locked(device).allocate(base::kGpuPageBytes, kPageBytes);
    if (page == 0) {
      discharge(device, base::kGpuPageBytes);
      return 0;
    }
  }
  bool fresh = false;
  const base::PageBlocks::Place place = pages.blocks.take(bytes, &fresh);
  if (fresh) pages.addresses[place.page] = page;
  Allocation made = like;
  made.place = place;
  return add_locked(pages.addresses[place.page] + place.offset, bytes, place.bytes, made);
}

uint64_t MemoryMap::allocate(int device, uint64_t reserved, const Allocation& like) {
  std::unique_lock guard(lock_);
  // As in drivers, large memory begins with a page of the device if it can. Programs (Taichi) rely
  // on it.
  uint64_t address =
      reserved >= kPageBytes ? arena_locked(device).allocate(reserved, kPageBytes) : 0;
  if (address == 0) address = arena_locked(device).allocate(reserved);
  return address == 0 ? 0 : add_locked(address, like.bytes, reserved, like);
}

uint64_t MemoryMap::allocate_host(uint64_t bytes, MemoryKind kind, int device, CUcontext context,
                                  unsigned flags) {
  std::unique_lock guard(lock_);
  if (bytes == 0 || bytes > host_arena_->bytes()) return 0;
  // Whole system pages, as pinned memory has. Programs read past the end of small buffers with
  // vector loads.
  uint64_t reserved = round_up(bytes, 4096);
  uint64_t address = host_arena_->allocate(reserved, 4096);
  if (address == 0) return 0;
  Allocation& made = allocations_[address];
  made = {address, bytes, reserved, 0, kind, device, context, flags};
  made.id = next_id_++;
  made.host = address;
  return address;
}

CUresult MemoryMap::register_host(uint64_t address, uint64_t bytes, int device, CUcontext context,
                                  unsigned flags) {
  std::unique_lock guard(lock_);
  auto next = allocations_.lower_bound(address + bytes);
  if (next != allocations_.begin()) {
    --next;
    if (next->first + std::max<uint64_t>(next->second.bytes, 1) > address)
      return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  }
  Allocation& made = allocations_[address];
  made = {address, bytes, bytes, 0, MemoryKind::kRegistered, device, context, flags};
  made.id = next_id_++;
  made.host = address;
  changed();
  return CUDA_SUCCESS;
}

void MemoryMap::add(const Allocation& allocation) {
  std::unique_lock guard(lock_);
  Allocation& made = allocations_[allocation.base];
  made = allocation;
  made.id = next_id_++;
  changed();
}

std::optional<Allocation> MemoryMap::remove(uint64_t address,
                                            std::initializer_list<MemoryKind> kinds) {
  std::unique_lock guard(lock_);
  auto found = allocations_.find(address);
  if (found == allocations_.end()) return std::nullopt;
  for (MemoryKind kind : kinds) {
    if (found->second.kind != kind) continue;
    Allocation gone = found->second;
    allocations_.erase(found);
    if (config().check_exact) {
      freed_.push_back({gone.base, gone.bytes});
      if (freed_.size() > kFreedKept) freed_.erase(freed_.begin());
    }
    changed();
    return gone;
  }
  return std::nullopt;
}

void MemoryMap::free(const Allocation& gone) {
  std::unique_lock guard(lock_);
  switch (gone.kind) {
    case MemoryKind::kDevice:
    case MemoryKind::kPool:
    case MemoryKind::kModule:
      if (gone.place) {
        SharedPages& pages = shared_pages_[gone.device];
        if (!pages.blocks.give_back(*gone.place)) break;
        arena_locked(gone.device).free(pages.addresses[gone.place->page], base::kGpuPageBytes);
        discharge(gone.device, base::kGpuPageBytes);
        break;
      }
      arena_locked(gone.device).free(gone.base, gone.reserved);
      discharge(gone.device, gone.charged);
      break;
    case MemoryKind::kHost:
    case MemoryKind::kManaged:
      host_arena_->free(gone.base, gone.reserved);
      break;
    case MemoryKind::kImported:  // alone in a reservation, less than a page from its start
      reservations_.erase(gone.base / kPageBytes * kPageBytes);
      break;
    case MemoryKind::kRegistered:
    case MemoryKind::kMapped:
      break;
  }
  changed();
}

void MemoryMap::free_context(CUcontext context) {
  std::vector<Allocation> gone;
  {
    std::unique_lock guard(lock_);
    for (auto it = allocations_.begin(); it != allocations_.end();) {
      // Pools, virtual mappings and registered memory outlive the context that made them.
      bool mine = it->second.context == context && it->second.kind != MemoryKind::kPool &&
                  it->second.kind != MemoryKind::kMapped;
      if (mine) gone.push_back(it->second);
      it = mine ? allocations_.erase(it) : std::next(it);
    }
    changed();
  }
  // Arenas stay mapped. Only memory that is not ours may vanish under a kernel of another context.
  bool foreign = false;
  for (const Allocation& each : gone) {
    foreign |= each.kind == MemoryKind::kRegistered || each.kind == MemoryKind::kImported;
    if (each.pinned_host()) unpin_host(each.device, each.bytes);
  }
  std::unique_lock running(execution_, std::defer_lock);
  if (foreign) running.lock();
  for (const Allocation& each : gone) free(each);
}

std::optional<Allocation> MemoryMap::find(uint64_t address) const {
  std::shared_lock guard(lock_);
  auto found = locate(address);
  if (found == allocations_.end()) return std::nullopt;
  return found->second;
}

uint8_t* MemoryMap::resolve(uint64_t address, uint64_t bytes) const {
  std::shared_lock guard(lock_);
  auto found = locate(address);
  if (found == allocations_.end()) return nullptr;
  const Allocation& in = found->second;
  uint64_t offset = address - in.base;
  uint64_t left = in.bytes - offset;
  if (in.kind == MemoryKind::kMapped || in.kind == MemoryKind::kImported) {
    // Neighbouring mappings of one reservation make one range.
    for (auto next = std::next(found); left < bytes; ++next) {
      if (next == allocations_.end() || next->second.kind != in.kind ||
          next->first != address + left)
        return nullptr;
      left += next->second.bytes;
    }
    Reservation* range = reservation_locked(address, bytes);
    return range == nullptr ? nullptr : range->host + (address - range->base);
  }
  if (left < bytes) return nullptr;
  if (in.host != 0) return reinterpret_cast<uint8_t*>(in.host + offset);
  auto arena = arenas_.find(in.device);
  return arena == arenas_.end() ? nullptr : arena->second->host(address);
}

void MemoryMap::set_peer(int device, int peer, bool allowed) {
  std::unique_lock guard(lock_);
  peers_[{device, peer}] += allowed ? 1 : -1;
  changed();
}

std::shared_ptr<const MemoryView> MemoryMap::view(int device) {
  {
    std::shared_lock guard(lock_);
    auto found = views_.find(device);
    if (found != views_.end()) return found->second;
  }
  std::unique_lock guard(lock_);
  auto made = std::make_shared<MemoryView>();
  Arena& own = arena_locked(device);
  own.commit();
  made->regions.push_back(own.region());
  made->regions.push_back(host_arena_->region());
  for (const auto& [index, arena] : arenas_)
    if (index != device && arena->file() >= 0 && peers_.count({device, index}) != 0 &&
        peers_[{device, index}] > 0)
      made->regions.push_back(arena->region());
  for (const auto& [base, range] : reservations_) {
    auto valid = range->valid.find(device);
    if (valid != range->valid.end())
      made->regions.push_back({range->base, range->bytes, range->host, valid->second.data()});
  }
  for (const auto& [base, each] : allocations_)
    if (each.kind == MemoryKind::kRegistered)
      made->regions.push_back(
          {each.base, each.bytes, reinterpret_cast<uint8_t*>(each.host), nullptr});
  made->exact = config().check_exact;
  if (made->exact) {
    for (const auto& [base, each] : allocations_) made->blocks.push_back({each.base, each.bytes});
    made->freed = freed_;
  }
  views_[device] = made;
  return made;
}

}  // namespace tendril::softgpu
