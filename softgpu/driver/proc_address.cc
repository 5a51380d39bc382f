// SPDX-License-Identifier: Apache-2.0
// cuGetProcAddress, answered from the measured table of a real driver, and cuGetExportTable, which
// has no tables.

#include <cstring>

#include "api/cuda/resolve.h"
#include "softgpu/driver/entry.h"

namespace tendril::softgpu {
namespace {

constexpr cuuint64_t kMaxFlags = CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;

}  // namespace

SOFT(cuGetProcAddress_v2)
(const char* symbol, void** pfn, int cudaVersion, cuuint64_t flags,
 CUdriverProcAddressQueryResult* symbolStatus) {
  if (symbol == nullptr || pfn == nullptr || flags > kMaxFlags) return CUDA_ERROR_INVALID_VALUE;
  if (cudaVersion > CUDA_VERSION) return CUDA_ERROR_INVALID_VALUE;
  *pfn = nullptr;
  api::ResolveStep step = api::resolve_symbol(symbol, cudaVersion, flags);
  if (step.error != 0) return static_cast<CUresult>(step.error);
  if (step.symbol != nullptr) *pfn = exported_symbol(step.symbol);
  // The real driver knows this name and the ABI here does not (graphics). It counts as unknown.
  int status = step.symbol != nullptr && *pfn == nullptr ? CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND
                                                         : step.status;
  if (symbolStatus != nullptr) *symbolStatus = static_cast<CUdriverProcAddressQueryResult>(status);
  return CUDA_SUCCESS;
}

SOFT(cuGetProcAddress)(const char* symbol, void** pfn, int cudaVersion, cuuint64_t flags) {
  if (CUresult bad = soft_cuGetProcAddress_v2(symbol, pfn, cudaVersion, flags, nullptr)) return bad;
  return *pfn == nullptr ? CUDA_ERROR_NOT_FOUND : CUDA_SUCCESS;
}

SOFT(cuGetExportTable)(const void** ppExportTable, const CUuuid* pExportTableId) {
  if (ppExportTable == nullptr || pExportTableId == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *ppExportTable = nullptr;
  return CUDA_ERROR_NOT_FOUND;  // the runtime's private interface belongs to the client library
}

}  // namespace tendril::softgpu
