// SPDX-License-Identifier: Apache-2.0
// See memory.h.
#include "store/testing/memory.h"

#include <utility>

#include "base/text.h"

namespace tendril::store {

using base::Code;
using base::Deadline;
using base::Result;
using base::Status;

namespace {

using Guard = std::lock_guard<std::mutex>;

bool is_as_wanted(const std::map<std::string, Entry>& entries, const Change& change) {
  const auto at = entries.find(change.key);
  if (!change.value.has_value()) return at == entries.end();
  return at != entries.end() && at->second.value == *change.value;
}

}  // namespace

MemoryStore::MemoryStore(std::shared_ptr<MemoryState> state) : state_(std::move(state)) {
  const Guard guard(state_->mutex);
  id_ = state_->next_id++;
}

MemoryStore::~MemoryStore() {
  const Guard guard(state_->mutex);
  if (state_->holder_id == id_) state_->holder_id = 0;
}

bool MemoryStore::is_held() const {
  return state_->holder_id != 0 && state_->now_ns() < state_->expires_ns;
}

bool MemoryStore::is_mine(uint64_t term) const {
  return is_held() && state_->holder_id == id_ && state_->term == term;
}

Leadership MemoryStore::leadership() const {
  Leadership found;
  found.held = is_held();
  if (!found.held) return found;
  found.mine = state_->holder_id == id_;
  found.term = state_->term;
  found.holder = state_->holder;
  if (found.mine) found.certain_until_ns = state_->expires_ns;
  return found;
}

Status MemoryStore::deposed(uint64_t term) const {
  return Status(Code::kRefused,
                base::format("term %llu is over: %s", static_cast<unsigned long long>(term),
                             is_held() ? (state_->holder + " schedules now").c_str()
                                       : "nobody schedules now"));
}

Result<Entry> MemoryStore::get(const std::string& key, const Deadline&) {
  const Status checked = check_key(key);
  if (!checked.ok()) return checked;
  const Guard guard(state_->mutex);
  const auto at = state_->entries.find(key);
  if (at == state_->entries.end())
    return Status(Code::kNotFound, "memory: has no '" + base::printable(key) + "'");
  return at->second;
}

Result<Page> MemoryStore::list(const std::string& prefix, const std::string& after, size_t entries,
                               const Deadline&) {
  const Status checked = check_list(prefix, after, entries);
  if (!checked.ok()) return checked;
  const Guard guard(state_->mutex);
  Page page;
  auto at =
      after < prefix ? state_->entries.lower_bound(prefix) : state_->entries.upper_bound(after);
  // A key equal to the prefix counts, unless the caller has had it.
  if (after.empty()) at = state_->entries.lower_bound(prefix);
  for (; at != state_->entries.end() && at->first.compare(0, prefix.size(), prefix) == 0; ++at) {
    if (page.entries.size() == entries) {
      page.more = true;
      break;
    }
    page.entries.push_back(at->second);
  }
  return page;
}

Status MemoryStore::write(uint64_t term, const std::vector<Change>& changes, const Deadline&) {
  const Status checked = check_write(changes);
  if (!checked.ok()) return checked;
  const Guard guard(state_->mutex);
  if (!is_mine(term)) return deposed(term);
  bool is_done = true;
  const Change* differs = nullptr;
  for (const Change& change : changes) {
    is_done = is_done && is_as_wanted(state_->entries, change);
    if (!change.revision.has_value()) continue;
    const auto at = state_->entries.find(change.key);
    const uint64_t present = at == state_->entries.end() ? 0 : at->second.revision;
    if (present != *change.revision) differs = &change;
  }
  if (differs != nullptr && is_done) return Status();
  if (differs != nullptr) {
    return Status(Code::kMismatch,
                  "'" + base::printable(differs->key) + "' was changed by somebody else");
  }
  ++state_->revision;
  for (const Change& change : changes) {
    if (change.value.has_value())
      state_->entries[change.key] = Entry{change.key, *change.value, state_->revision};
    else
      state_->entries.erase(change.key);
  }
  return Status();
}

Result<Leadership> MemoryStore::campaign(const std::string& holder, uint32_t ttl_ms,
                                         const Deadline&) {
  const Status checked = check_campaign(holder, ttl_ms);
  if (!checked.ok()) return checked;
  const Guard guard(state_->mutex);
  if (!is_held()) {
    ++state_->term;
    state_->holder_id = id_;
    state_->holder = holder;
  }
  if (state_->holder_id == id_) {
    ttl_ms_ = ttl_ms;
    state_->expires_ns = state_->now_ns() + uint64_t{ttl_ms} * 1'000'000;
  }
  return leadership();
}

Result<Leadership> MemoryStore::keep(uint64_t term, const Deadline&) {
  const Guard guard(state_->mutex);
  if (!is_mine(term)) return deposed(term);
  state_->expires_ns = state_->now_ns() + uint64_t{ttl_ms_} * 1'000'000;
  return leadership();
}

Status MemoryStore::resign(uint64_t term, const Deadline&) {
  const Guard guard(state_->mutex);
  if (is_mine(term)) state_->holder_id = 0;
  return Status();
}

Result<Leadership> MemoryStore::leader(const Deadline&) {
  const Guard guard(state_->mutex);
  return leadership();
}

}  // namespace tendril::store
