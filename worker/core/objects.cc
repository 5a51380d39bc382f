// SPDX-License-Identifier: Apache-2.0
// See objects.h.
#include "worker/core/objects.h"

namespace tendril::worker {

bool ObjectTable::bind(const api::KindTraits& traits, uint64_t id, void* object) {
  const uint32_t index = api::id_index(id);
  if (index == 0 || index >= api::kIndexMax)
    return false;  // only the worker chooses ids with kWorkerBit
  if (index >= slots_.size()) slots_.resize(index + 1 + index / 2);
  Slot& slot = slots_[index];
  if (slot.id != 0 && traits.ends_unnamed && slot.id != id) unbind(traits, slot.id);
  if (slot.id != 0) return false;
  slot = {id, object};
  if (traits.returned) reverse_[object] = id;
  return true;
}

void* ObjectTable::find_ours(uint64_t id) const {
  auto it = ours_.find(id);
  return it != ours_.end() ? it->second : nullptr;
}

void* ObjectTable::unbind(const api::KindTraits& traits, uint64_t id) {
  void* object = find(id);
  if (object == nullptr) return nullptr;
  if ((api::id_index(id) & api::kWorkerBit) != 0) {
    ours_.erase(id);
  } else {
    slots_[api::id_index(id)] = {};
  }
  if (traits.returned) {
    auto it = reverse_.find(object);
    if (it != reverse_.end() && it->second == id) reverse_.erase(it);
  }
  return object;
}

uint64_t ObjectTable::id_of(uint64_t first, void* object) {
  auto it = reverse_.find(object);
  if (it != reverse_.end()) return it->second;
  const uint64_t id = first + next_++;
  ours_[id] = object;
  reverse_[object] = id;
  return id;
}

}  // namespace tendril::worker
