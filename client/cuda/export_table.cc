// SPDX-License-Identifier: Apache-2.0
// cuGetExportTable. See export_table.h.
#include "client/cuda/bodies.h"

namespace tendril::client::cuda {

CUresult cuGetExportTable(const void** ppExportTable, const CUuuid* pExportTableId) {
  if (ppExportTable == nullptr || pExportTableId == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *ppExportTable = nullptr;
  return CUDA_ERROR_NOT_FOUND;
}

}  // namespace tendril::client::cuda
