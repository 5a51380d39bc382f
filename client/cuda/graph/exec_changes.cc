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
  pthread_mutex_lock(&mutex_);
  const auto known = shapes_.find(node);
  const bool same = known != shapes_.end() && known->second == shape;
  pthread_mutex_unlock(&mutex_);
  return same;
}

void ExecChanges::note(uint64_t node, const ChangeShape& shape, bool was_taken) {
  pthread_mutex_lock(&mutex_);
  if (was_taken && shape.is_whole())
    shapes_[node] = shape;
  else
    shapes_.erase(node);
  pthread_mutex_unlock(&mutex_);
}

void ExecChanges::clear() {
  pthread_mutex_lock(&mutex_);
  shapes_.clear();
  pthread_mutex_unlock(&mutex_);
}

}  // namespace tendril::client::cuda
