// SPDX-License-Identifier: Apache-2.0
// The worker's tables: ids (chosen by the client, or by us with api::kWorkerBit) to the driver's
// objects, by kind. The peer is hostile: an id of the wrong kind, an unused one or one used twice
// is an error of that call and nothing else. Used by the executor thread only.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "api/cuda_kinds.gen.h"

namespace tendril::worker::cuda {

class Objects {
 public:
  // False: the id is malformed or taken. The index of a stream, event or array comes again, in
  // another generation, when the client's context that had it is gone.
  bool bind(api::cuda::Kind kind, uint64_t id, void* object);
  void* find(api::cuda::Kind kind, uint64_t id) const {  // null: none
    if (kind >= api::cuda::Kind::kCount || api::cuda::id_kind(id) != kind) return nullptr;
    const Table& table = tables_[static_cast<int>(kind)];
    const uint32_t index = api::id_index(id);
    if (index < table.slots.size())
      return table.slots[index].id == id ? table.slots[index].object : nullptr;
    return (index & api::kWorkerBit) != 0 ? find_ours(table, id) : nullptr;
  }
  void* unbind(api::cuda::Kind kind, uint64_t id);  // null: none
  // The id of a driver object; one of ours when the client has not named it.
  uint64_t id_of(api::cuda::Kind kind, void* object);
  // Has a driver object an id? Of kinds that the driver hands back.
  bool knows(api::cuda::Kind kind, void* object) const {
    return tables_[static_cast<int>(kind)].reverse.count(object) != 0;
  }
  template <typename Visit>
  void for_each(api::cuda::Kind kind, Visit&& visit) {
    for (const Slot& slot : tables_[static_cast<int>(kind)].slots) {
      if (slot.id != 0) visit(slot.id, slot.object);
    }
    for (const auto& entry : tables_[static_cast<int>(kind)].ours) visit(entry.first, entry.second);
  }

 private:
  struct Slot {
    uint64_t id = 0;
    void* object = nullptr;
  };
  struct Table {
    std::vector<Slot> slots;                   // by the client's index
    std::unordered_map<uint64_t, void*> ours;  // ids with kWorkerBit
    std::unordered_map<void*, uint64_t> reverse;
    uint32_t next = 1;
  };
  static const api::KindTraits& traits(api::cuda::Kind kind);
  static void* find_ours(const Table& table, uint64_t id);
  Table tables_[static_cast<int>(api::cuda::Kind::kCount)];
};

}  // namespace tendril::worker::cuda
