// SPDX-License-Identifier: Apache-2.0
// How an exported cu* symbol reaches its body. entry.cc exports every symbol of the ABI and handles
// trace, fault injection, initialisation, forks and unknown exceptions in one place; then it calls
// the body `soft_cuFoo`, which some file of this folder defines with SOFT(cuFoo). Bodies are
// declared weak: one that nobody defines is null and the entry says "not supported", loudly.
#pragma once

#include "api/cuda_abi.gen.h"
#include "softgpu/driver/per_thread.h"

namespace tendril::softgpu {

#define TENDRIL_SOFTGPU_DECLARE(symbol, result, args, names) \
  extern "C" __attribute__((weak, visibility("hidden"))) result soft_##symbol args;
TENDRIL_CUDA_FUNCTIONS(TENDRIL_SOFTGPU_DECLARE)
#undef TENDRIL_SOFTGPU_DECLARE

// Defines a body. A name outside the ABI or a wrong prototype does not compile.
#define SOFT(symbol)                                                  \
  static_assert(sizeof(symbol##_t*) != 0, "not a symbol of the ABI"); \
  extern "C" CUresult soft_##symbol

// What the running call of this thread is: set by the entry, read by bodies.
struct CallScope {
  bool per_thread_default = false;  // handle 0 means the per-thread stream
};
CallScope& call_scope();

// True while this thread runs a host function on behalf of a stream: CUDA calls are refused there.
bool& in_host_function();

// Whether cuInit succeeded in this process (and not merely in the parent of a fork).
bool initialised();
CUresult initialise();

// Address of an exported symbol by its exact name; null when the ABI has none.
void* exported_symbol(const char* name);
// How many of the exported symbols have a body, and how many calls met a missing one. For tests.
unsigned implemented_symbols();
unsigned unsupported_calls();

}  // namespace tendril::softgpu
