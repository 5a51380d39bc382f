// SPDX-License-Identifier: Apache-2.0
// The worker's tables from ids to the driver's objects, one for each kind. Usually the client
// chooses the id. If only the driver can create the object, the worker chooses the id and sets
// api::kWorkerBit. The peer is hostile: a call with an id of the wrong kind, an unused id or an id
// used twice fails, and nothing else happens. What a table takes grows with the number of objects,
// never with the numbers that a client chooses. Executor thread only.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "api/core/handle.h"
#include "worker/core/owners.h"

namespace tendril::worker {

// The objects of one kind. The caller has checked that an id is of this kind.
class ObjectTable {
 public:
  // False: the index is malformed or taken.
  bool bind(const api::KindTraits& traits, uint64_t id, void* object);
  void* find(uint64_t id) const {  // null: none
    const uint32_t index = api::id_index(id);
    if (index < slots_.size()) return slots_[index].id == id ? slots_[index].object : nullptr;
    return find_sparse(id);
  }
  void* unbind(const api::KindTraits& traits, uint64_t id);  // null: none
  // The id of another object that has the index of `id`. 0: none.
  uint64_t taken_by(uint64_t id) const;
  // The id of a driver object. If it has none, the worker chooses one; such ids come after `first`.
  uint64_t id_of(uint64_t first, void* object);
  // The id of a driver object. 0: it has none.
  uint64_t known_id(void* object) const {
    const auto it = reverse_.find(object);
    return it != reverse_.end() ? it->second : 0;
  }
  template <typename Visit>
  void for_each(Visit&& visit) {
    for (const Slot& slot : slots_) {
      if (slot.id != 0) visit(slot.id, slot.object);
    }
    for (const auto& entry : sparse_) visit(entry.second.id, entry.second.object);
  }
  // For tests: how many slots are kept for indices.
  size_t room() const { return slots_.size(); }

 private:
  // A client counts its indices up and reuses them. So they lie in an array, unless a client leaves
  // wide gaps.
  static constexpr uint32_t kDenseLeast = 4096, kDenseTimes = 4;
  struct Slot {
    uint64_t id = 0;
    void* object = nullptr;
  };
  void* find_sparse(uint64_t id) const;
  Slot* slot_of(uint32_t index);
  Slot& make_slot(uint32_t index);

  std::vector<Slot> slots_;  // by the client's index
  // By index: ids with kWorkerBit, and indices far beyond the number of objects.
  std::unordered_map<uint32_t, Slot> sparse_;
  std::unordered_map<void*, uint64_t> reverse_;
  uint32_t next_ = 1;
  size_t count_ = 0;  // of ids that the client chose
};

// The objects of an API. `Kind`: the API's kinds of handles, from its api.ini.
template <typename Kind>
class ObjectTables {
 public:
  // `traits`: one for each kind, indexed by kind. Must outlive this object. No more than `most`
  // objects may be alive at once, because each costs memory here and in the driver.
  explicit ObjectTables(const api::KindTraits* traits, uint64_t most = UINT64_MAX)
      : traits_(traits), most_(most) {}

  // False: the id is malformed or taken, or there are too many objects. Exception: an object may
  // end with the client's context, and no call names it then. Its index may be bound again, in
  // another generation. `owner`: the driver's object with which this one ends; null: none.
  bool bind(Kind kind, uint64_t id, void* object, const void* owner = nullptr) {
    if (kind == Kind::kNone || !is_of(kind, id) || object == nullptr || full()) return false;
    if (traits(kind).ends_unnamed) leave_unnamed(kind, id);
    if (!table(kind).bind(traits(kind), id, object)) return false;
    ++count_;
    if (owner != nullptr) owners_.add(id, owner);
    return true;
  }
  // Would bind succeed with this id?
  bool may_bind(Kind kind, uint64_t id) const {
    const uint32_t index = api::id_index(id);
    const bool good =
        kind != Kind::kNone && is_of(kind, id) && index != 0 && index < api::kIndexMax;
    if (!good || full() || find(kind, id) != nullptr) return false;
    return traits(kind).ends_unnamed || tables_[static_cast<int>(kind)].taken_by(id) == 0;
  }
  void* find(Kind kind, uint64_t id) const {  // null: none
    return is_of(kind, id) ? tables_[static_cast<int>(kind)].find(id) : nullptr;
  }
  void* unbind(Kind kind, uint64_t id) {  // null: none
    void* object = is_of(kind, id) ? table(kind).unbind(traits(kind), id) : nullptr;
    if (object == nullptr) return nullptr;
    --count_;
    owners_.remove(id);
    return object;
  }
  // The id of a driver object. The worker chooses one if the client has not; `owner` is then as in
  // bind. 0: there are too many objects.
  uint64_t id_of(Kind kind, void* object, const void* owner = nullptr) {
    const uint64_t known = known_id(kind, object);
    if (known != 0 || full()) return known;
    const uint64_t id = table(kind).id_of(api::make_id(kind, 0xff, 0, api::kWorkerBit), object);
    ++count_;
    if (owner != nullptr) owners_.add(id, owner);
    return id;
  }
  // The id of a driver object. 0: it has none. Only for kinds that the driver hands back.
  uint64_t known_id(Kind kind, void* object) const {
    return tables_[static_cast<int>(kind)].known_id(object);
  }
  bool knows(Kind kind, void* object) const { return known_id(kind, object) != 0; }
  // Null: nothing owns it.
  const void* owner(uint64_t id) const { return owners_.owner(id); }
  void give_to(uint64_t id, const void* owner) {
    owners_.remove(id);
    owners_.add(id, owner);
  }
  // The driver's object `owner` is gone, and with it all that it owns. `ended(kind, id, object)` is
  // called for each of these, after it was unbound. They may be owners as well.
  template <typename Ended>
  void end(const void* owner, Ended&& ended) {
    std::vector<const void*> gone = {owner};
    while (!gone.empty()) {
      const void* const next = gone.back();
      gone.pop_back();
      count_ -= owners_.take_unnamed(next);
      for (const uint64_t id : owners_.take(next)) {
        const Kind kind = api::id_kind<Kind>(id);
        void* object = unbind(kind, id);
        if (object == nullptr) continue;
        ended(kind, id, object);
        if (object != next) gone.push_back(object);
      }
    }
  }
  template <typename Visit>
  void for_each(Kind kind, Visit&& visit) {
    table(kind).for_each(visit);
  }
  bool full() const { return count_ >= most_; }
  uint64_t most() const { return most_; }
  bool has_room(uint64_t objects) const { return count_ <= most_ && objects <= most_ - count_; }
  // Objects without an id that cost as much. False: there are too many.
  bool add_nameless(uint64_t objects = 1) {
    if (!has_room(objects)) return false;
    count_ += objects;
    return true;
  }
  void drop_nameless(uint64_t objects = 1) { count_ -= std::min(count_, objects); }

 private:
  static bool is_of(Kind kind, uint64_t id) {
    return kind < Kind::kCount && api::id_kind<Kind>(id) == kind;
  }
  ObjectTable& table(Kind kind) { return tables_[static_cast<int>(kind)]; }
  const api::KindTraits& traits(Kind kind) const { return traits_[static_cast<int>(kind)]; }

  // The client uses an index again. Its former object lives until its owner ends.
  void leave_unnamed(Kind kind, uint64_t id) {
    const uint64_t former = table(kind).taken_by(id);
    if (former == 0) return;
    const void* owner = owners_.owner(former);
    const void* object = unbind(kind, former);
    if (owner == nullptr) return;
    for (const uint64_t child : owners_.take(object)) owners_.add(child, owner);
    owners_.add_unnamed(owner);
    ++count_;
  }

  const api::KindTraits* traits_;
  const uint64_t most_;
  uint64_t count_ = 0;
  ObjectTable tables_[static_cast<int>(Kind::kCount)];
  Owners owners_;
};

}  // namespace tendril::worker
