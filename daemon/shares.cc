// SPDX-License-Identifier: Apache-2.0
// See shares.h.
#include "daemon/shares.h"

#include <iterator>

#include "base/text.h"

namespace tendril::daemon {
namespace {

using wire::ShareAnswer;
using wire::ShareKind;

bool has_descriptor(ShareKind kind) {
  return kind == ShareKind::kAllocation || kind == ShareKind::kPool;
}

// Their openers keep GPU memory alive. Pools pay for themselves: their owner's worker holds them.
bool is_memory(ShareKind kind) {
  return kind == ShareKind::kMemory || kind == ShareKind::kAllocation;
}

// The driver lets processes of one user only open these; descriptors open themselves.
bool is_for_one_user(ShareKind kind) {
  return kind == ShareKind::kMemory || kind == ShareKind::kEvent;
}

bool is_known(ShareKind kind) {
  return kind >= ShareKind::kMemory && kind <= ShareKind::kPoolPointer;
}

std::string key_of(const wire::ShareRecord& record) {
  return std::string(reinterpret_cast<const char*>(record.token), sizeof record.token);
}

}  // namespace

Shares::Items::iterator Shares::find(const wire::ShareRecord& record) {
  return items_.find(key_of(record));
}

ShareAnswer Shares::publish(uint64_t session, uint32_t user, wire::ShareRecord* record,
                            base::Fd fd) {
  if (!is_known(record->kind) || has_descriptor(record->kind) != fd.valid())
    return ShareAnswer::kUnknown;
  size_t& count = counts_[session];
  if (count >= kSharesPerSessionMax || (fd.valid() && descriptors_ >= kSharedDescriptorsMax) ||
      !base::random_bytes(record->token, sizeof record->token))
    return ShareAnswer::kFull;
  const auto [at, fresh] = items_.try_emplace(key_of(*record));
  if (!fresh) return ShareAnswer::kFull;  // 128 random bits twice
  ++count;
  descriptors_ += fd.valid();
  Item& item = at->second;
  item.record = *record;
  item.owner = session;
  item.user = user;
  item.fd = std::move(fd);
  return ShareAnswer::kDone;
}

ShareAnswer Shares::fetch(uint64_t session, uint32_t user, wire::ShareRecord* record, int* fd) {
  const auto at = find(*record);
  if (at == items_.end() || at->second.withdrawn || at->second.record.kind != record->kind)
    return ShareAnswer::kUnknown;
  Item& item = at->second;
  if (is_for_one_user(record->kind) && item.user != user) return ShareAnswer::kOtherUser;
  if (is_memory(record->kind)) ++item.openers[session];
  *record = item.record;
  *fd = item.fd.get();
  return ShareAnswer::kDone;
}

void Shares::close(Item* item, bool freed) {
  item->withdrawn = true;
  item->orphaned = item->orphaned || freed;
  descriptors_ -= item->fd.valid();
  item->fd.reset();
}

Shares::Items::iterator Shares::drop_if_done(Items::iterator at) {
  const Item& item = at->second;
  if (!item.withdrawn || !item.openers.empty()) return std::next(at);
  const auto count = counts_.find(item.owner);
  if (count != counts_.end() && --count->second == 0) counts_.erase(count);
  return items_.erase(at);
}

bool Shares::withdraw(uint64_t session, const wire::ShareRecord& record, bool freed) {
  const auto at = find(record);
  if (at == items_.end() || at->second.owner != session) return false;
  close(&at->second, freed);
  const bool orphaned = freed && !at->second.openers.empty();
  drop_if_done(at);
  return orphaned;
}

bool Shares::release(uint64_t session, const wire::ShareRecord& record) {
  const auto at = find(record);
  if (at == items_.end()) return false;
  auto& openers = at->second.openers;
  const auto opener = openers.find(session);
  if (opener == openers.end()) return false;
  if (--opener->second == 0) openers.erase(opener);
  const bool orphaned = at->second.orphaned;
  drop_if_done(at);
  return orphaned;
}

bool Shares::end(uint64_t session) {
  bool orphans = false;
  for (auto at = items_.begin(); at != items_.end();) {
    Item& item = at->second;
    const bool opener = item.openers.erase(session) != 0;
    if (item.owner == session) close(&item, true);
    orphans = orphans || (item.orphaned && (opener || !item.openers.empty()));
    at = drop_if_done(at);
  }
  return orphans;
}

uint64_t Shares::orphaned_bytes(uint64_t session, uint32_t gpu) const {
  uint64_t sum = 0;
  for (const auto& [token, item] : items_) {
    if (item.orphaned && item.record.gpu_index == gpu && !item.openers.empty() &&
        item.openers.begin()->first == session)
      sum += item.record.bytes;
  }
  return sum;
}

}  // namespace tendril::daemon
