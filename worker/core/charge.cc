// SPDX-License-Identifier: Apache-2.0
// See charge.h.
#include "worker/core/charge.h"

namespace tendril::worker {

Charge::Charge(const wire::Assignment& assignment, wire::AccountingPage* accounting)
    : assignment_(assignment), accounting_(accounting) {}

uint64_t Charge::quota(uint32_t slot) const {
  return slot < assignment_.slice_count && slot < wire::kSlicesMax
             ? assignment_.slices[slot].memory_bytes
             : 0;
}

uint64_t Charge::used(uint32_t slot) const {
  if (slot >= wire::kSlicesMax) return 0;
  if (accounting_ == nullptr) return local_[slot];
  uint64_t sum = 0;
  for (uint32_t tally = 0; tally < wire::kTalliesMax; ++tally)
    sum += accounting_->used_bytes[slot][tally].load();
  return sum;
}

bool Charge::take(uint32_t slot, uint64_t bytes) {
  if (try_take(slot, bytes)) return true;
  if (give_up_ == nullptr || giving_up_ || bytes > quota(slot)) return false;
  giving_up_ = true;
  give_up_(slot);
  giving_up_ = false;
  return try_take(slot, bytes);
}

bool Charge::try_take(uint32_t slot, uint64_t bytes) {
  const uint64_t limit = quota(slot);
  if (slot >= wire::kSlicesMax || bytes > limit) return false;
  // Charge first, then look at the sum, and undo if it is too high. Two workers at the limit may
  // both be refused, but they never exceed the quota.
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
  items_[key] = {slot, bytes, context};
}

void Charge::release_context(const void* context) {
  for (auto it = items_.begin(); it != items_.end();) {
    if (it->second.context == context) {
      give_back(it->second.slot, it->second.bytes);
      it = items_.erase(it);
    } else {
      ++it;
    }
  }
}

uint64_t Charge::hold(uint32_t slot, uint64_t bytes, const void* context) {
  constexpr uint64_t kHolds = uint64_t{0xc} << 60;  // neither an address nor the id of an object
  if (!take(slot, bytes)) return 0;
  const uint64_t key = kHolds + ++holds_;
  remember(key, slot, bytes, context);
  return key;
}

bool Charge::release(uint64_t key) {
  auto it = items_.find(key);
  if (it == items_.end()) return false;
  give_back(it->second.slot, it->second.bytes);
  items_.erase(it);
  return true;
}

}  // namespace tendril::worker
