// SPDX-License-Identifier: Apache-2.0
// cuGetProcAddress in both forms, by the measured table, and the loud answer of entry points that
// Tendril does not implement.
#include "api/cuda/resolve.h"

#include <stdlib.h>
#include <string.h>

#include "client/common/log.h"
#include "client/cuda/bodies.h"
#include "client/cuda/entry.h"
#include "client/cuda/observe/trace.h"

namespace tendril::client::cuda {
namespace {

std::atomic<uint32_t> g_refused[kEntryCount + 1];

void* address_of(const char* symbol) {
  size_t low = 0, high = kEntryCount;
  while (low < high) {  // kEntries is sorted by name
    const size_t middle = (low + high) / 2;
    const int order = strcmp(kEntries[middle].name, symbol);
    if (order == 0) return kEntries[middle].address;
    if (order < 0)
      low = middle + 1;
    else
      high = middle;
  }
  for (size_t i = 0; i < kUnlistedEntryCount; ++i) {
    if (strcmp(kUnlistedEntries[i].name, symbol) == 0) return kUnlistedEntries[i].address;
  }
  return nullptr;
}

int reported_version() {
  const Process* program = process();
  return program != nullptr && program->driver_version != 0 ? program->driver_version
                                                            : CUDA_VERSION;
}

}  // namespace

CUresult refused(uint16_t entry, const char* reason) {
  const char* name = entry < kEntryCount ? kEntries[entry].name : "a graphics call";
  if (trace_on()) Trace(name, CUDA_ERROR_NOT_SUPPORTED);
  if (g_refused[entry].fetch_add(1) == 0) {
    log(LogLevel::kError,
        "%s is not supported: %s; the program gets CUDA_ERROR_NOT_SUPPORTED (`tendril coverage` "
        "lists every call)",
        name, reason);
    // structure: allow abort: tests ask for it, programs never
    if (getenv("TENDRIL_FATAL_UNSUPPORTED") != nullptr) abort();
  }
  return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuGetProcAddress_v2(const char* symbol, void** pfn, int cudaVersion, cuuint64_t flags,
                             CUdriverProcAddressQueryResult* status) {
  if (symbol == nullptr || pfn == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (flags > 2) return CUDA_ERROR_INVALID_VALUE;
  if (cudaVersion > reported_version()) return CUDA_ERROR_INVALID_VALUE;
  const api::ResolveStep answer = api::resolve_symbol(symbol, cudaVersion, flags);
  *pfn = answer.symbol != nullptr ? address_of(answer.symbol) : nullptr;
  if (status != nullptr) {
    const int found = *pfn != nullptr ? 0 : (answer.status != 0 ? answer.status : 1);
    *status = static_cast<CUdriverProcAddressQueryResult>(found);
  }
  return CUDA_SUCCESS;
}

CUresult cuGetProcAddress(const char* symbol, void** pfn, int cudaVersion, cuuint64_t flags) {
  TENDRIL_TRY(cuGetProcAddress_v2(symbol, pfn, cudaVersion, flags, nullptr));
  return *pfn != nullptr ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

}  // namespace tendril::client::cuda
