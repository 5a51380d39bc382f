// SPDX-License-Identifier: Apache-2.0
// Shared virtual memory of this process. Any thread.
#pragma once

#include <map>

#include "client/opencl/state.h"

namespace tendril::client::opencl {

// One allocation, at the same addresses here and in the worker.
struct Shared {
  Object* context;
  uint64_t bytes;  // that the program asked for
};

struct SharedMemories {
  struct Mapped {
    uint64_t bytes;
    cl_map_flags flags;
  };
  base::Lock lock;
  std::map<uint64_t, Shared> allocations;       // guarded by lock; by address
  std::multimap<const void*, Mapped> mappings;  // guarded by lock
};

// Whether all of these bytes lie in one allocation of this context.
bool is_shared(const void* address, uint64_t bytes, const Object* context);

}  // namespace tendril::client::opencl
