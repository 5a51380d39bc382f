// SPDX-License-Identifier: Apache-2.0
// See range_map.h.
#include "client/cuda/memory/range_map.h"

#include <iterator>

namespace tendril::client::cuda {

namespace {

bool overlaps(const std::map<uint64_t, Range>& ranges, uint64_t base, uint64_t bytes) {
  auto after = ranges.lower_bound(base);
  if (after != ranges.end() && after->first < base + bytes) return true;
  if (after == ranges.begin()) return false;
  const Range& before = std::prev(after)->second;
  return before.base + before.bytes > base;
}

const Range* containing(const std::map<uint64_t, Range>& ranges, uint64_t address) {
  auto after = ranges.upper_bound(address);
  if (after == ranges.begin()) return nullptr;
  const Range& range = std::prev(after)->second;
  return address - range.base < range.bytes || (address == range.base && range.bytes == 0)
             ? &range
             : nullptr;
}

}  // namespace

bool RangeMap::insert(const Range& range) {
  const core::Writing held(lock_);
  bool free = !overlaps(ranges_, range.base, range.bytes);
  if (range.kind != RangeKind::kMapped)
    free = free && !overlaps(reserved_, range.base, range.bytes);
  if (!range.part) free = free && !overlaps(pages_, range.base, range.bytes);
  std::map<uint64_t, Range>& into = range.kind == RangeKind::kReserved ? reserved_ : ranges_;
  if (free) free = into.emplace(range.base, range).second;
  return free;
}

bool RangeMap::insert_page(uint64_t base, uint64_t bytes) {
  const core::Writing held(lock_);
  const bool free = !overlaps(ranges_, base, bytes) && !overlaps(reserved_, base, bytes) &&
                    !overlaps(pages_, base, bytes);
  if (!free) return false;
  Range& page = pages_[base];
  page.base = base;
  page.bytes = bytes;
  return true;
}

void RangeMap::remove_page(uint64_t base) {
  const core::Writing held(lock_);
  pages_.erase(base);
}

// Caller holds the lock.
void RangeMap::erase_graph(const Session* session, uint64_t base, uint64_t bytes) {
  auto it = ranges_.lower_bound(base);
  if (it != ranges_.begin() && std::prev(it)->second.base + std::prev(it)->second.bytes > base)
    --it;
  while (it != ranges_.end() && it->first < base + bytes) {
    const bool stale = it->second.kind == RangeKind::kGraph && it->second.session == session;
    it = stale ? ranges_.erase(it) : std::next(it);
  }
}

bool RangeMap::insert_graph(const Range& range) {
  const core::Writing held(lock_);
  erase_graph(range.session, range.base, range.bytes);
  const bool free = !overlaps(ranges_, range.base, range.bytes) &&
                    !overlaps(reserved_, range.base, range.bytes) &&
                    !overlaps(pages_, range.base, range.bytes);
  if (free) ranges_.emplace(range.base, range);
  return free;
}

void RangeMap::remove_graph(const Session* session, uint64_t base, uint64_t bytes) {
  const core::Writing held(lock_);
  erase_graph(session, base, bytes);
}

bool RangeMap::unknown(uint64_t base, uint64_t bytes) const {
  const core::Reading held(lock_);
  return !overlaps(ranges_, base, bytes) && !overlaps(reserved_, base, bytes);
}

bool RangeMap::find(uint64_t address, Range* out) const {
  const core::Reading held(lock_);
  const Range* found = containing(ranges_, address);
  if (found == nullptr) found = containing(reserved_, address);
  if (found != nullptr) *out = *found;
  return found != nullptr;
}

bool RangeMap::find_reserved(uint64_t base, uint64_t bytes, Range* out) const {
  const core::Reading held(lock_);
  const Range* found = containing(reserved_, base);
  if (found != nullptr && bytes > found->bytes - (base - found->base)) found = nullptr;
  if (found != nullptr) *out = *found;
  return found != nullptr;
}

bool RangeMap::remove_reserved(uint64_t base) {
  const core::Writing held(lock_);
  auto it = reserved_.find(base);
  const bool removed = it != reserved_.end() && !overlaps(ranges_, base, it->second.bytes);
  if (removed) reserved_.erase(it);
  return removed;
}

void RangeMap::reserved_in(uint64_t base, uint32_t session) {
  const core::Writing held(lock_);
  auto it = reserved_.find(base);
  if (it != reserved_.end()) it->second.sessions |= uint64_t{1} << (session & 63);
}

bool RangeMap::mapped(uint64_t base, uint64_t bytes, std::vector<Range>* out) const {
  out->clear();
  const core::Reading held(lock_);
  uint64_t at = base;
  for (auto it = ranges_.find(base); it != ranges_.end() && at < base + bytes; ++it) {
    const Range& range = it->second;
    if (range.kind != RangeKind::kMapped || range.base != at || range.bytes > base + bytes - at)
      break;
    out->push_back(range);
    at += range.bytes;
  }
  return at == base + bytes && bytes != 0;
}

bool RangeMap::vacant(uint64_t base, uint64_t bytes) const {
  Range reserved;
  if (!find_reserved(base, bytes, &reserved)) return false;
  const core::Reading held(lock_);
  const bool none = !overlaps(ranges_, base, bytes);
  return none;
}

bool RangeMap::remove(uint64_t base, Range* out) {
  const core::Writing held(lock_);
  auto it = ranges_.find(base);
  const bool found = it != ranges_.end();
  if (found) {
    *out = it->second;
    ranges_.erase(it);
  }
  return found;
}

void RangeMap::mark_mirrored(uint64_t base, uint32_t session) {
  const core::Writing held(lock_);
  auto it = ranges_.find(base);
  if (it != ranges_.end()) it->second.mirror_in(session);
}

void RangeMap::remove_context(Context* context, Context* primary) {
  const core::Writing held(lock_);
  for (auto it = ranges_.begin(); it != ranges_.end();) {
    const bool mine = it->second.context == context;
    const bool stays =
        it->second.kind == RangeKind::kRegistered || it->second.kind == RangeKind::kMapped;
    if (mine && it->second.kind == RangeKind::kMapped) it->second.context = primary;
    it = mine && !stays ? ranges_.erase(it) : std::next(it);
  }
}

}  // namespace tendril::client::cuda
