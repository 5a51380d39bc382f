// SPDX-License-Identifier: Apache-2.0
// See loaded_code.h.
#include "worker/cuda/loaded_code.h"

namespace tendril::worker::cuda {

void LoadedCode::add(uint64_t id, void* context, std::shared_ptr<const void> keeps) {
  Loaded& loaded = loaded_[id];
  loaded.context = context;
  loaded.keeps = std::move(keeps);
}

void LoadedCode::add_member(uint64_t id, uint64_t member, void* context) {
  const auto owner = owners_.find(id);
  const uint64_t root = owner != owners_.end() ? owner->second : id;
  const auto loaded = loaded_.find(root);
  if (loaded == loaded_.end()) return;
  loaded->second.members.push_back({member, context});
  owners_[member] = root;
}

void LoadedCode::drop(Objects& objects, uint64_t id) {
  objects.unbind(api::id_kind(id), id);
  owners_.erase(id);
}

void LoadedCode::remove(Objects& objects, uint64_t id) {
  objects.unbind(api::id_kind(id), id);
  const auto it = loaded_.find(id);
  if (it == loaded_.end()) return;
  for (const Member& member : it->second.members) drop(objects, member.id);
  loaded_.erase(it);
}

void LoadedCode::remove_context(Objects& objects, void* context) {
  std::vector<uint64_t> gone;
  for (auto& [id, loaded] : loaded_) {
    if (loaded.context == context) {
      gone.push_back(id);
      continue;
    }
    std::vector<Member> left;
    for (const Member& member : loaded.members) {
      if (member.context == context)
        drop(objects, member.id);
      else
        left.push_back(member);
    }
    loaded.members.swap(left);
  }
  for (const uint64_t id : gone) remove(objects, id);
}

}  // namespace tendril::worker::cuda
