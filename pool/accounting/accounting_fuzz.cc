// SPDX-License-Identifier: Apache-2.0
// Records of a damaged store: read, and split into hours, which together are the record.
#include <cstddef>
#include <cstdint>
#include <string>

#include "pool/accounting/hours.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tendril::pool;
  const std::string text(reinterpret_cast<const char*>(data), size);
  std::vector<HourRow> rows;
  if (read_hour(text, &rows)) (void)hour_json(rows);
  UsedRecord record;
  if (!read_used(text, &record)) return 0;
  UsedSums sums;
  for (const HourPart& part : hours_of(record, 0, SIZE_MAX)) sums.add(part.sums);
  if (!(sums == record.sums)) __builtin_trap();
  UsedRecord again;
  if (!read_used(used_json(record), &again)) __builtin_trap();
  return 0;
}
