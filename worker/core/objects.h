// SPDX-License-Identifier: Apache-2.0
// The worker's tables from ids to the driver's objects, one for each kind. Usually the client
// chooses the id. If only the driver can create the object, the worker chooses the id and sets
// api::kWorkerBit. The peer is hostile: a call with an id of the wrong kind, an unused id or an id
// used twice fails, and nothing else happens. Executor thread only.
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
  // The id of a driver object. If it has none, the worker chooses one; such ids come after `first`.
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

// The objects of an API. `Kind`: the API's kinds of handles, from its api.ini.
template <typename Kind>
class ObjectTables {
 public:
  // `traits`: one for each kind, indexed by kind. Must outlive this object.
  explicit ObjectTables(const api::KindTraits* traits) : traits_(traits) {}

  // False: the id is malformed or taken. Exception: an object may end with the client's context,
  // and no call names it then. Its index may be bound again, in another generation.
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
  // The id of a driver object. The worker chooses one if the client has not.
  uint64_t id_of(Kind kind, void* object) {
    return table(kind).id_of(api::make_id(kind, 0xff, 0, api::kWorkerBit), object);
  }
  // Does a driver object have an id? Only for kinds that the driver hands back.
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
