// SPDX-License-Identifier: Apache-2.0
// Records and chunks of a damaged store, and words of questions: what is read is written the same
// again, and the parts of a row are the row.
#include <cstddef>
#include <cstdint>
#include <string>

#include "pool/accounting/history_query.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tendril::pool;
  const std::string text(reinterpret_cast<const char*>(data), size);
  UsedRecord record, again;
  if (read_used(text, &record) && !read_used(used_json(record), &again)) __builtin_trap();
  HistoryChunk chunk, same;
  if (unpack_chunk(text, &chunk)) {
    if (!unpack_chunk(pack_chunk(chunk), &same)) __builtin_trap();
    if (same.rows.size() != chunk.rows.size()) __builtin_trap();
    for (const HistoryRow& row : chunk.rows) {
      const uint64_t middle_ns = row.from_ns + (row.to_ns - row.from_ns) / 3;
      UsedSums sums = part_of(row, 0, middle_ns);
      sums.add(part_of(row, middle_ns, UINT64_MAX));
      if (!(sums == row.sums)) __builtin_trap();
    }
    History history{HistoryLimits()};
    history.recover({{chunk_key(keys::kSeconds, chunk.upto_ns), text}}, chunk.upto_ns);
    for (const auto& batch : history.cut(history.clock(1, 1))) {
      for (const auto& [key, value] : batch) {
        if (key != keys::kHistoryHead && !unpack_chunk(value, &same)) __builtin_trap();
      }
    }
  }
  (void)parse_history_query({text}, 1'800'000'000);
  return 0;
}
