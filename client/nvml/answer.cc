// SPDX-License-Identifier: Apache-2.0
// See answer.h.
#include "client/nvml/answer.h"

#include <atomic>
#include <cstring>

#include "client/common/log.h"

namespace tendril::client::nvml {
namespace {

constinit std::atomic<uint64_t> g_loud_calls{0};

nvmlReturn_t initialised() { return is_started() ? NVML_SUCCESS : NVML_ERROR_UNINITIALIZED; }

nvmlReturn_t valid(nvmlDevice_t handle) {
  Device ignored;
  return device_at(handle, Values::kKnown, &ignored);
}

nvmlReturn_t say_loudly(const char* name) {
  g_loud_calls.fetch_add(1, std::memory_order_relaxed);
  log_once(LogLevel::kWarning,
           "%s is not implemented for remote GPUs: it answers \"not supported\"", name);
  return NVML_ERROR_NOT_SUPPORTED;
}

nvmlReturn_t otherwise(nvmlReturn_t check, nvmlReturn_t answer) {
  return check != NVML_SUCCESS ? check : answer;
}

}  // namespace

nvmlReturn_t refused(const char* name) {
  return otherwise(initialised(), NVML_ERROR_NO_PERMISSION);
}
nvmlReturn_t refused(const char* name, nvmlDevice_t device) {
  return otherwise(valid(device), NVML_ERROR_NO_PERMISSION);
}

nvmlReturn_t absent(const char* name) { return otherwise(initialised(), NVML_ERROR_NOT_SUPPORTED); }
nvmlReturn_t absent(const char* name, nvmlDevice_t device) {
  return otherwise(valid(device), NVML_ERROR_NOT_SUPPORTED);
}

nvmlReturn_t loud(const char* name) {
  nvmlReturn_t check = initialised();
  return check != NVML_SUCCESS ? check : say_loudly(name);
}
nvmlReturn_t loud(const char* name, nvmlDevice_t device) {
  nvmlReturn_t check = valid(device);
  return check != NVML_SUCCESS ? check : say_loudly(name);
}

uint64_t loud_calls() { return g_loud_calls.load(std::memory_order_relaxed); }

nvmlReturn_t copy_text(const std::string& text, char* into, size_t capacity) {
  if (into == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  if (capacity <= text.size()) return NVML_ERROR_INSUFFICIENT_SIZE;
  memcpy(into, text.c_str(), text.size() + 1);
  return NVML_SUCCESS;
}

}  // namespace tendril::client::nvml
