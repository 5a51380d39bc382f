// SPDX-License-Identifier: Apache-2.0
// Reads the environment once. See config.h.

#include "softgpu/driver/config.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <vector>

namespace tendril::softgpu {
namespace {

constexpr unsigned kMaxDevices = 64;  // the device base addresses leave room for this many

struct FaultRule {
  std::string name;
  uint64_t nth = 1;
  CUresult code = CUDA_ERROR_UNKNOWN;
  uint64_t seen = 0;
};

std::mutex& fault_lock() {
  static auto& lock = *new std::mutex;
  return lock;
}

std::vector<FaultRule>& fault_rules() {
  static auto& rules = *new std::vector<FaultRule>;
  return rules;
}

uint64_t number(const char* name, uint64_t fallback, uint64_t low, uint64_t high) {
  const char* text = getenv(name);
  if (text == nullptr || *text == '\0') return fallback;
  char* end = nullptr;
  unsigned long long value = strtoull(text, &end, 10);
  if (end == text || *end != '\0') {
    fprintf(stderr, "softgpu: %s=%s is not a number; using %llu\n", name, text,
            static_cast<unsigned long long>(fallback));
    return fallback;
  }
  return std::clamp<uint64_t>(value, low, high);
}

// name:n:code, separated by commas; what does not parse is named and skipped.
void parse_faults(const char* text) {
  std::string all(text);
  size_t at = 0;
  while (at < all.size()) {
    size_t end = std::min(all.find(',', at), all.size());
    std::string item = all.substr(at, end - at);
    at = end + 1;
    size_t first = item.find(':'),
           second = first == std::string::npos ? first : item.find(':', first + 1);
    if (second == std::string::npos) {
      fprintf(stderr, "softgpu: TENDRIL_SOFTGPU_FAIL: '%s' is not name:n:code\n", item.c_str());
      continue;
    }
    FaultRule rule;
    rule.name = item.substr(0, first);
    rule.nth = strtoull(item.c_str() + first + 1, nullptr, 10);
    rule.code = static_cast<CUresult>(strtol(item.c_str() + second + 1, nullptr, 10));
    fault_rules().push_back(std::move(rule));
  }
}

Config* load() {
  auto* loaded = new Config;
  loaded->devices = number("TENDRIL_SOFTGPU_DEVICES", 1, 0, kMaxDevices);
  loaded->memory_bytes = number("TENDRIL_SOFTGPU_MEMORY_MB", 1024, 2, 1u << 19) << 20;
  loaded->sm_count = number("TENDRIL_SOFTGPU_SMS", 4, 1, 1024);
  loaded->step_budget = number("TENDRIL_SOFTGPU_STEPS", 0, 0, ~0ull);
  if (const char* text = getenv("TENDRIL_SOFTGPU_CAPABILITY"))
    if (sscanf(text, "%d.%d", &loaded->major, &loaded->minor) != 2)
      loaded->major = 9, loaded->minor = 0;
  const char* tracing = getenv("TENDRIL_SOFTGPU_TRACE");
  loaded->trace = tracing != nullptr && *tracing != '\0' && strcmp(tracing, "0") != 0;
  if (const char* faults = getenv("TENDRIL_SOFTGPU_FAIL")) parse_faults(faults);
  loaded->has_faults = !fault_rules().empty();
  return loaded;
}

}  // namespace

const Config& config() {
  static const Config& loaded = *load();
  return loaded;
}

CUresult injected_fault(const char* name) {
  std::lock_guard guard(fault_lock());
  for (FaultRule& rule : fault_rules())
    if (rule.name == name && ++rule.seen == rule.nth) return rule.code;
  return CUDA_SUCCESS;
}

}  // namespace tendril::softgpu
