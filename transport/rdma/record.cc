// SPDX-License-Identifier: Apache-2.0
// See record.h. Fixed layout, little-endian.
#include "transport/rdma/record.h"

#include <cstring>

namespace tendril::transport::rdma {

using base::Code;
using base::Result;
using base::Status;

namespace {

constexpr uint16_t kRecordMark = 0x5254;  // "TR"

struct Header {
  uint16_t mark;
  uint16_t kind;
  uint32_t bytes;
  uint64_t position;
  uint64_t address;
  uint32_t key;
  uint32_t zero;
};
static_assert(sizeof(Header) == kRecordHeaderBytes);

Status nonsense(const char* what) {
  return Status(Code::kInvalid, std::string("the peer wrote nonsense into an RDMA ring: ") + what);
}

}  // namespace

void write_header(uint8_t* at, const Record& record, uint64_t position) {
  const Header header{kRecordMark,
                      uint16_t(record.kind),
                      record.bytes,
                      position,
                      record.from.address,
                      record.from.key,
                      0};
  memcpy(at, &header, sizeof header);
}

Result<Record> read_header(const uint8_t* ring, uint64_t ring_size, uint64_t position,
                           uint64_t end) {
  const uint64_t offset = position & (ring_size - 1);
  if (end - position < kRecordHeaderBytes || ring_size - offset < kRecordHeaderBytes)
    return nonsense("a record without a header");
  Header header;
  memcpy(&header, ring + offset, sizeof header);
  if (header.mark != kRecordMark || header.position != position || header.zero != 0)
    return nonsense("a record's header");
  Record record;
  record.kind = RecordKind(header.kind);
  record.bytes = header.bytes;
  record.from = {header.address, header.key};
  switch (record.kind) {
    case RecordKind::kBytes:
      if (record.ring_bytes() > end - position || record.ring_bytes() > ring_size - offset)
        return nonsense("a record longer than what was told");
      return record;
    case RecordKind::kReference:
      if (record.bytes == 0 || record.bytes > kReferenceBytesMax ||
          header.address + record.bytes < header.address)
        return nonsense("a reference's length");
      return record;
  }
  return nonsense("a record's kind");
}

// The peer's card may be writing at this moment, as the thread sanitizer would see with a double.
__attribute__((no_sanitize("thread"))) bool looks_written(const uint8_t* ring, uint64_t ring_size,
                                                          uint64_t position) {
  // So what is seen is no more than a suspicion.
  const auto* words =
      reinterpret_cast<const volatile uint64_t*>(ring + (position & (ring_size - 1)));
  return (words[0] & 0xffff) == kRecordMark && words[1] == position;
}

bool widen(uint32_t immediate, uint64_t known, uint64_t most, uint64_t* position) {
  const uint64_t further = (immediate - uint32_t(known)) & ~kClosing;
  if (further > most || further % kRecordHeaderBytes != 0) return false;
  *position = known + further;
  return true;
}

}  // namespace tendril::transport::rdma
