// SPDX-License-Identifier: Apache-2.0
// What one server said of itself: the description from which tables, JSON and metrics are made.
#pragma once

#include <string>

#include "base/result.h"
#include "wire/control.h"

namespace tendril::view {

struct ServerView {
  std::string server;  // its endpoint, as the user wrote it
  base::Status status;
  wire::ListReply list;  // empty unless `status` is ok
  bool here = false;     // it serves this machine
};

// What the use of a lease's slice was; nothing where the server does not say.
inline wire::SliceUse use_of(const wire::LeaseRecord& lease, size_t slice) {
  return slice < lease.uses.size() ? lease.uses[slice] : wire::SliceUse();
}
inline uint64_t memory_used_of(const wire::LeaseRecord& lease, size_t slice) {
  return slice < lease.memory_used_bytes.size() ? lease.memory_used_bytes[slice] : 0;
}

inline uint64_t memory_parked_of(const wire::LeaseRecord& lease, size_t slice) {
  return slice < lease.memory_parked_bytes.size() ? lease.memory_parked_bytes[slice] : 0;
}

}  // namespace tendril::view
