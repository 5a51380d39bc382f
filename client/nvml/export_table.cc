// SPDX-License-Identifier: Apache-2.0
// The private table that nvidia-smi asks for.
#include "client/nvml/answer.h"

TENDRIL_NVML nvmlReturn_t nvmlInternalGetExportTable(const void** table, const void* id) {
  if (table == nullptr || id == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *table = nullptr;
  return tendril::client::nvml::loud("nvmlInternalGetExportTable");
}
