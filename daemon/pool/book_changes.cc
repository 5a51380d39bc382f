// SPDX-License-Identifier: Apache-2.0
// See book_changes.h.
#include "daemon/pool/book_changes.h"

#include <algorithm>
#include <set>

namespace tendril::daemon {
namespace {

constexpr uint64_t kSumsEveryNs = 10'000'000'000;

bool are_same(const std::vector<wire::SliceGrant>& one, const std::vector<wire::SliceGrant>& two) {
  return std::equal(one.begin(), one.end(), two.begin(), two.end(),
                    [](const wire::SliceGrant& first, const wire::SliceGrant& second) {
                      return first.gpu_index == second.gpu_index &&
                             first.share_millionths == second.share_millionths &&
                             first.memory_bytes == second.memory_bytes &&
                             first.packed == second.packed;
                    });
}

// What is told at once. The other fields never change, or are sums.
bool differ(const wire::BookEntry& one, const wire::BookEntry& two) {
  return one.phase != two.phase || one.paused != two.paused || one.standing != two.standing ||
         one.wants_wake != two.wants_wake || one.processes != two.processes ||
         one.was_attached != two.was_attached || one.terms.policy != two.terms.policy ||
         one.terms.priority != two.terms.priority || one.ended_number != two.ended_number ||
         (one.idle_ns == 0) != (two.idle_ns == 0) ||
         (one.idle_ns == wire::kIdleUnknown) != (two.idle_ns == wire::kIdleUnknown) ||
         (two.idle_ns != wire::kIdleUnknown && two.idle_ns < one.idle_ns) ||
         !are_same(one.slices, two.slices);
}

}  // namespace

void BookChanges::forget() { told_.clear(); }

std::vector<wire::BookEntry> BookChanges::take(const std::vector<wire::BookEntry>& book,
                                               uint64_t now_ns, bool* more, size_t limit) {
  *more = false;
  ++round_;
  std::vector<wire::BookEntry> changed;
  for (const wire::BookEntry& entry : book) {
    const auto [found, is_new] = told_.try_emplace(entry.lease_id);
    Told& told = found->second;
    told.round = round_;
    const bool ended = entry.phase == wire::LeasePhase::kEnded;
    const bool due =
        is_new || differ(told.entry, entry) || (!ended && now_ns - told.at_ns >= kSumsEveryNs);
    if (!due) continue;
    if (changed.size() == limit) {
      *more = true;
      if (is_new) told_.erase(found);
      continue;
    }
    told.entry = entry;
    told.at_ns = now_ns;
    changed.push_back(entry);
  }
  for (auto at = told_.begin(); at != told_.end();) {
    if (at->second.round == round_)
      ++at;
    else
      at = told_.erase(at);
  }
  return changed;
}

std::vector<wire::LeaseUse> uses_of(const std::vector<wire::BookEntry>& book,
                                    const std::vector<wire::BookEntry>& entries) {
  std::set<uint64_t> told;
  for (const wire::BookEntry& entry : entries) told.insert(entry.lease_id);
  std::vector<wire::LeaseUse> uses;
  for (const wire::BookEntry& entry : book) {
    if (entry.phase != wire::LeasePhase::kClaimed || told.count(entry.lease_id) != 0) continue;
    if (uses.size() == wire::kLeaseUsesMax) break;
    uses.push_back({entry.lease_id, entry.age_ns, entry.idle_ns, entry.idle_total_ns, entry.used_ns,
                    entry.waited_ns, entry.memory_used_bytes});
  }
  return uses;
}

}  // namespace tendril::daemon
