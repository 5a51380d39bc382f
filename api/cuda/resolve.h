// SPDX-License-Identifier: Apache-2.0
// cuGetProcAddress' rule: which exported symbol answers (name, version, flags). The table holds the
// answers of a real driver (api/cuda/procaddress.csv). Nothing is guessed. The client library and
// the software GPU use it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace tendril::api {

struct ResolveStep {
  int version;         // from this CUDA version on (1000 * major + 10 * minor)
  const char* symbol;  // exported name, or null
  int status;  // CUdriverProcAddressQueryResult: 0 found, 1 no such symbol, 2 version too old
  int error;   // CUresult instead of an answer
};

struct ResolveRow {
  const char* name;
  int flag;  // 0 default, 1 legacy, 2 per-thread
  int first, count;
};

#include "api/cuda_resolve.gen.inc"

// `flags`: 0, 1 or 2. Below the first listed version nothing is found. The time is logarithmic in
// the number of names.
inline ResolveStep resolve_symbol(const char* name, int version, uint64_t flags) {
  const ResolveStep none{0, nullptr, 1, 0};
  size_t low = 0, high = sizeof kResolveRows / sizeof kResolveRows[0];
  while (low < high) {
    const size_t middle = (low + high) / 2;
    const int order = std::strcmp(kResolveRows[middle].name, name);
    if (order < 0 || (order == 0 && static_cast<uint64_t>(kResolveRows[middle].flag) < flags)) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  if (low == sizeof kResolveRows / sizeof kResolveRows[0]) return none;
  const ResolveRow& row = kResolveRows[low];
  if (std::strcmp(row.name, name) != 0 || static_cast<uint64_t>(row.flag) != flags) return none;
  ResolveStep answer = kResolveSteps[row.first];
  if (version < answer.version && answer.symbol != nullptr) return {0, nullptr, 2, 0};
  for (int i = 1; i < row.count; ++i) {
    if (kResolveSteps[row.first + i].version <= version) answer = kResolveSteps[row.first + i];
  }
  return answer;
}

}  // namespace tendril::api
