// SPDX-License-Identifier: Apache-2.0
// A ring full of nonsense, and immediates that lie: what record.h accepts lies within what was
// told, and a whole lap is read without a step backwards.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "transport/rdma/record.h"

namespace tendril::transport::rdma {
namespace {

void must(bool holds) {
  if (!holds) abort();
}

void read_lap(const uint8_t* data, size_t bytes) {
  struct {
    uint32_t immediate;
    uint32_t reads;
    uint64_t head, told;
  } ask{};
  if (bytes < sizeof ask) return;
  memcpy(&ask, data, sizeof ask);
  // On the heap, so that the address sanitizer sees a read beyond.
  std::vector<uint8_t> ring(kRingBytesMin);
  memcpy(ring.data(), data + sizeof ask, std::min(ring.size(), bytes - sizeof ask));
  const uint64_t head = ask.head / kRecordHeaderBytes * kRecordHeaderBytes % (uint64_t(1) << 62);
  const uint64_t known =
      head + ask.told % (ring.size() + 1) / kRecordHeaderBytes * kRecordHeaderBytes;
  uint64_t end = known;
  if (!widen(ask.immediate, known, ring.size() - (known - head), &end)) return;
  must(end >= known && end - head <= ring.size());
  must(immediate_of(end) == (ask.immediate & ~kClosing));
  uint64_t at = head, sum = 0;
  while (at < end) {
    auto record = read_header(ring.data(), ring.size(), at, end);
    must(!record.ok() || looks_written(ring.data(), ring.size(), at));
    if (!record.ok()) return;
    if (record->kind == RecordKind::kBytes) {
      const uint8_t* from = ring.data() + (at & (ring.size() - 1)) + kRecordHeaderBytes;
      for (uint32_t i = 0; i < record->bytes; ++i) sum += from[i];
    }
    must(record->ring_bytes() >= kRecordHeaderBytes);
    at += record->ring_bytes();
  }
  must(at == end || sum == UINT64_MAX);
}

}  // namespace
}  // namespace tendril::transport::rdma

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  tendril::transport::rdma::read_lap(data, bytes);
  return 0;
}
