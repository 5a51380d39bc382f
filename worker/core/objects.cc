// SPDX-License-Identifier: Apache-2.0
// See objects.h.
#include "worker/core/objects.h"

namespace tendril::worker::cuda {

using api::cuda::Kind;

const api::KindTraits& Objects::traits(Kind kind) {
  return api::cuda::kKinds[static_cast<uint8_t>(kind)];
}

bool Objects::bind(Kind kind, uint64_t id, void* object) {
  if (api::cuda::id_kind(id) != kind || kind == Kind::kNone || kind >= Kind::kCount ||
      object == nullptr)
    return false;
  Table& table = tables_[static_cast<int>(kind)];
  const uint32_t index = api::id_index(id);
  if (index == 0 || index >= api::kIndexMax) return false;  // ids with kWorkerBit are ours to give
  if (index >= table.slots.size()) table.slots.resize(index + 1 + index / 2);
  Slot& slot = table.slots[index];
  if (slot.id != 0 && traits(kind).ends_unnamed && slot.id != id) unbind(kind, slot.id);
  if (slot.id != 0) return false;
  slot = {id, object};
  if (traits(kind).returned) table.reverse[object] = id;
  return true;
}

void* Objects::find_ours(const Table& table, uint64_t id) {
  auto it = table.ours.find(id);
  return it != table.ours.end() ? it->second : nullptr;
}

void* Objects::unbind(Kind kind, uint64_t id) {
  void* object = find(kind, id);
  if (object == nullptr) return nullptr;
  Table& table = tables_[static_cast<int>(kind)];
  if ((api::id_index(id) & api::kWorkerBit) != 0) {
    table.ours.erase(id);
  } else {
    table.slots[api::id_index(id)] = {};
  }
  if (traits(kind).returned) {
    auto it = table.reverse.find(object);
    if (it != table.reverse.end() && it->second == id) table.reverse.erase(it);
  }
  return object;
}

uint64_t Objects::id_of(Kind kind, void* object) {
  Table& table = tables_[static_cast<int>(kind)];
  auto it = table.reverse.find(object);
  if (it != table.reverse.end()) return it->second;
  const uint64_t id = api::make_id(kind, 0xff, 0, table.next++ | api::kWorkerBit);
  table.ours[id] = object;
  table.reverse[object] = id;
  return id;
}

}  // namespace tendril::worker::cuda
