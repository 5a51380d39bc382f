// SPDX-License-Identifier: Apache-2.0
// See exports.h.
#include "daemon/exports.h"

#include <iterator>
#include <utility>

#include "base/page_blocks.h"
#include "base/text.h"

namespace tendril::daemon {
namespace {

using wire::ExportAnswer;
using wire::ExportKind;

constexpr uint64_t kBytesMax = uint64_t{1} << 48;  // no GPU has as much, and sums cannot overflow

bool fits(ExportKind kind, bool descriptor) {
  if (kind == ExportKind::kMemory) return true;  // mapped memory has one, cuMemAlloc's has none
  return descriptor == (kind == ExportKind::kAllocation || kind == ExportKind::kPool);
}

// The kinds whose openers keep GPU memory alive.
bool is_memory(ExportKind kind) {
  return kind == ExportKind::kMemory || kind == ExportKind::kAllocation ||
         kind == ExportKind::kPoolPointer;
}

// A driver keeps whole pages of what lies in a pool. The other kinds say what they keep.
uint64_t kept_bytes(const wire::ExportRecord& record) {
  return record.kind == ExportKind::kPoolPointer ? base::whole_pages(record.bytes) : record.bytes;
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

ExportAnswer Exports::publish(const Peer& peer, wire::ExportRecord* record, base::Fd fd) {
  if (!is_known(record->kind) || !fits(record->kind, fd.valid()) || record->bytes > kBytesMax)
    return ExportAnswer::kUnknown;
  Owner& owner = owners_[peer.session];
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
  item.owner = peer;
  item.fd = std::move(fd);
  return ExportAnswer::kDone;
}

ExportAnswer Exports::fetch(const Peer& peer, wire::ExportRecord* record, int* fd, bool* charges) {
  *charges = false;
  const auto at = find(*record);
  if (at == items_.end() || at->second.withdrawn || at->second.record.kind != record->kind)
    return ExportAnswer::kUnknown;
  Item& item = at->second;
  if (is_for_one_user(record->kind) && item.owner.user != peer.user)
    return ExportAnswer::kOtherUser;
  if (is_memory(record->kind)) {
    Opener& opener = item.openers[peer.session];
    opener.lease = peer.lease;
    ++opener.count;
    *charges = settle(&item);
  }
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
  --owners_[item->owner.session].descriptors;
}

bool Exports::settle(Item* item) {
  std::set<uint64_t> payers;
  for (const auto& [session, opener] : item->openers)
    if (item->orphaned || opener.lease != item->owner.lease) payers.insert(opener.lease);
  if (payers == item->payers) return false;
  const uint32_t gpu = item->record.gpu_index;
  const uint64_t bytes = kept_bytes(item->record);
  for (const uint64_t lease : payers) {
    if (item->payers.count(lease) != 0) continue;
    Charged& now = charged_[{lease, gpu}];
    now.bytes += bytes;
    ++now.items;
  }
  for (const uint64_t lease : item->payers) {
    if (payers.count(lease) != 0) continue;
    const auto before = charged_.find({lease, gpu});
    before->second.bytes -= bytes;
    if (--before->second.items == 0) charged_.erase(before);
  }
  item->payers = std::move(payers);
  return true;
}

Exports::Items::iterator Exports::drop_if_done(Items::iterator at) {
  const Item& item = at->second;
  if (!item.withdrawn || !item.openers.empty()) return std::next(at);
  const auto owner = owners_.find(item.owner.session);
  if (--owner->second.items == 0) owners_.erase(owner);
  return items_.erase(at);
}

bool Exports::withdraw(uint64_t session, const wire::ExportRecord& record, bool freed) {
  const auto at = find(record);
  if (at == items_.end() || at->second.owner.session != session) return false;
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
  if (--opener->second.count == 0) openers.erase(opener);
  const bool changed = settle(&at->second);
  drop_if_done(at);
  return changed;
}

bool Exports::end(uint64_t session) {
  bool changed = false;
  for (auto at = items_.begin(); at != items_.end();) {
    Item& item = at->second;
    item.openers.erase(session);
    if (item.owner.session == session) close(&item, true);
    changed = settle(&item) || changed;
    at = drop_if_done(at);
  }
  const auto owner = owners_.find(session);
  if (owner != owners_.end() && owner->second.items == 0) owners_.erase(owner);
  return changed;
}

uint64_t Exports::charged_bytes(uint64_t lease, uint32_t gpu) const {
  const auto found = charged_.find({lease, gpu});
  return found == charged_.end() ? 0 : found->second.bytes;
}

}  // namespace tendril::daemon
