// SPDX-License-Identifier: Apache-2.0
// See loaded_code.h.
#include "worker/cuda/code/loaded_code.h"

namespace tendril::worker::cuda {

LoadedCode::Loaded* LoadedCode::loaded(uint64_t id) {
  const auto owner = owners_.find(id);
  const auto it = loaded_.find(owner != owners_.end() ? owner->second.id : id);
  return it != loaded_.end() ? &it->second : nullptr;
}

void LoadedCode::add(uint64_t id, void* context, std::shared_ptr<const void> keeps,
                     const CodeVariables& variables) {
  Loaded& loaded = loaded_[id];
  loaded.context = context;
  loaded.keeps = std::move(keeps);
  loaded.variables = variables;
}

bool LoadedCode::pay(Charge& charge, uint64_t id, uint32_t slot) {
  Loaded* code = loaded(id);
  if (code == nullptr || code->variables.bytes == 0 || code->paid.count(slot) != 0) return true;
  const uint64_t key =
      charge.hold_block(slot, Charge::Blocks::kCode, code->variables.bytes, nullptr);
  if (key != 0) code->paid[slot] = key;
  return key != 0;
}

bool LoadedCode::pay_variable(Charge& charge, uint64_t id, uint32_t slot, uint64_t address,
                              uint64_t bytes) {
  Loaded* code = loaded(id);
  if (code == nullptr || code->variables.all || code->paid_variables.count(address) != 0)
    return true;
  const uint64_t key = charge.hold_block(slot, Charge::Blocks::kCode, bytes, nullptr);
  if (key != 0) code->paid_variables[address] = key;
  return key != 0;
}

void LoadedCode::add_member(uint64_t id, uint64_t member, void* context) {
  const auto owner = owners_.find(id);
  const uint64_t root = owner != owners_.end() ? owner->second.id : id;
  if (owner != owners_.end() && owner->second.context != nullptr) context = owner->second.context;
  const auto loaded = loaded_.find(root);
  if (loaded == loaded_.end()) return;
  loaded->second.members.push_back({member, context});
  owners_[member] = {root, context};
}

void LoadedCode::drop(Objects& objects, uint64_t id) {
  objects.gone(api::cuda::id_kind(id), id);
  owners_.erase(id);
}

void LoadedCode::remove(Objects& objects, Charge& charge, uint64_t id) {
  objects.gone(api::cuda::id_kind(id), id);
  const auto it = loaded_.find(id);
  if (it == loaded_.end()) return;
  for (const Member& member : it->second.members) drop(objects, member.id);
  for (const auto& [slot, key] : it->second.paid) charge.release(key);
  for (const auto& [address, key] : it->second.paid_variables) charge.release(key);
  loaded_.erase(it);
}

void LoadedCode::remove_context(Objects& objects, Charge& charge, void* context) {
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
  for (const uint64_t id : gone) remove(objects, charge, id);
}

}  // namespace tendril::worker::cuda
