// SPDX-License-Identifier: Apache-2.0
// See objects.h.
#include "worker/core/objects.h"

#include <algorithm>

namespace tendril::worker {

ObjectTable::Slot* ObjectTable::slot_of(uint32_t index) {
  if (index < slots_.size()) return &slots_[index];
  const auto it = sparse_.find(index);
  return it != sparse_.end() ? &it->second : nullptr;
}

ObjectTable::Slot& ObjectTable::make_slot(uint32_t index) {
  const uint64_t most = std::max<uint64_t>(kDenseLeast, kDenseTimes * (count_ + 1));
  if (index < slots_.size()) return slots_[index];
  if (index >= most) return sparse_[index];
  const size_t before = slots_.size();
  slots_.resize(std::min<uint64_t>(most, uint64_t{index} + 1 + index / 2));
  if (sparse_.empty()) return slots_[index];
  for (size_t i = before; i < slots_.size(); ++i) {
    const auto it = sparse_.find(static_cast<uint32_t>(i));
    if (it == sparse_.end()) continue;
    slots_[i] = it->second;
    sparse_.erase(it);
  }
  return slots_[index];
}

bool ObjectTable::bind(const api::KindTraits& traits, uint64_t id, void* object) {
  const uint32_t index = api::id_index(id);
  if (index == 0 || index >= api::kIndexMax)
    return false;  // only the worker chooses ids with kWorkerBit
  Slot& slot = make_slot(index);
  if (slot.id != 0) return false;
  slot = {id, object};
  ++count_;
  if (traits.returned) reverse_[object] = id;
  return true;
}

void* ObjectTable::find_sparse(uint64_t id) const {
  const auto it = sparse_.find(api::id_index(id));
  return it != sparse_.end() && it->second.id == id ? it->second.object : nullptr;
}

uint64_t ObjectTable::taken_by(uint64_t id) const {
  const uint32_t index = api::id_index(id);
  const auto it = sparse_.find(index);
  const uint64_t holder = index < slots_.size() ? slots_[index].id
                          : it != sparse_.end() ? it->second.id
                                                : 0;
  return holder != id ? holder : 0;
}

void* ObjectTable::unbind(const api::KindTraits& traits, uint64_t id) {
  void* object = find(id);
  if (object == nullptr) return nullptr;
  const uint32_t index = api::id_index(id);
  if (index < slots_.size())
    slots_[index] = {};
  else
    sparse_.erase(index);
  if ((index & api::kWorkerBit) == 0) --count_;
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
  sparse_[api::id_index(id)] = {id, object};
  reverse_[object] = id;
  return id;
}

}  // namespace tendril::worker
