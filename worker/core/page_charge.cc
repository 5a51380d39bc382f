// SPDX-License-Identifier: Apache-2.0
// See page_charge.h.
#include "worker/core/page_charge.h"

#include <algorithm>
#include <iterator>

namespace tendril::worker {
namespace {

constexpr uint64_t kPage = base::kGpuPageBytes;

uint64_t last_page(uint64_t address, uint64_t bytes) {
  return (address + (bytes == 0 ? 0 : bytes - 1)) / kPage;
}

}  // namespace

uint64_t PageCharge::bytes_around(uint64_t address, uint64_t bytes) {
  return (last_page(address, bytes) - address / kPage + 1) * kPage;
}

bool PageCharge::before(uint32_t slot, uint64_t bytes, uint64_t* ahead) {
  *ahead = 0;
  if (bytes > charge_.quota(slot)) return false;
  const bool shares = base::shares_a_page(bytes);
  const uint64_t most = shares ? kPage : base::whole_pages(bytes);
  if (!charge_.try_take(slot, most)) {
    if (shares && has_hole(slot, bytes)) return true;
    if (!charge_.take(slot, most)) return false;
  }
  *ahead = most;
  return true;
}

bool PageCharge::after(uint32_t slot, uint64_t address, uint64_t bytes, const void* context,
                       uint64_t ahead) {
  const bool shares = base::shares_a_page(bytes);
  const uint64_t first = address / kPage, last = last_page(address, bytes);
  uint64_t needed = 0;
  if (shares) {
    for (uint64_t page = first; page <= last; ++page) needed += pages_.count(page) == 0 ? kPage : 0;
  } else {
    needed = bytes_around(address, bytes);
  }
  if (needed > ahead && !charge_.try_take(slot, needed - ahead)) {
    charge_.give_back(slot, ahead);
    return false;
  }
  if (needed < ahead) charge_.give_back(slot, ahead - needed);
  blocks_[address] = {slot, bytes, shares ? 0 : needed, context};
  for (uint64_t page = first; shares && page <= last; ++page) {
    Page& shared = pages_[page];
    if (shared.blocks++ == 0) shared.slot = slot;
    shared.used += base::rounded_up(std::max<uint64_t>(bytes, 1), base::kGpuBlockAlign);
  }
  return true;
}

PageCharge::Blocks::iterator PageCharge::erase(Blocks::iterator at) {
  const auto& [address, block] = *at;
  if (block.charged != 0) {
    charge_.give_back(block.slot, block.charged);
    return blocks_.erase(at);
  }
  const uint64_t last = last_page(address, block.bytes);
  for (uint64_t page = address / kPage; page <= last; ++page) {
    const auto shared = pages_.find(page);
    if (shared == pages_.end()) continue;
    shared->second.used -=
        base::rounded_up(std::max<uint64_t>(block.bytes, 1), base::kGpuBlockAlign);
    if (--shared->second.blocks != 0) continue;
    charge_.give_back(shared->second.slot, kPage);
    pages_.erase(shared);
  }
  return blocks_.erase(at);
}

void PageCharge::freed(uint64_t address) {
  const auto block = blocks_.find(address);
  if (block != blocks_.end()) erase(block);
}

bool PageCharge::pay_ahead(uint32_t slot, uint64_t bytes) {
  if (slot >= wire::kSlicesMax || !charge_.take(slot, bytes)) return false;
  set_ahead(slot, ahead_[slot] + bytes);
  return true;
}

void PageCharge::set_ahead(uint32_t slot, uint64_t bytes) {
  ahead_[slot] = bytes;
  charge_.note_ahead(slot, bytes);
}

uint64_t PageCharge::paid_ahead(uint32_t slot) const {
  return slot < wire::kSlicesMax ? ahead_[slot] : 0;
}

void PageCharge::give_up(uint32_t slot, uint64_t bytes) {
  const uint64_t given = std::min(bytes, paid_ahead(slot));
  if (given == 0) return;
  set_ahead(slot, ahead_[slot] - given);
  charge_.give_back(slot, given);
}

bool PageCharge::spend(uint32_t slot, uint64_t address, uint64_t bytes, const void* context) {
  if (bytes == 0 || bytes > paid_ahead(slot)) return false;
  const auto [at, fresh] = blocks_.try_emplace(address, Block{slot, bytes, bytes, context});
  if (fresh) set_ahead(slot, ahead_[slot] - bytes);
  return fresh;
}

void PageCharge::keep(uint64_t address) {
  const auto block = blocks_.find(address);
  if (block == blocks_.end() || block->second.charged == 0) return freed(address);
  const uint32_t slot = block->second.slot;
  set_ahead(slot, ahead_[slot] + block->second.charged);
  blocks_.erase(block);
}

void PageCharge::release_context(const void* context) {
  for (auto block = blocks_.begin(); block != blocks_.end();)
    block = block->second.context == context ? erase(block) : std::next(block);
}

// Whether a driver has room for a small block in pages that are paid. At the quota only.
bool PageCharge::has_hole(uint32_t slot, uint64_t bytes) const {
  for (const auto& [page, shared] : pages_) {
    if (shared.slot != slot || shared.used + bytes > kPage) continue;
    if (has_hole_in(page, base::rounded_up(std::max<uint64_t>(bytes, 1), base::kGpuBlockAlign)))
      return true;
  }
  return false;
}

bool PageCharge::has_hole_in(uint64_t page, uint64_t bytes) const {
  uint64_t free_from = page * kPage;
  for (auto block = blocks_.lower_bound(free_from);
       block != blocks_.end() && block->first < (page + 1) * kPage; ++block) {
    if (block->first >= free_from + bytes) return true;
    free_from = block->first +
                base::rounded_up(std::max<uint64_t>(block->second.bytes, 1), base::kGpuBlockAlign);
  }
  return free_from + bytes <= (page + 1) * kPage;
}

}  // namespace tendril::worker
