// SPDX-License-Identifier: Apache-2.0
// See packed_code.h.
#include "worker/cuda/code/packed_code.h"

#include <zstd.h>

#include <new>

#include "base/lz4.h"

namespace tendril::worker::cuda {

Unpacked unpack_code(const api::CodeEntry& entry, const uint8_t* payload,
                     std::vector<uint8_t>* out) {
  out->clear();
  const bool lz4 = (entry.flags & api::kEntryLz4) != 0;
  if (!lz4 && (entry.flags & api::kEntryZstd) == 0) return Unpacked::kUnknown;
  const uint64_t stored = entry.stored_bytes;
  if (stored > entry.payload_bytes || entry.unpacked_bytes == 0 ||
      entry.unpacked_bytes > kUnpackedMax || entry.header_bytes < sizeof entry)
    return Unpacked::kBad;
  try {
    out->resize(entry.unpacked_bytes);
  } catch (const std::bad_alloc&) {
    return Unpacked::kBad;
  }
  if (lz4) {
    const int64_t got = base::lz4_decode(payload, stored, out->data(), out->size());
    out->resize(got > 0 ? static_cast<uint64_t>(got) : 0);
  } else {
    const size_t got = ZSTD_decompress(out->data(), out->size(), payload, stored);
    out->resize(ZSTD_isError(got) != 0 ? 0 : got);
  }
  return out->empty() ? Unpacked::kBad : Unpacked::kYes;
}

}  // namespace tendril::worker::cuda
