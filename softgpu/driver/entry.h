// SPDX-License-Identifier: Apache-2.0
// How an exported cu* symbol reaches its body. entry.cc exports every symbol of the ABI and handles
// trace, fault injection, initialisation, forks and unknown exceptions in one place. Then it calls
// the body, which some file below this folder defines with SOFT(cuFoo). Bodies are
// declared weak: for a missing one the entry says "not supported" on stderr.
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

// Facts about the running call of this thread. The entry sets them, bodies read them.
struct CallScope {
  bool per_thread_default = false;  // handle 0 means the per-thread stream
};
CallScope& call_scope();

// True while this thread runs a host function for a stream. CUDA calls are refused then.
bool& in_host_function();

// Whether cuInit succeeded in this process (and not merely in the parent of a fork).
bool initialised();
CUresult initialise();

// Address of an exported symbol by its exact name; null if the ABI has none.
void* exported_symbol(const char* name);
// How many exported symbols have a body, and how many calls met a missing one. For tests.
unsigned implemented_symbols();
unsigned unsupported_calls();

}  // namespace tendril::softgpu
