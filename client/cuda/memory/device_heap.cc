// SPDX-License-Identifier: Apache-2.0
// See device_heap.h.
#include "client/cuda/memory/device_heap.h"

#include <algorithm>
#include <cstddef>
#include <iterator>

namespace tendril::client::cuda {
namespace {

uint64_t part_bytes(uint64_t bytes) { return base::rounded_up(bytes, base::kGpuBlockAlign); }

}  // namespace

std::map<uint64_t, DeviceHeap::Page>::iterator DeviceHeap::page_of(uint64_t address) {
  auto after = pages_.upper_bound(address);
  if (after == pages_.begin()) return pages_.end();
  --after;
  return address - after->first < kPageBytes ? after : pages_.end();
}

HeapPlace DeviceHeap::took(uint64_t base, Page* page, uint64_t offset, uint64_t bytes) {
  if (page->parts++ == 0) keep_less(kPageBytes);
  if (page->holes.empty()) open_.erase(base);
  return {base + offset, bytes, true};
}

HeapPlace DeviceHeap::take_part(const Context* context, uint64_t bytes, bool may_order,
                                bool* used) {
  const uint64_t needed = part_bytes(bytes);
  const auto may = [&](uint64_t freed) { return may_order || freed <= ordered_; };
  for (const auto& [base, page] : open_) {
    if (page->context != context || page->largest < needed) continue;
    uint64_t offset = 0, freed = 0;
    if (page->holes.take(needed, &offset, &freed, may)) {
      *used = freed > ordered_;
      return took(base, page, offset, needed);
    }
    page->largest = page->holes.largest();
  }
  return {};
}

HeapPlace DeviceHeap::take_block(const Context* context, uint64_t bytes, bool may_order,
                                 bool* used) {
  for (size_t i = blocks_.size(); i-- > 0;) {
    const Freed& block = blocks_[i];
    const bool fits =
        block.bytes >= bytes && base::whole_pages(block.bytes) == base::whole_pages(bytes);
    const bool fresh = block.freed <= ordered_;
    if (block.context != context || !fits || (!fresh && !may_order)) continue;
    *used = !fresh;
    const HeapPlace place = {block.address, block.bytes, false};
    keep_less(block.bytes);
    blocks_.erase(blocks_.begin() + static_cast<std::ptrdiff_t>(i));
    return place;
  }
  return {};
}

HeapPlace DeviceHeap::add_page(const Context* context, uint64_t base, uint64_t bytes) {
  const base::Locked locked(lock_);
  Page& page = pages_[base];
  page = {};
  page.context = context;
  page.largest = kPageBytes;
  page.holes.add(0, kPageBytes, 0);
  open_[base] = &page;
  keep_more(kPageBytes);
  uint64_t offset = 0, freed = 0;
  const uint64_t needed = part_bytes(bytes);
  page.holes.take(needed, &offset, &freed, [](uint64_t) { return true; });
  return took(base, &page, offset, needed);
}

// False: the page goes back.
bool DeviceHeap::give_part(const HeapPlace& place) {
  const auto found = page_of(place.address);
  if (found == pages_.end()) return true;
  Page& page = found->second;
  --page.parts;
  if (page.pinned) return page.parts != 0;
  const bool was_full = page.holes.empty();
  const uint64_t hole = page.holes.add(place.address - found->first, place.capacity, frees_);
  page.largest = std::max(page.largest, hole);
  if (was_full) open_[found->first] = &page;
  if (page.parts == 0) keep_more(kPageBytes);
  return true;
}

// False: the block goes back.
bool DeviceHeap::give_block(const Context* context, const HeapPlace& place) {
  if (pinned_.erase(place.address) != 0 || place.capacity > limit_) return false;
  blocks_.push_back({context, place.address, place.capacity, frees_});
  keep_more(place.capacity);
  return true;
}

uint64_t DeviceHeap::drop_page(uint64_t address) {
  const auto page = page_of(address);
  const uint64_t base = page->first;
  open_.erase(base);
  pages_.erase(page);
  return base;
}

// Only while something is kept.
DeviceHeap::Freed DeviceHeap::drop_oldest() {
  if (!blocks_.empty()) {
    const Freed oldest = blocks_.front();
    blocks_.erase(blocks_.begin());
    keep_less(oldest.bytes);
    return oldest;
  }
  auto page = open_.begin();
  while (page->second->parts != 0) ++page;
  const Freed empty = {page->second->context, page->first, kPageBytes, 0};
  keep_less(kPageBytes);
  drop_page(empty.address);
  return empty;
}

uint64_t DeviceHeap::kept_of(const Context* context) const {
  uint64_t bytes = 0;
  for (const Freed& block : blocks_)
    if (block.context == context) bytes += block.bytes;
  for (const auto& [base, page] : open_)
    if (page->parts == 0 && page->context == context) bytes += kPageBytes;
  return bytes;
}

// Only while the context keeps something.
DeviceHeap::Freed DeviceHeap::drop_oldest_of(const Context* context) {
  for (auto block = blocks_.begin(); block != blocks_.end(); ++block) {
    if (block->context != context) continue;
    const Freed oldest = *block;
    blocks_.erase(block);
    keep_less(oldest.bytes);
    return oldest;
  }
  auto page = open_.begin();
  while (page->second->parts != 0 || page->second->context != context) ++page;
  const Freed empty = {context, page->first, kPageBytes, 0};
  keep_less(kPageBytes);
  drop_page(empty.address);
  return empty;
}

void DeviceHeap::forget_blocks(const Context* context) {
  for (size_t i = blocks_.size(); i-- > 0;) {
    if (blocks_[i].context != context) continue;
    keep_less(blocks_[i].bytes);
    blocks_.erase(blocks_.begin() + static_cast<std::ptrdiff_t>(i));
  }
  for (auto it = pinned_.begin(); it != pinned_.end();)
    it = it->second == context ? pinned_.erase(it) : std::next(it);
}

void DeviceHeap::left(uint64_t bytes) {
  const base::Locked locked(lock_);
  limit_ = std::min(kKeptMost, (bytes + kept()) / 2);
}

uint64_t DeviceHeap::mark() const {
  const base::Locked locked(lock_);
  return frees_;
}

void DeviceHeap::waited(uint64_t mark) {
  const base::Locked locked(lock_);
  ordered_ = std::max(ordered_, mark);
}

uint64_t DeviceHeap::pin(const HeapPlace& place, const Context* context) {
  const base::Locked locked(lock_);
  if (!place.part) {
    pinned_[place.address] = context;
    return place.address;
  }
  const auto page = page_of(place.address);
  if (page == pages_.end()) return place.address;
  page->second.pinned = true;
  page->second.holes.clear();
  open_.erase(page->first);
  return page->first;
}

}  // namespace tendril::client::cuda
