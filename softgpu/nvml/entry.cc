// SPDX-License-Identifier: Apache-2.0
// The exported symbols, the reference count and device handles. See nvml.h.

#include <atomic>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <set>
#include <type_traits>

#include "softgpu/nvml/nvml.h"

namespace tendril::softgpu::nvml {
namespace {

std::atomic<unsigned> g_users{0};
char g_handles[kMaxDevices];  // a handle is an address in here; nothing dereferences it

nvmlReturn_t loud(const char* name) {
  static std::mutex& lock = *new std::mutex;
  static auto& seen = *new std::set<std::string>;
  std::lock_guard guard(lock);
  if (seen.insert(name).second)
    fprintf(stderr, "softgpu: %s is not supported by the look-alike of NVML\n", name);
  return NVML_ERROR_NOT_SUPPORTED;
}

template <typename Result>
Result missing(const char* name) {
  if constexpr (std::is_same_v<Result, nvmlReturn_t>) {
    return loud(name);
  } else {
    return Result{};
  }
}

}  // namespace

Board& board() { return Board::instance(); }

nvmlReturn_t start() {
  board();
  g_users.fetch_add(1);
  return NVML_SUCCESS;
}

nvmlReturn_t stop() {
  unsigned users = g_users.load();
  while (users != 0 && !g_users.compare_exchange_weak(users, users - 1)) {
  }
  return users == 0 ? NVML_ERROR_UNINITIALIZED : NVML_SUCCESS;
}

bool is_started() { return g_users.load() != 0; }

nvmlReturn_t find(nvmlDevice_t handle, const void* needed, bool even_lost, unsigned* index) {
  if (!is_started()) return NVML_ERROR_UNINITIALIZED;
  const uintptr_t at = reinterpret_cast<uintptr_t>(handle),
                  first = reinterpret_cast<uintptr_t>(g_handles);
  if (at < first || at - first >= board().settings().devices || needed == nullptr)
    return NVML_ERROR_INVALID_ARGUMENT;
  *index = static_cast<unsigned>(at - first);
  if (!even_lost && board().faults().device[*index].lost) return NVML_ERROR_GPU_IS_LOST;
  return NVML_SUCCESS;
}

nvmlDevice_t handle_of(unsigned index) { return reinterpret_cast<nvmlDevice_t>(&g_handles[index]); }

nvmlReturn_t copy_text(const std::string& text, char* into, unsigned capacity) {
  if (text.size() >= capacity) return NVML_ERROR_INSUFFICIENT_SIZE;
  memcpy(into, text.c_str(), text.size() + 1);
  return NVML_SUCCESS;
}

unsigned implemented_symbols() {
  unsigned count = 0;
#define TENDRIL_SOFT_NVML_COUNT(symbol, result, args, names) count += &soft_##symbol != nullptr;
  TENDRIL_NVML_FUNCTIONS(TENDRIL_SOFT_NVML_COUNT)
#undef TENDRIL_SOFT_NVML_COUNT
  return count;
}

}  // namespace tendril::softgpu::nvml

using namespace tendril::softgpu::nvml;  // NOLINT: this file only exports

#define TENDRIL_SOFT_NVML_EXPORT(symbol, result, args, names)            \
  extern "C" __attribute__((visibility("default"))) result symbol args { \
    if (&soft_##symbol != nullptr) return soft_##symbol names;           \
    return missing<result>(#symbol);                                     \
  }
TENDRIL_NVML_FUNCTIONS(TENDRIL_SOFT_NVML_EXPORT)
#undef TENDRIL_SOFT_NVML_EXPORT
