// SPDX-License-Identifier: Apache-2.0
// See store.h: the limits that all stores share.
#include "store/store.h"

#include <unordered_set>

#include "base/text.h"

namespace tendril::store {

using base::Code;
using base::Result;
using base::Status;

bool worth_repeating(const Status& status) {
  return status.code() == Code::kExhausted || status.code() == Code::kUnavailable ||
         status.code() == Code::kTimeout;
}

Status check_key(const std::string& key) {
  if (!key.empty() && key.size() <= kKeyBytesMax) return Status();
  return Status(Code::kInvalid, base::format("a key of %zu bytes: a store takes 1 to %zu",
                                             key.size(), kKeyBytesMax));
}

Status check_write(const std::vector<Change>& changes) {
  if (changes.empty() || changes.size() > kChangesMax) {
    return Status(Code::kInvalid, base::format("%zu changes in one write: a store takes 1 to %zu",
                                               changes.size(), kChangesMax));
  }
  size_t bytes = 0;
  std::unordered_set<std::string> keys;
  for (const Change& change : changes) {
    const Status key = check_key(change.key);
    if (!key.ok()) return key;
    if (!keys.insert(change.key).second) {
      return Status(Code::kInvalid,
                    "one write changes '" + base::printable(change.key) + "' twice");
    }
    const size_t value_bytes = change.value.has_value() ? change.value->size() : 0;
    if (value_bytes > kValueBytesMax) {
      return Status(Code::kInvalid,
                    base::format("the value of '%s' has %zu bytes: a store takes at most %zu",
                                 base::printable(change.key).c_str(), value_bytes, kValueBytesMax));
    }
    bytes += change.key.size() + value_bytes;
  }
  if (bytes <= kWriteBytesMax) return Status();
  return Status(Code::kInvalid, base::format("a write of %zu bytes: a store takes at most %zu",
                                             bytes, kWriteBytesMax));
}

Status check_list(const std::string& prefix, const std::string& after, size_t entries) {
  if (prefix.size() > kKeyBytesMax || after.size() > kKeyBytesMax)
    return Status(Code::kInvalid, "a list by a prefix that is longer than any key");
  if (entries >= 1 && entries <= kPageEntriesMax) return Status();
  return Status(Code::kInvalid, base::format("a page of %zu entries: a store gives 1 to %zu",
                                             entries, kPageEntriesMax));
}

Status check_campaign(const std::string& holder, uint32_t ttl_ms) {
  if (holder.size() > kHolderBytesMax) {
    return Status(Code::kInvalid, base::format("the lock's holder is described in %zu bytes: %zu "
                                               "are allowed",
                                               holder.size(), kHolderBytesMax));
  }
  if (ttl_ms >= 2000 && ttl_ms <= 3'600'000) return Status();
  return Status(Code::kInvalid,
                base::format("a lock for %u ms: 2000 to 3600000 are possible", ttl_ms));
}

Result<std::vector<Entry>> list_all(Store& store, const std::string& prefix,
                                    const base::Deadline& deadline) {
  std::vector<Entry> all;
  std::string after;
  for (;;) {
    Result<Page> page = store.list(prefix, after, kPageEntriesMax, deadline);
    if (!page.ok()) return page.status();
    const bool more = page->more && !page->entries.empty();
    for (Entry& entry : page->entries) all.push_back(std::move(entry));
    if (!more) return all;
    after = all.back().key;
  }
}

}  // namespace tendril::store
