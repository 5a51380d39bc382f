// SPDX-License-Identifier: Apache-2.0
// See exports.h.
#include "daemon/exports.h"

#include <iterator>

#include "base/text.h"

namespace tendril::daemon {
namespace {

using wire::ExportAnswer;
using wire::ExportKind;

constexpr uint64_t kBytesMax = uint64_t{1} << 48;  // no GPU has as much, and sums cannot overflow

bool has_descriptor(ExportKind kind) {
  return kind == ExportKind::kAllocation || kind == ExportKind::kPool;
}

// The kinds whose openers keep GPU memory alive. A pool pays for itself, because its owner's worker
// holds it.
bool is_memory(ExportKind kind) {
  return kind == ExportKind::kMemory || kind == ExportKind::kAllocation;
}

// The driver lets only processes of one user open these. Descriptors have no such limit.
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
  if (!is_known(record->kind) || has_descriptor(record->kind) != fd.valid() ||
      record->bytes > kBytesMax)
    return ExportAnswer::kUnknown;
  Owner& owner = owners_[session];
  const bool full = owner.items >= kExportsPerSessionMax ||
                    (fd.valid() && (descriptors_ >= descriptors_max_ ||
                                    owner.descriptors >= descriptors_max_ / 4));
  if (full || !base::random_bytes(record->token, sizeof record->token)) return ExportAnswer::kFull;
  const auto [at, fresh] = items_.try_emplace(key_of(*record));
  if (!fresh) return ExportAnswer::kFull;  // the same 128 random bits twice
  ++owner.items;
  owner.descriptors += fd.valid();
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
  if (!item->fd.valid()) return;
  item->fd.reset();
  --descriptors_;
  --owners_[item->owner].descriptors;
}

bool Exports::settle(Item* item) {
  const bool orphan = item->orphaned && !item->openers.empty();
  const uint64_t payer = orphan ? item->openers.begin()->first : 0;
  if (payer == item->payer) return false;
  const uint32_t gpu = item->record.gpu_index;
  if (item->payer != 0) {
    const auto before = orphans_.find({item->payer, gpu});
    before->second.bytes -= item->record.bytes;
    if (--before->second.items == 0) orphans_.erase(before);
  }
  if (payer != 0) {
    Orphans& now = orphans_[{payer, gpu}];
    now.bytes += item->record.bytes;
    ++now.items;
  }
  item->payer = payer;
  return true;
}

Exports::Items::iterator Exports::drop_if_done(Items::iterator at) {
  const Item& item = at->second;
  if (!item.withdrawn || !item.openers.empty()) return std::next(at);
  const auto owner = owners_.find(item.owner);
  if (--owner->second.items == 0) owners_.erase(owner);
  return items_.erase(at);
}

bool Exports::withdraw(uint64_t session, const wire::ExportRecord& record, bool freed) {
  const auto at = find(record);
  if (at == items_.end() || at->second.owner != session) return false;
  close(&at->second, freed);
  const bool changed = settle(&at->second);
  drop_if_done(at);
  return changed;
}

bool Exports::release(uint64_t session, const wire::ExportRecord& record) {
  const auto at = find(record);
  if (at == items_.end()) return false;
  auto& openers = at->second.openers;
  const auto opener = openers.find(session);
  if (opener == openers.end()) return false;
  if (--opener->second == 0) openers.erase(opener);
  const bool changed = settle(&at->second);
  drop_if_done(at);
  return changed;
}

bool Exports::end(uint64_t session) {
  bool changed = false;
  for (auto at = items_.begin(); at != items_.end();) {
    Item& item = at->second;
    item.openers.erase(session);
    if (item.owner == session) close(&item, true);
    changed = settle(&item) || changed;
    at = drop_if_done(at);
  }
  const auto owner = owners_.find(session);
  if (owner != owners_.end() && owner->second.items == 0) owners_.erase(owner);
  return changed;
}

uint64_t Exports::orphaned_bytes(uint64_t session, uint32_t gpu) const {
  const auto found = orphans_.find({session, gpu});
  return found == orphans_.end() ? 0 : found->second.bytes;
}

}  // namespace tendril::daemon
