// SPDX-License-Identifier: Apache-2.0
// See range_map.h.
#include "client/cuda/range_map.h"

#include <iterator>

namespace tendril::client::cuda {

bool RangeMap::insert(const Range& range) {
  pthread_rwlock_wrlock(&lock_);
  auto after = ranges_.lower_bound(range.base);
  bool free = after == ranges_.end() || after->first >= range.base + range.bytes;
  if (free && after != ranges_.begin()) {
    const Range& before = std::prev(after)->second;
    free = before.base + before.bytes <= range.base;
  }
  if (free) ranges_.emplace_hint(after, range.base, range);
  pthread_rwlock_unlock(&lock_);
  return free;
}

bool RangeMap::find(uint64_t address, Range* out) const {
  pthread_rwlock_rdlock(&lock_);
  auto after = ranges_.upper_bound(address);
  bool found = false;
  if (after != ranges_.begin()) {
    const Range& range = std::prev(after)->second;
    found = address - range.base < range.bytes || (address == range.base && range.bytes == 0);
    if (found) *out = range;
  }
  pthread_rwlock_unlock(&lock_);
  return found;
}

bool RangeMap::remove(uint64_t base, Range* out) {
  pthread_rwlock_wrlock(&lock_);
  auto it = ranges_.find(base);
  const bool found = it != ranges_.end();
  if (found) {
    *out = it->second;
    ranges_.erase(it);
  }
  pthread_rwlock_unlock(&lock_);
  return found;
}

void RangeMap::mark_mirrored(uint64_t base) {
  pthread_rwlock_wrlock(&lock_);
  auto it = ranges_.find(base);
  if (it != ranges_.end()) it->second.mirrored = true;
  pthread_rwlock_unlock(&lock_);
}

void RangeMap::remove_context(Context* context) {
  pthread_rwlock_wrlock(&lock_);
  for (auto it = ranges_.begin(); it != ranges_.end();) {
    const bool gone = it->second.context == context && it->second.kind != RangeKind::kRegistered;
    it = gone ? ranges_.erase(it) : std::next(it);
  }
  pthread_rwlock_unlock(&lock_);
}

}  // namespace tendril::client::cuda
