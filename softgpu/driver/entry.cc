// SPDX-License-Identifier: Apache-2.0
// Exports the 637 cu* symbols. Runs on the program's calling thread. Nothing here knows what a call
// does; see entry.h.

#include "softgpu/driver/entry.h"

#include <pthread.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>
#include <optional>
#include <string_view>
#include <unordered_map>

#include "softgpu/board/board.h"
#include "softgpu/driver/config.h"
#include "softgpu/driver/live.h"

namespace tendril::softgpu {
namespace {

enum State : int { kFresh = 0, kReady = 1, kForked = 2 };
std::atomic<int> g_state{kFresh};
std::atomic<unsigned> g_unsupported{0};

// Calls that answer before cuInit and inside host functions.
constexpr bool needs_no_init(std::string_view name) {
  return name == "cuInit" || name == "cuDriverGetVersion" || name == "cuGetErrorName" ||
         name == "cuGetErrorString" || name == "cuGetProcAddress" ||
         name == "cuGetProcAddress_v2" || name == "cuGetExportTable" ||
         name == "cuModuleGetLoadingMode" || name == "cuThreadExchangeStreamCaptureMode";
}

constexpr bool is_per_thread(std::string_view name) {
  return name.size() > 5 &&
         (name.substr(name.size() - 5) == "_ptsz" || name.substr(name.size() - 5) == "_ptds");
}

template <typename T>
uint64_t printable(const T& value) {
  if constexpr (std::is_pointer_v<T>)
    return reinterpret_cast<uintptr_t>(value);
  else if constexpr (std::is_integral_v<T> || std::is_enum_v<T>)
    return static_cast<uint64_t>(value);
  else
    return 0;
}

template <typename... T>
std::array<uint64_t, sizeof...(T) + 1> pack(const T&... values) {
  return {printable(values)..., 0};
}

void trace(const char* name, CUresult result, const uint64_t* values, size_t count) {
  char line[512];
  size_t used = snprintf(line, sizeof line, "softgpu: %s(", name);
  for (size_t i = 0; i < count && used < sizeof line - 48; ++i)
    used += snprintf(line + used, sizeof line - used, values[i] < 4096 ? "%s%llu" : "%s0x%llx",
                     i == 0 ? "" : ", ", static_cast<unsigned long long>(values[i]));
  used += snprintf(line + used, sizeof line - used, ") = %d\n", static_cast<int>(result));
  fwrite(line, 1, used, stderr);
}

bool tracing() { return faults().trace; }

CUresult unsupported(const char* name) {
  static std::mutex& lock = *new std::mutex;
  static auto& seen = *new std::unordered_map<std::string_view, bool>;
  g_unsupported.fetch_add(1, std::memory_order_relaxed);
  std::lock_guard guard(lock);
  if (seen.emplace(name, true).second)
    fprintf(stderr, "softgpu: %s is not supported by the software GPU\n", name);
  return CUDA_ERROR_NOT_SUPPORTED;
}

// Refuses a call that may not run now. CUDA_SUCCESS lets it through.
CUresult admit(const char* name, bool free_of_init) {
  CUresult injected = injected_fault(name);
  if (injected != CUDA_SUCCESS) return injected;
  if (free_of_init) return CUDA_SUCCESS;
  if (g_state.load(std::memory_order_acquire) != kReady) return CUDA_ERROR_NOT_INITIALIZED;
  return in_host_function() ? CUDA_ERROR_NOT_PERMITTED : CUDA_SUCCESS;
}

class ScopeGuard {
 public:
  explicit ScopeGuard(bool per_thread) : before_(call_scope()) {
    call_scope().per_thread_default = per_thread;
  }
  ~ScopeGuard() { call_scope() = before_; }

 private:
  CallScope before_;
};

template <bool kPerThread, bool kFree, typename Body>
CUresult guarded(const char* name, bool present, Body body) {
  CUresult result = admit(name, kFree);
  if (result != CUDA_SUCCESS) return result;
  if (!present) return unsupported(name);
  ScopeGuard scope(kPerThread);
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  } catch (...) {
    return CUDA_ERROR_UNKNOWN;
  }
}

void after_fork_in_child() {
  if (g_state.load(std::memory_order_relaxed) == kReady) g_state.store(kForked);
  board().abandon_after_fork();
}

}  // namespace

CallScope& call_scope() {
  static thread_local CallScope scope;
  return scope;
}

bool& in_host_function() {
  static thread_local bool inside = false;
  return inside;
}

bool initialised() { return g_state.load(std::memory_order_acquire) == kReady; }

CUresult initialise() {
  static std::mutex& lock = *new std::mutex;
  if (g_state.load() == kForked) return CUDA_ERROR_NOT_INITIALIZED;
  std::lock_guard guard(lock);
  if (g_state.load() == kReady) return CUDA_SUCCESS;
  if (config().devices == 0) return CUDA_ERROR_NO_DEVICE;
  pthread_atfork(nullptr, nullptr, after_fork_in_child);
  g_state.store(kReady, std::memory_order_release);
  return CUDA_SUCCESS;
}

}  // namespace tendril::softgpu

using namespace tendril::softgpu;  // NOLINT: this file only exports

#define TENDRIL_SOFTGPU_EXPORT(symbol, result, args, names)                                     \
  extern "C" __attribute__((visibility("default"))) result symbol args {                        \
    std::optional<CallHandles> handles;                                                         \
    if (__builtin_expect(checks_handles(), 0)) {                                                \
      handles.emplace(#symbol);                                                                 \
      const CheckCall check{&*handles};                                                         \
      check names;                                                                              \
    }                                                                                           \
    CUresult outcome = guarded<is_per_thread(#symbol), needs_no_init(#symbol)>(                 \
        #symbol, &soft_##symbol != nullptr, [&]() -> CUresult { return soft_##symbol names; }); \
    if (__builtin_expect(tracing(), 0)) {                                                       \
      auto values = pack names;                                                                 \
      trace(#symbol, outcome, values.data(), values.size() - 1);                                \
    }                                                                                           \
    return outcome;                                                                             \
  }
TENDRIL_CUDA_FUNCTIONS(TENDRIL_SOFTGPU_EXPORT)
#undef TENDRIL_SOFTGPU_EXPORT

namespace tendril::softgpu {

void* exported_symbol(const char* name) {
  static const auto& table = *[] {
    auto* map = new std::unordered_map<std::string_view, void*>;
#define TENDRIL_SOFTGPU_ROW(symbol, result, args, names) \
  map->emplace(#symbol, reinterpret_cast<void*>(&symbol));
    TENDRIL_CUDA_FUNCTIONS(TENDRIL_SOFTGPU_ROW)
#undef TENDRIL_SOFTGPU_ROW
    return map;
  }();
  auto found = table.find(name);
  return found == table.end() ? nullptr : found->second;
}

unsigned implemented_symbols() {
  unsigned count = 0;
#define TENDRIL_SOFTGPU_COUNT(symbol, result, args, names) count += &soft_##symbol != nullptr;
  TENDRIL_CUDA_FUNCTIONS(TENDRIL_SOFTGPU_COUNT)
#undef TENDRIL_SOFTGPU_COUNT
  return count;
}

unsigned unsupported_calls() { return g_unsupported.load(std::memory_order_relaxed); }

}  // namespace tendril::softgpu
