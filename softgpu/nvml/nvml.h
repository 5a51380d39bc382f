// SPDX-License-Identifier: Apache-2.0
// How an exported nvml* symbol reaches its body. entry.cc exports every symbol of the ABI. A body
// is SOFT_NVML(nvmlFoo) in some file of this folder. Bodies are declared weak: a missing one
// answers NOT_SUPPORTED and is named once on stderr. Any thread.
#pragma once

#include <cstdint>
#include <string>

#include "api/nvml_abi.gen.h"
#include "softgpu/board/board.h"

namespace tendril::softgpu::nvml {

#define TENDRIL_SOFT_NVML_DECLARE(symbol, result, args, names) \
  extern "C" __attribute__((weak, visibility("hidden"))) result soft_##symbol args;
TENDRIL_NVML_FUNCTIONS(TENDRIL_SOFT_NVML_DECLARE)
#undef TENDRIL_SOFT_NVML_DECLARE

#define TENDRIL_SOFT_NVML_PROTOTYPE(symbol, result, args, names) \
  extern "C" __attribute__((visibility("default"))) result symbol args;
TENDRIL_NVML_FUNCTIONS(TENDRIL_SOFT_NVML_PROTOTYPE)
#undef TENDRIL_SOFT_NVML_PROTOTYPE

// Defines a body. A wrong prototype does not compile.
#define SOFT_NVML(symbol) extern "C" nvmlReturn_t soft_##symbol

// The board that is watched. This library joins nothing and holds nothing.
Board& board();

// Counted, as nvmlInit and nvmlShutdown are.
nvmlReturn_t start();
nvmlReturn_t stop();
bool is_started();

// The device behind a handle, after the checks that every call makes, in their order. A lost device
// answers only to calls that ask who it is (`even_lost`).
nvmlReturn_t find(nvmlDevice_t handle, const void* needed, bool even_lost, unsigned* index);
nvmlDevice_t handle_of(unsigned index);
nvmlReturn_t copy_text(const std::string& text, char* into, unsigned capacity);

template <typename Body>
nvmlReturn_t with(nvmlDevice_t handle, const void* needed, Body body) {
  unsigned index = 0;
  nvmlReturn_t found = find(handle, needed, false, &index);
  return found != NVML_SUCCESS ? found : body(index);
}

template <typename Body>
nvmlReturn_t with_identity(nvmlDevice_t handle, const void* needed, Body body) {
  unsigned index = 0;
  nvmlReturn_t found = find(handle, needed, true, &index);
  return found != NVML_SUCCESS ? found : body(index);
}

// How many symbols have a body. For tests.
unsigned implemented_symbols();

}  // namespace tendril::softgpu::nvml
