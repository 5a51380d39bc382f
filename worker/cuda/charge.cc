// SPDX-License-Identifier: Apache-2.0
// See charge.h.
#include "worker/cuda/charge.h"

namespace tendril::worker::cuda {

Charge::Charge(const wire::Assignment& assignment, wire::AccountingPage* accounting)
    : assignment_(assignment), accounting_(accounting) {}

uint64_t Charge::quota(uint32_t slot) const {
  return slot < assignment_.slice_count && slot < wire::kSlicesMax ? assignment_.slices[slot].memory_bytes : 0;
}

uint64_t Charge::used(uint32_t slot) const {
  if (slot >= wire::kSlicesMax) return 0;
  if (accounting_ == nullptr) return local_[slot];
  uint64_t sum = 0;
  for (uint32_t tally = 0; tally < wire::kTalliesMax; ++tally) sum += accounting_->used_bytes[slot][tally].load();
  return sum;
}

bool Charge::take(uint32_t slot, uint64_t bytes) {
  const uint64_t limit = quota(slot);
  if (slot >= wire::kSlicesMax || bytes > limit) return false;
  // Charge first, look at the sum, undo: two workers at the edge may both be refused, but the quota is never passed.
  local_[slot] += bytes;
  const bool shared = accounting_ != nullptr && assignment_.tally < wire::kTalliesMax;
  if (shared) accounting_->used_bytes[slot][assignment_.tally].fetch_add(bytes);
  if (used(slot) <= limit) return true;
  local_[slot] -= bytes;
  if (shared) accounting_->used_bytes[slot][assignment_.tally].fetch_sub(bytes);
  return false;
}

void Charge::give_back(uint32_t slot, uint64_t bytes) {
  if (slot >= wire::kSlicesMax || bytes > local_[slot]) return;
  local_[slot] -= bytes;
  if (accounting_ != nullptr && assignment_.tally < wire::kTalliesMax) {
    accounting_->used_bytes[slot][assignment_.tally].fetch_sub(bytes);
  }
}

void Charge::remember(uint64_t key, uint32_t slot, uint64_t bytes, const void* context) {
  // The driver gives an address out again as soon as it is free, which may be before we have seen that it is.
  release(key);
  items_[key] = {slot, bytes, context};
}

void Charge::stay(uint64_t key, Item* item) {
  if (!item->leaving) return;
  item->leaving = false;
  leaving_[item->slot] -= item->bytes;
  leaving_ranges_.erase(key);
}

// The item is no more: what it was charged.
void Charge::forget(uint64_t key, Item* item) {
  stay(key, item);
  give_back(item->slot, item->bytes);
}

bool Charge::is_leaving(uint64_t address, uint64_t bytes) const {
  if (leaving_ranges_.empty() || bytes == 0) return false;
  auto after = leaving_ranges_.upper_bound(bytes > UINT64_MAX - address ? UINT64_MAX : address + (bytes - 1));
  if (after == leaving_ranges_.begin()) return false;
  const auto& [begin, size] = *--after;
  return begin >= address || address - begin < size;
}

void Charge::leave(uint64_t key) {
  auto it = items_.find(key);
  if (it == items_.end() || it->second.leaving) return;
  it->second.leaving = true;
  leaving_[it->second.slot] += it->second.bytes;
  leaving_ranges_[key] = it->second.bytes;
}

void Charge::left(uint64_t key, bool gone) {
  auto it = items_.find(key);
  if (it == items_.end() || !it->second.leaving) return;
  if (!gone) return stay(key, &it->second);
  forget(key, &it->second);
  items_.erase(it);
}

void Charge::release_context(const void* context) {
  for (auto it = items_.begin(); it != items_.end();) {
    if (it->second.context == context) {
      forget(it->first, &it->second);
      it = items_.erase(it);
    } else {
      ++it;
    }
  }
}

void Charge::release_slot(uint32_t slot) {
  for (auto it = items_.begin(); it != items_.end();) {
    if (it->second.slot == slot) {
      forget(it->first, &it->second);
      it = items_.erase(it);
    } else {
      ++it;
    }
  }
}

bool Charge::release(uint64_t key) {
  auto it = items_.find(key);
  if (it == items_.end()) return false;
  forget(key, &it->second);
  items_.erase(it);
  return true;
}

}  // namespace tendril::worker::cuda
