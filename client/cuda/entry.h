// SPDX-License-Identifier: Apache-2.0
// What every exported entry point does around its body: it marks per-thread default streams, counts
// and traces, and refuses loudly. The generated entries include this, and what observes them. Other
// libraries patch entries in memory: see TENDRIL_MOVABLE_PROLOGUE.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "api/cuda_abi.gen.h"
#include "api/cuda_bodies.gen.h"
#include "api/cuda_entries.gen.h"
#include "api/cuda_observe.gen.h"
#include "client/cuda/observe/stats.h"
#include "client/cuda/state.h"

#define TENDRIL_ENTRY __attribute__((visibility("default"), used))

// The beginning of every entry. UCX, among others, writes a jump over the first 12 bytes of some
// entries and runs those bytes elsewhere. It can move pushes and the frame pointer's set-up, but
// nothing that depends on its place. Naming these registers makes the compiler push them first.
#if defined(__x86_64__)
#define TENDRIL_MOVABLE_PROLOGUE asm volatile("" ::: "rbx", "r12", "r13", "r14", "r15")
#else
#define TENDRIL_MOVABLE_PROLOGUE
#endif

namespace tendril::client::cuda {

// Answers an entry point that Tendril does not implement. The first call prints its name and the
// reason on stderr. Every call is counted. Tests may make it fatal.
CUresult refused(uint16_t entry, const char* reason);

struct PerThreadDefault {
  PerThreadDefault() { thread_state().per_thread_default = true; }
  ~PerThreadDefault() { thread_state().per_thread_default = false; }
};

}  // namespace tendril::client::cuda

// Aliased ABI versions differ only in integer width or typedef.
template <typename To, typename From>
To tendril_cast(From value) {
  if constexpr (std::is_pointer_v<To> && std::is_pointer_v<From>) {
    return (To)value;
  } else {
    return static_cast<To>(value);
  }
}

using namespace tendril::client::cuda;  // NOLINT: the generated file names entries only
