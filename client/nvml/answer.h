// SPDX-License-Identifier: Apache-2.0
// What all entry points of libnvidia-ml share: how one is declared, the answers of entry points
// without a body (generated from api/nvml/*.spec), and the checks in front of bodies. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "api/nvml_abi.gen.h"
#include "api/nvml_entries.gen.h"
#include "client/nvml/catalogue.h"

#define TENDRIL_NVML extern "C" __attribute__((visibility("default")))

#define TENDRIL_NVML_DECLARE(symbol, result, arguments, names) TENDRIL_NVML result symbol arguments;
TENDRIL_NVML_FUNCTIONS(TENDRIL_NVML_DECLARE)
#undef TENDRIL_NVML_DECLARE

namespace tendril::client::nvml {

// A call that would change the GPU: NO_PERMISSION.
nvmlReturn_t refused(const char* name);
nvmlReturn_t refused(const char* name, nvmlDevice_t device);
// A call about a part that a slice does not have: NOT_SUPPORTED.
nvmlReturn_t absent(const char* name);
nvmlReturn_t absent(const char* name, nvmlDevice_t device);
// A call that nobody has written yet: NOT_SUPPORTED, and the name once on stderr.
nvmlReturn_t loud(const char* name);
nvmlReturn_t loud(const char* name, nvmlDevice_t device);
uint64_t loud_calls();

// Copies a text as NVML does: all of it and its NUL, or INSUFFICIENT_SIZE.
nvmlReturn_t copy_text(const std::string& text, char* into, size_t capacity);

// Runs `body` with the device behind `handle`, after the checks that every call makes in this
// order: initialised, handle, pointer.
template <typename Body>
nvmlReturn_t with(nvmlDevice_t handle, const void* needed, Body body) {
  Device device;
  nvmlReturn_t found = device_at(handle, Values::kKnown, &device);
  if (found != NVML_SUCCESS) return found;
  return needed == nullptr ? NVML_ERROR_INVALID_ARGUMENT : body(device);
}

// The same with values that are at most kRefreshMs old. GPU_IS_LOST: the device's server or lease
// is gone.
template <typename Body>
nvmlReturn_t with_live(nvmlDevice_t handle, const void* needed, Body body,
                       Values values = Values::kLive) {
  Device device;
  nvmlReturn_t found = device_at(handle, values, &device);
  if (found != NVML_SUCCESS) return found;
  if (needed == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  return device.lost ? NVML_ERROR_GPU_IS_LOST : body(device);
}

// -1: the server does not know this monitoring value.
template <typename T>
nvmlReturn_t known(int64_t value, T* into) {
  if (value < 0) return NVML_ERROR_NOT_SUPPORTED;
  *into = static_cast<T>(value);
  return NVML_SUCCESS;
}

}  // namespace tendril::client::nvml
