// SPDX-License-Identifier: Apache-2.0
// What lies in a channel's ring: records, one after the other, each with a header. A record carries
// bytes of the stream, or says where they can be read. Positions count the bytes of the ring since
// the beginning; the peer tells their lower 31 bits with an immediate, so one that is lost is made
// good by the next. The peer writes ring and immediates, and is not trusted: here is all the
// checking. Pure; record_fuzz.cc feeds it nonsense.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "transport/rdma/verbs.h"

namespace tendril::transport::rdma {

inline constexpr uint64_t kRecordHeaderBytes = 32;  // records begin at multiples of it
inline constexpr uint64_t kRingBytesMin = 4096, kRingBytesMax = 64u << 20;  // powers of two
inline constexpr uint32_t kRecordsMax = 64;                                 // in a ring at one time
inline constexpr uint32_t kReferenceBytesMax = 1u << 30;                    // of one record

enum class RecordKind : uint16_t {
  kBytes = 1,      // `bytes` of the stream follow; 0: only the header fits before the ring ends
  kReference = 2,  // `bytes` of the stream can be read at `from`
};

struct Record {
  RecordKind kind = RecordKind::kBytes;
  uint32_t bytes = 0;
  Remote from;
  // Of this record in the ring, with header and padding.
  uint64_t ring_bytes() const {
    const uint64_t all = kRecordHeaderBytes + (kind == RecordKind::kBytes ? bytes : 0);
    return (all + kRecordHeaderBytes - 1) / kRecordHeaderBytes * kRecordHeaderBytes;
  }
};

// Writes the header at `at`, which has room for it. `position` of the record goes into it, so that
// a record of an earlier lap is none.
void write_header(uint8_t* at, const Record& record, uint64_t position);

// The record at `position` of a ring, of which everything before `end` was told. The header is
// read once. kInvalid: it makes no sense, or is longer than what was told.
base::Result<Record> read_header(const uint8_t* ring, uint64_t ring_size, uint64_t position,
                                 uint64_t end);

// Whether a record has been written there, although nobody told so.
bool looks_written(const uint8_t* ring, uint64_t ring_size, uint64_t position);

inline constexpr uint32_t kClosing = 1u << 31;  // in an immediate: nothing more comes

inline uint32_t immediate_of(uint64_t position) { return uint32_t(position) & ~kClosing; }

// The position that an immediate means, at least `known` and at most `known + most`. False: there
// is none, or it is no multiple of kRecordHeaderBytes.
bool widen(uint32_t immediate, uint64_t known, uint64_t most, uint64_t* position);

inline bool good_ring_size(uint64_t bytes) {
  return bytes >= kRingBytesMin && bytes <= kRingBytesMax && (bytes & (bytes - 1)) == 0;
}

}  // namespace tendril::transport::rdma
