// SPDX-License-Identifier: Apache-2.0
// The worker's tables: from ids to the driver's objects, by kind. The client chooses an id; the
// worker chooses it, with api::kWorkerBit, for an object that only the driver can bring about. The
// peer is hostile: an id of the wrong kind, an unused one or one used twice is an error of that
// call and nothing else. Used by the executor thread only.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "api/core/handle.h"

namespace tendril::worker {

// The objects of one kind. The caller has checked that an id is of this kind.
class ObjectTable {
 public:
  // False: the index is malformed or taken.
  bool bind(const api::KindTraits& traits, uint64_t id, void* object);
  void* find(uint64_t id) const {  // null: none
    const uint32_t index = api::id_index(id);
    if (index < slots_.size()) return slots_[index].id == id ? slots_[index].object : nullptr;
    return (index & api::kWorkerBit) != 0 ? find_ours(id) : nullptr;
  }
  void* unbind(const api::KindTraits& traits, uint64_t id);  // null: none
  // The id of a driver object. `first`: the ids that the worker chooses come after this one.
  uint64_t id_of(uint64_t first, void* object);
  bool knows(void* object) const { return reverse_.count(object) != 0; }
  template <typename Visit>
  void for_each(Visit&& visit) {
    for (const Slot& slot : slots_) {
      if (slot.id != 0) visit(slot.id, slot.object);
    }
    for (const auto& entry : ours_) visit(entry.first, entry.second);
  }

 private:
  struct Slot {
    uint64_t id = 0;
    void* object = nullptr;
  };
  void* find_ours(uint64_t id) const;

  std::vector<Slot> slots_;                   // by the client's index
  std::unordered_map<uint64_t, void*> ours_;  // ids with kWorkerBit
  std::unordered_map<void*, uint64_t> reverse_;
  uint32_t next_ = 1;
};

// The objects of an API. `Kind`: its kinds of handles, from its api.ini.
template <typename Kind>
class ObjectTables {
 public:
  // One for each kind, indexed by it. Outlives this.
  explicit ObjectTables(const api::KindTraits* traits) : traits_(traits) {}

  // False: the id is malformed or taken. Some objects end with the client's context without a call
  // that names them; the index of such an object comes again, in another generation.
  bool bind(Kind kind, uint64_t id, void* object) {
    return kind != Kind::kNone && is_of(kind, id) && object != nullptr &&
           table(kind).bind(traits(kind), id, object);
  }
  void* find(Kind kind, uint64_t id) const {  // null: none
    return is_of(kind, id) ? tables_[static_cast<int>(kind)].find(id) : nullptr;
  }
  void* unbind(Kind kind, uint64_t id) {  // null: none
    return is_of(kind, id) ? table(kind).unbind(traits(kind), id) : nullptr;
  }
  // The id of a driver object; one of ours when the client has not named it.
  uint64_t id_of(Kind kind, void* object) {
    return table(kind).id_of(api::make_id(kind, 0xff, 0, api::kWorkerBit), object);
  }
  // Has a driver object an id? Of kinds that the driver hands back.
  bool knows(Kind kind, void* object) const {
    return tables_[static_cast<int>(kind)].knows(object);
  }
  template <typename Visit>
  void for_each(Kind kind, Visit&& visit) {
    table(kind).for_each(visit);
  }

 private:
  static bool is_of(Kind kind, uint64_t id) {
    return kind < Kind::kCount && api::id_kind<Kind>(id) == kind;
  }
  ObjectTable& table(Kind kind) { return tables_[static_cast<int>(kind)]; }
  const api::KindTraits& traits(Kind kind) const { return traits_[static_cast<int>(kind)]; }

  const api::KindTraits* traits_;
  ObjectTable tables_[static_cast<int>(Kind::kCount)];
};

}  // namespace tendril::worker
