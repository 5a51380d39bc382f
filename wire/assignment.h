// SPDX-License-Identifier: Apache-2.0
// What tendrild sends to a warm worker over their socket pair when it assigns a session. Both are
// of one build, so these are plain structs without a version. The protocol is private to one
// server. Descriptors travel with the messages (session/control/connection.h: send_descriptors).
// Three kinds of message have a tail after the struct: the body of a control message
// (wire/control.h), which has no fixed size.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace tendril::wire {

inline constexpr uint32_t kSlicesMax = 64;

enum class WorkerMessageKind : uint32_t {
  // Assignment; descriptors: [0] accounting page, [1] turn page (turn_page.h), [2] the arbiter's
  // bell. Tail: the client's TransportOffers. The answer is kTransport.
  kAssign = 1,
  // The connection of bulk channel `reserved`, or behind the last one that for acknowledgements;
  // descriptor [0]
  kChannel = 2,
  kStart = 3,   // every connection has arrived: run the session on the transport StartOn `reserved`
  kStop = 4,    // end the session now
  kExport = 5,  // the answer to a WorkerRequest; descriptor [0] if the fetched thing has one
  kCommand = 6,  // the connection that attached; descriptor [0]
  // The connection of passage `reserved` (PassageToken); descriptor [0]. Without one there will be
  // none: the tail says why. With the first connection of a trial that this worker has asked for,
  // the tail is what was remembered of the way.
  kPassage = 7,
  // Copy device memory to the host and release it, once all that was submitted is done. `reserved`
  // numbers the parks of a lease; the answers repeat it. Answered with kParked or kStays.
  kPark = 8,
  // The lease has its slices (again, or still): copy back. Takes an unanswered kPark back, too.
  kWake = 9,
  // The session is idle and may be parked soon: copy device memory to the host, and release none.
  // Not answered.
  kCopyAhead = 10,
  // Give the system the host memory that copies are in. Answered with kForgot.
  kForget = 11,
  // The client has connected again after a cut. The descriptors: the connection that attached, the
  // bulk channels, the one for acknowledgements.
  kResume = 12,
  // Connection `reserved` of the client's trial (wire::kTrialChannels); descriptor [0].
  kTrial = 13,
};

struct AssignedSlice {
  uint32_t gpu_index;  // ordinal in the driver's own numbering
  uint32_t share_millionths;
  uint64_t memory_bytes;
  uint64_t context_bytes;  // what an empty context takes
};

// WorkerMessage::reserved of kStart.
enum class StartOn : uint32_t {
  kConnections = 0,  // the answer that uses connections, which the client has joined
  kFirst = 1,        // the first answer
};

// The peer of a connection that is handed to a worker, and the keys that seal its bytes. Texts end
// with a NUL.
inline constexpr uint32_t kConnectionKeyBytesMax = 64;
struct ConnectionRecord {
  char peer[96];      // its address, for messages
  char identity[96];  // its proven identity; empty: none
  uint32_t sealed;    // 1: the session's connections are sealed with the key
  uint32_t key_bytes;
  uint8_t keys[kConnectionKeyBytesMax];  // secret
};

inline constexpr uint32_t kServerIdBytes = 16;

struct Assignment {
  uint64_t session_id;
  // Made by tendrild at its start. Distinguishes handles of other servers.
  uint8_t server_id[kServerIdBytes];
  uint32_t slice_count;
  uint32_t tally;          // this worker's column in the accounting page
  uint32_t bulk_channels;  // granted to the client
  uint32_t outage_ms;      // AttachReply::outage_ms
  uint32_t forbids_rdma;   // 1: the policy does, to its owner
  uint32_t zero;
  AssignedSlice slices[kSlicesMax];
};

// Things of one worker that another worker may open. tendrild keeps the driver's handle for each
// under a token, which travels between the programs. Whoever knows a token may open the thing, as
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

// A passage is some connections, its lines, between the workers of two servers, for copies between
// their GPUs (docs/decisions/0024). The second worker's tendrild makes this. Whoever knows it may
// take each line's end once, so it travels only to the program that both sessions belong to.
inline constexpr uint32_t kPassagesMax = 64;  // of one session
// A line's number is the passage's, and this for each line before it. The first line's is the
// passage's own.
inline constexpr uint32_t kPassageLine = 0x400, kPassageLinesMax = 8;
// Behind all lines: the connections of the passage's trial of a fabric.
inline constexpr uint32_t kTrialLinesMax = 4;
struct PassageToken {
  uint8_t server_id[kServerIdBytes];  // where the session is
  uint64_t session_id;
  uint32_t number;  // of the passage in that session, or of the line that is wanted
  uint32_t reserved;
  uint8_t key[32];  // secret
};
static_assert(sizeof(PassageToken) == kExportContentBytes);

// What a worker asks of tendrild.
enum class WorkerRequestKind : uint32_t {
  kReady = 1,    // its context exists; it waits for an assignment
  kPublish = 2,  // descriptor [0] if the thing has one; answered with the token
  // Nobody may open it any more. The owner still pays. Answered; the descriptor is then closed.
  kWithdraw = 3,
  kFreed = 4,    // as kWithdraw, and the owner pays no longer; answered
  kFetch = 5,    // by token and kind; answered
  kRelease = 6,  // a fetched thing is closed again
  // The answer to kAssign. Tail: TransportAnswers; descriptor [0] if the client needs one
  kTransport = 7,
  kLearned = 8,  // `record.content` is the name of a system call that is on no list
  // Images of device code. `record.content` begins with the hash, `record.bytes` is the length.
  kFindImage = 9,   // answered with descriptor [0], or with kUnknown
  kKeepImage = 10,  // descriptor [0]: sealed memory; answered
  // Passages, by their number in `record.bytes`. `record.content` is a PassageToken.
  kOfferPassage = 11,  // answered with the token; later comes kPassage, if somebody takes it up
  kDialPassage = 12,   // the answer is kPassage
  // Parking. `reserved` is the number of the kPark. `record.bytes` are in the host's memory now.
  // `record.content` begins with how many bytes were copied for that, as a uint64_t.
  kParked = 13,
  kStays = 14,      // it cannot park; `record.content` begins with why, for people
  kWantsWake = 15,  // a call has come that needs the GPU; the answer is kWake
  kReturned = 16,   // everything is back
  kForgot = 17,     // it has no copies in the host's memory
  kLink = 18,       // `record.content` says what carries the session, for people
  kDirect = 19,     // the tail says what GPUDirect does for it, for people
  // What carries passage `record.bytes`, for people. The tail: a line for the log, then what is to
  // be remembered of the way.
  kPassageWay = 20,
};

struct WorkerRequest {
  WorkerRequestKind kind;
  uint32_t reserved;
  ExportRecord record;
};

// WorkerMessage::reserved of kExport.
enum class ExportAnswer : uint32_t {
  kDone = 0,
  kUnknown = 1,  // no such token: its owner is gone, or the thing was freed
  kFull = 2,     // the owner has already exported too many things
  // the driver shares this only between processes of one user, and the owner's worker has another
  kOtherUser = 3,
};

struct WorkerMessage {
  WorkerMessageKind kind;
  uint32_t reserved;
  Assignment assignment;
  ExportRecord exported;
  ConnectionRecord connection;  // of kAssign, kCommand and kChannel
};
inline constexpr uint32_t kTailBytesMax = 16u << 10;

// Shared by tendrild and every worker of one lease: the bytes of GPU memory charged per slice and
// worker. A worker writes only its own column. tendrild clears the column of a worker that died. A
// slice's use is the sum of its row.
inline constexpr uint32_t kTalliesMax = 64;
struct AccountingPage {
  // What each slice may use. tendrild writes it, and changes it while the lease lives. 0: see the
  // assignment.
  std::atomic<uint64_t> quota_bytes[kSlicesMax];
  std::atomic<uint64_t> used_bytes[kSlicesMax][kTalliesMax];
  // What of that is paid ahead, or not decided, so not in use yet. For those who look.
  std::atomic<uint64_t> ahead_bytes[kSlicesMax][kTalliesMax];
  // What of it is in the host's memory now, because the lease is parked.
  std::atomic<uint64_t> parked_bytes[kSlicesMax][kTalliesMax];
  // What the worker has copied to the host or back, in all its parks and wakes: their progress.
  std::atomic<uint64_t> moved_bytes[kTalliesMax];
  // 1: the worker's client keeps memory for its own next allocations, which others may ask for.
  std::atomic<uint64_t> keeps[kTalliesMax];
  // Since when another worker of the lease asks for it, in base::now_ns(); 0: nobody does. The
  // worker that is asked writes 0. A tenant can write anything here and in `keeps`: then its own
  // programs wait in vain.
  std::atomic<uint64_t> wanted_ns[kTalliesMax];
  // When a worker asked last.
  std::atomic<uint64_t> short_ns;
};

inline uint64_t bytes_in_use(const AccountingPage& page, uint32_t slice, uint32_t tally) {
  const uint64_t used = page.used_bytes[slice][tally].load();
  return used - std::min(used, page.ahead_bytes[slice][tally].load());
}

// By all tallies at one moment. While some change one after the other, the sum of what each had
// when it was looked at may be more than there ever was. So this looks until two looks are equal, a
// few times: a tenant may change them for ever.
inline uint64_t bytes_in_use(const AccountingPage& page, uint32_t slice) {
  constexpr int kLooksMost = 100;
  uint64_t used[kTalliesMax] = {}, ahead[kTalliesMax] = {}, sum = 0;
  for (int look = 0; look < kLooksMost; ++look) {
    bool same = look != 0;
    sum = 0;
    for (uint32_t tally = 0; tally < kTalliesMax; ++tally) {
      const uint64_t now = page.used_bytes[slice][tally].load();
      const uint64_t now_ahead = page.ahead_bytes[slice][tally].load();
      same = same && now == used[tally] && now_ahead == ahead[tally];
      used[tally] = now;
      ahead[tally] = now_ahead;
      sum += now - std::min(now, now_ahead);
    }
    if (same) break;
  }
  return sum;
}

}  // namespace tendril::wire
