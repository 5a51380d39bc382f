// SPDX-License-Identifier: Apache-2.0
// What every exported entry point does around its body: count, mark per-thread default streams, refuse loudly. Included only by the
// generated entry file. Entries keep an ordinary prologue (see CMakeLists.txt) because other libraries patch them in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "api/cuda_abi.gen.h"
#include "api/cuda_bodies.gen.h"
#include "api/cuda_entries.gen.h"
#include "client/cuda/state.h"
#include "client/cuda/stats.h"

#define TENDRIL_ENTRY __attribute__((visibility("default"), used))

namespace tendril::client::cuda {

struct EntryInfo {
  const char* name;
  void* address;
};
extern const EntryInfo kEntries[kEntryCount];
extern const EntryInfo kGraphicsEntries[];
extern const size_t kGraphicsEntryCount;

// Answers an entry point that Tendril does not implement: named once on stderr with the reason, counted, fatal under tests.
CUresult refused(uint16_t entry, const char* reason);

struct PerThreadDefault {
  PerThreadDefault() { thread_state().per_thread_default = true; }
  ~PerThreadDefault() { thread_state().per_thread_default = false; }
};

}  // namespace tendril::client::cuda

// Aliased ABI versions differ in integer width or typedef only.
template <typename To, typename From>
To tendril_cast(From value) {
  if constexpr (std::is_pointer_v<To> && std::is_pointer_v<From>) {
    return (To)value;
  } else {
    return static_cast<To>(value);
  }
}

using namespace tendril::client::cuda;  // NOLINT: the generated file names entries only
