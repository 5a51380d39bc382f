// SPDX-License-Identifier: Apache-2.0
// What tendrild tells a warm worker over their socket pair when a session is given to it. Both are
// of one build, so these are plain structs without version; the protocol is private to one server.
// Descriptors ride along (session/control/attach.h: send_descriptors).
#pragma once

#include <atomic>
#include <cstdint>

namespace tendril::wire {

inline constexpr uint32_t kSlicesMax = 64;

enum class WorkerMessageKind : uint32_t {
  // Assignment; descriptors: [0] command channel, [1] accounting page, [2] turn page (turn_page.h),
  // [3] the arbiter's bell
  kAssign = 1,
  kChannel = 2,  // one more bulk channel; descriptor [0]
  kStart = 3,    // every channel is there: run the session
  kStop = 4,     // end the session now
  kExport = 5,   // the answer to a WorkerRequest; descriptor [0] where what was fetched has one
};

struct AssignedSlice {
  uint32_t gpu_index;  // ordinal in the driver's own numbering
  uint32_t share_millionths;
  uint64_t memory_bytes;
};

inline constexpr uint32_t kServerIdBytes = 16;

struct Assignment {
  uint64_t session_id;
  uint8_t
      server_id[kServerIdBytes];  // made by tendrild at its start: tells handles of other servers
  uint32_t slice_count;
  uint32_t tally;  // this worker's column in the accounting page
  AssignedSlice slices[kSlicesMax];
};

// Things of one worker that another one may open: tendrild keeps what the driver said of each under
// a token, which travels between the programs. Whoever knows a token may open what it names, as
// with a descriptor or a handle of the driver.
enum class ExportKind : uint32_t {
  kMemory = 1,
  kEvent = 2,
  kAllocation = 3,
  kPool = 4,
  kPoolPointer = 5
};
inline constexpr uint32_t kExportTokenBytes = 16;
inline constexpr uint32_t kExportContentBytes = 64;  // a handle of the driver

struct ExportRecord {
  ExportKind kind;
  uint32_t gpu_index;
  uint64_t bytes;  // of GPU memory
  uint8_t token[kExportTokenBytes];
  uint8_t content[kExportContentBytes];
};

// What a worker says to tendrild.
enum class WorkerRequestKind : uint32_t {
  kReady = 1,    // its context exists; it waits for an assignment
  kPublish = 2,  // descriptor [0] where the thing has one; answered, with the token
  kWithdraw =
      3,  // nobody may open it any more; the owner still pays; answered, the descriptor then closed
  kFreed = 4,    // as above, and the owner pays no longer; answered
  kFetch = 5,    // by token and kind; answered
  kRelease = 6,  // what was fetched is closed again
};

struct WorkerRequest {
  WorkerRequestKind kind;
  uint32_t reserved;
  ExportRecord record;
};

// WorkerMessage::reserved of kExport.
enum class ExportAnswer : uint32_t {
  kDone = 0,
  kUnknown = 1,    // no such token: its owner is gone, or it was freed
  kFull = 2,       // the owner has exported too many things already
  kOtherUser = 3,  // the driver shares this between processes of one user only, and the owner's
                   // worker has another
};

struct WorkerMessage {
  WorkerMessageKind kind;
  uint32_t reserved;
  Assignment assignment;
  ExportRecord exported;
};

// Shared by tendrild and every worker of one lease: bytes of GPU memory charged per slice and
// worker. A worker writes its own column only; tendrild clears the column of a worker that died. A
// slice's use is the sum of its row.
inline constexpr uint32_t kTalliesMax = 64;
struct AccountingPage {
  std::atomic<uint64_t> used_bytes[kSlicesMax][kTalliesMax];
};

}  // namespace tendril::wire
