// SPDX-License-Identifier: Apache-2.0
// See exports.h.
#include "daemon/exports.h"

#include <iterator>

#include "base/text.h"

namespace tendril::daemon {
namespace {

using wire::ExportAnswer;
using wire::ExportKind;

bool has_descriptor(ExportKind kind) {
  return kind == ExportKind::kAllocation || kind == ExportKind::kPool;
}

// Their openers keep GPU memory alive. Pools pay for themselves: their owner's worker holds them.
bool is_memory(ExportKind kind) {
  return kind == ExportKind::kMemory || kind == ExportKind::kAllocation;
}

// The driver lets processes of one user only open these; descriptors open themselves.
bool is_for_one_user(ExportKind kind) {
  return kind == ExportKind::kMemory || kind == ExportKind::kEvent;
}

bool is_known(ExportKind kind) {
  return kind >= ExportKind::kMemory && kind <= ExportKind::kPoolPointer;
}

std::string key_of(const wire::ExportRecord& record) {
  return std::string(reinterpret_cast<const char*>(record.token), sizeof record.token);
}

}  // namespace

Exports::Items::iterator Exports::find(const wire::ExportRecord& record) {
  return items_.find(key_of(record));
}

ExportAnswer Exports::publish(uint64_t session, uint32_t user, wire::ExportRecord* record,
                              base::Fd fd) {
  if (!is_known(record->kind) || has_descriptor(record->kind) != fd.valid())
    return ExportAnswer::kUnknown;
  size_t& count = counts_[session];
  if (count >= kExportsPerSessionMax || (fd.valid() && descriptors_ >= kExportedDescriptorsMax) ||
      !base::random_bytes(record->token, sizeof record->token))
    return ExportAnswer::kFull;
  const auto [at, fresh] = items_.try_emplace(key_of(*record));
  if (!fresh) return ExportAnswer::kFull;  // 128 random bits twice
  ++count;
  descriptors_ += fd.valid();
  Item& item = at->second;
  item.record = *record;
  item.owner = session;
  item.user = user;
  item.fd = std::move(fd);
  return ExportAnswer::kDone;
}

ExportAnswer Exports::fetch(uint64_t session, uint32_t user, wire::ExportRecord* record, int* fd) {
  const auto at = find(*record);
  if (at == items_.end() || at->second.withdrawn || at->second.record.kind != record->kind)
    return ExportAnswer::kUnknown;
  Item& item = at->second;
  if (is_for_one_user(record->kind) && item.user != user) return ExportAnswer::kOtherUser;
  if (is_memory(record->kind)) ++item.openers[session];
  *record = item.record;
  *fd = item.fd.get();
  return ExportAnswer::kDone;
}

void Exports::close(Item* item, bool freed) {
  item->withdrawn = true;
  item->orphaned = item->orphaned || freed;
  descriptors_ -= item->fd.valid();
  item->fd.reset();
}

Exports::Items::iterator Exports::drop_if_done(Items::iterator at) {
  const Item& item = at->second;
  if (!item.withdrawn || !item.openers.empty()) return std::next(at);
  const auto count = counts_.find(item.owner);
  if (count != counts_.end() && --count->second == 0) counts_.erase(count);
  return items_.erase(at);
}

bool Exports::withdraw(uint64_t session, const wire::ExportRecord& record, bool freed) {
  const auto at = find(record);
  if (at == items_.end() || at->second.owner != session) return false;
  close(&at->second, freed);
  const bool orphaned = freed && !at->second.openers.empty();
  drop_if_done(at);
  return orphaned;
}

bool Exports::release(uint64_t session, const wire::ExportRecord& record) {
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

bool Exports::end(uint64_t session) {
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

uint64_t Exports::orphaned_bytes(uint64_t session, uint32_t gpu) const {
  uint64_t sum = 0;
  for (const auto& [token, item] : items_) {
    if (item.orphaned && item.record.gpu_index == gpu && !item.openers.empty() &&
        item.openers.begin()->first == session)
      sum += item.record.bytes;
  }
  return sum;
}

}  // namespace tendril::daemon
