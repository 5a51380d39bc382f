// SPDX-License-Identifier: Apache-2.0
// See charge.h.
#include "worker/core/charge.h"

namespace tendril::worker {

Charge::Charge(const wire::Assignment& assignment, wire::AccountingPage* accounting)
    : assignment_(assignment),
      accounting_(accounting),
      asked_(accounting != nullptr && assignment.tally < wire::kTalliesMax
                 ? &accounting->wanted_ns[assignment.tally]
                 : nullptr) {}

uint64_t Charge::quota(uint32_t slot) const {
  if (slot >= assignment_.slice_count || slot >= wire::kSlicesMax) return 0;
  const uint64_t now = accounting_ != nullptr ? accounting_->quota_bytes[slot].load() : 0;
  return now != 0 ? now : assignment_.slices[slot].memory_bytes;
}

uint64_t Charge::context_bytes(uint32_t slot) const {
  return slot < assignment_.slice_count && slot < wire::kSlicesMax
             ? assignment_.slices[slot].context_bytes
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
  if (slot >= wire::kSlicesMax || bytes > quota(slot)) return false;
  if (used(slot) + bytes > quota(slot)) return false;
  // Charge first, then look at the sum, and undo if it is too high. Two workers at the limit may
  // both be refused, but they never exceed the quota. The quota is read after that, too: tendrild
  // lowers it first, then looks at the sum. Until it is decided it is not in use for those who
  // look.
  local_[slot] += bytes;
  const bool shared = accounting_ != nullptr && assignment_.tally < wire::kTalliesMax;
  if (shared) {
    add_ahead(slot, bytes);
    accounting_->used_bytes[slot][assignment_.tally].fetch_add(bytes);
  }
  const bool fits = used(slot) <= quota(slot);
  if (!fits) local_[slot] -= bytes;
  if (shared) {
    if (!fits) accounting_->used_bytes[slot][assignment_.tally].fetch_sub(bytes);
    add_ahead(slot, 0 - bytes);
  }
  return fits;
}

void Charge::take_anyway(uint32_t slot, uint64_t bytes) {
  if (slot >= wire::kSlicesMax) return;
  local_[slot] += bytes;
  if (accounting_ != nullptr && assignment_.tally < wire::kTalliesMax)
    accounting_->used_bytes[slot][assignment_.tally].fetch_add(bytes);
}

void Charge::give_back(uint32_t slot, uint64_t bytes) {
  if (slot >= wire::kSlicesMax || bytes > local_[slot]) return;
  local_[slot] -= bytes;
  if (accounting_ != nullptr && assignment_.tally < wire::kTalliesMax) {
    accounting_->used_bytes[slot][assignment_.tally].fetch_sub(bytes);
  }
}

void Charge::note_ahead(uint32_t slot, uint64_t bytes) {
  if (slot >= wire::kSlicesMax || accounting_ == nullptr || assignment_.tally >= wire::kTalliesMax)
    return;
  add_ahead(slot, bytes - ahead_[slot]);
  ahead_[slot] = bytes;
}

// Threads of a worker charge for the same place, so each adds what is its own.
void Charge::add_ahead(uint32_t slot, uint64_t bytes) {
  accounting_->ahead_bytes[slot][assignment_.tally].fetch_add(bytes);
}

void Charge::note_keeps(bool keeps) {
  if (asked_ == nullptr) return;
  accounting_->keeps[assignment_.tally].store(keeps ? 1 : 0);
  if (!keeps) asked_->store(0);
}

bool Charge::ask_others(uint64_t now_ns) {
  if (asked_ == nullptr) return false;
  bool some = false;
  for (uint32_t tally = 0; tally < wire::kTalliesMax; ++tally) {
    if (tally == assignment_.tally || accounting_->keeps[tally].load() == 0) continue;
    uint64_t since_ns = 0;
    const bool first = accounting_->wanted_ns[tally].compare_exchange_strong(since_ns, now_ns);
    some |= first || now_ns < since_ns + kAnswerNs;
  }
  if (some) accounting_->short_ns.store(now_ns, std::memory_order_relaxed);
  return some;
}

bool Charge::is_short(uint64_t now_ns) const {
  constexpr uint64_t kLastsNs = 500'000'000;
  if (accounting_ == nullptr) return false;
  const uint64_t asked_ns = accounting_->short_ns.load(std::memory_order_relaxed);
  return asked_ns != 0 && now_ns < asked_ns + kLastsNs;
}

void Charge::remember(uint64_t key, uint32_t slot, uint64_t bytes, const void* context) {
  items_[key] = {slot, bytes, context};
}

void Charge::release_context(const void* context) {
  for (auto it = items_.begin(); it != items_.end();) {
    if (it->second.context == context) {
      give_back(it->second);
      it = items_.erase(it);
    } else {
      ++it;
    }
  }
}

void Charge::give_back(const Item& item) {
  if (!item.place) return give_back(item.slot, item.bytes);
  if (blocks_[{item.slot, item.kind}].give_back(*item.place))
    give_back(item.slot, base::kGpuPageBytes);
}

void Charge::rename(uint64_t key, uint64_t to) {
  auto item = items_.extract(key);
  if (item.empty()) return;
  release(to);
  item.key() = to;
  items_.insert(std::move(item));
}

uint64_t Charge::hold_block(uint32_t slot, Blocks kind, uint64_t bytes, const void* context) {
  const uint64_t key = next_hold();
  if (!base::shares_a_page(bytes)) {
    if (bytes > quota(slot) || !take(slot, base::whole_pages(bytes))) return 0;
    remember(key, slot, base::whole_pages(bytes), context);
    return key;
  }
  if (!blocks_[{slot, kind}].fits(bytes) && !take(slot, base::kGpuPageBytes)) return 0;
  bool fresh = false;
  items_[key] = {slot, 0, context, kind, blocks_[{slot, kind}].take(bytes, &fresh)};
  return key;
}

uint64_t Charge::next_hold() {
  constexpr uint64_t kHolds = uint64_t{0xc} << 60;  // neither an address nor the id of an object
  return kHolds + ++holds_;
}

uint64_t Charge::hold(uint32_t slot, uint64_t bytes, const void* context) {
  if (!take(slot, bytes)) return 0;
  const uint64_t key = next_hold();
  remember(key, slot, bytes, context);
  return key;
}

bool Charge::release(uint64_t key) {
  auto it = items_.find(key);
  if (it == items_.end()) return false;
  give_back(it->second);
  items_.erase(it);
  return true;
}

}  // namespace tendril::worker
