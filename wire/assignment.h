// SPDX-License-Identifier: Apache-2.0
// What tendrild tells a warm worker over their socket pair when a session is given to it. Both are of one build, so these are plain
// structs without version; the protocol is private to one server. Descriptors ride along (session/attach.h: send_descriptors).
#pragma once

#include <atomic>
#include <cstdint>

namespace tendril::wire {

inline constexpr uint32_t kSlicesMax = 64;

enum class WorkerMessageKind : uint32_t {
  kAssign = 1,   // Assignment; descriptors: [0] command channel, [1] accounting page
  kChannel = 2,  // one more bulk channel; descriptor [0]
  kStart = 3,    // every channel is there: run the session
  kStop = 4,     // end the session now
};

struct AssignedSlice {
  uint32_t gpu_index;  // ordinal in the driver's own numbering
  uint32_t share_millionths;
  uint64_t memory_bytes;
};

struct Assignment {
  uint64_t session_id;
  uint32_t slice_count;
  uint32_t tally;  // this worker's column in the accounting page
  AssignedSlice slices[kSlicesMax];
};

struct WorkerMessage {
  WorkerMessageKind kind;
  uint32_t reserved;
  Assignment assignment;
};

// Shared by tendrild and every worker of one lease: bytes of GPU memory charged per slice and worker. A worker writes its own column
// only; tendrild clears the column of a worker that died. A slice's use is the sum of its row.
inline constexpr uint32_t kTalliesMax = 64;
struct AccountingPage {
  std::atomic<uint64_t> used_bytes[kSlicesMax][kTalliesMax];
};

}  // namespace tendril::wire
