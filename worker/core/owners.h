// SPDX-License-Identifier: Apache-2.0
// Which objects end with which. A driver ends streams and events with their context, nodes with
// their graph, functions with their module, and reads freed memory when it is given one of them
// afterwards. The tables of objects (objects.h) note here what each object belongs to. Owners are
// the driver's handles. Executor thread.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

namespace tendril::worker {

class Owners {
 public:
  void add(uint64_t id, const void* owner) {
    uint64_t& first = of_[owner].first;
    entries_[id] = {owner, 0, first};
    if (first != 0) entries_[first].before = id;
    first = id;
  }
  void remove(uint64_t id) {
    const auto it = entries_.find(id);
    if (it == entries_.end()) return;
    const Entry entry = it->second;
    entries_.erase(it);
    if (entry.after != 0) entries_[entry.after].before = entry.before;
    if (entry.before != 0) {
      entries_[entry.before].after = entry.after;
      return;
    }
    const auto owner = of_.find(entry.owner);
    owner->second.first = entry.after;
    if (entry.after == 0 && owner->second.unnamed == 0) of_.erase(owner);
  }
  const void* owner(uint64_t id) const {  // null: none
    const auto it = entries_.find(id);
    return it != entries_.end() ? it->second.owner : nullptr;
  }
  // All that `owner` owns. It owns nothing afterwards.
  std::vector<uint64_t> take(const void* owner) {
    std::vector<uint64_t> ids;
    const auto of = of_.find(owner);
    if (of == of_.end()) return ids;
    for (uint64_t id = of->second.first; id != 0;) {
      ids.push_back(id);
      const auto entry = entries_.find(id);
      id = entry->second.after;
      entries_.erase(entry);
    }
    of_.erase(of);
    return ids;
  }
  // Objects that no id names any more, but that live on.
  void add_unnamed(const void* owner) { ++of_[owner].unnamed; }
  uint64_t take_unnamed(const void* owner) {
    const auto of = of_.find(owner);
    if (of == of_.end()) return 0;
    const uint64_t unnamed = of->second.unnamed;
    of->second.unnamed = 0;
    return unnamed;
  }

 private:
  struct Entry {
    const void* owner;
    uint64_t before, after;
  };
  struct Owned {
    uint64_t first = 0;
    uint64_t unnamed = 0;
  };
  std::unordered_map<uint64_t, Entry> entries_;  // by id
  std::unordered_map<const void*, Owned> of_;
};

}  // namespace tendril::worker
