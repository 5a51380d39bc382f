// SPDX-License-Identifier: Apache-2.0
// See exec_changes.h.
#include "client/cuda/graph/exec_changes.h"

#include <string.h>

namespace tendril::client::cuda {

bool ChangeShape::operator==(const ChangeShape& other) const {
  return count == other.count && memcmp(words, other.words, sizeof words) == 0;
}

bool ExecChanges::taken(uint64_t node, const ChangeShape& shape) {
  if (!shape.is_whole()) return false;
  const base::Locked held(lock_);
  const auto known = shapes_.find(node);
  return known != shapes_.end() && known->second == shape;
}

void ExecChanges::note(uint64_t node, const ChangeShape& shape, bool was_taken) {
  const base::Locked held(lock_);
  if (was_taken && shape.is_whole())
    shapes_[node] = shape;
  else
    shapes_.erase(node);
}

void ExecChanges::clear() {
  const base::Locked held(lock_);
  shapes_.clear();
}

}  // namespace tendril::client::cuda
