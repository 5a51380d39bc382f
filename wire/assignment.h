// SPDX-License-Identifier: Apache-2.0
// What tendrild sends to a warm worker over their socket pair when it assigns a session. Both are
// of one build, so these are plain structs without a version. The protocol is private to one
// server. Descriptors travel with the messages (session/control/connection.h: send_descriptors).
// Three kinds of message have a tail after the struct: the body of a control message
// (wire/control.h), which has no fixed size.
#pragma once

#include <atomic>
#include <cstdint>

namespace tendril::wire {

inline constexpr uint32_t kSlicesMax = 64;

enum class WorkerMessageKind : uint32_t {
  // Assignment; descriptors: [0] accounting page, [1] turn page (turn_page.h), [2] the arbiter's
  // bell. Tail: the client's TransportOffers. The answer is kTransport.
  kAssign = 1,
  kChannel = 2,  // the connection of bulk channel `reserved`; descriptor [0]
  kStart = 3,   // every connection has arrived: run the session on the transport StartOn `reserved`
  kStop = 4,    // end the session now
  kExport = 5,  // the answer to a WorkerRequest; descriptor [0] if the fetched thing has one
  kCommand = 6,  // the connection that attached; descriptor [0]
  // The connection of passage `reserved` (PassageToken); descriptor [0]. Without one there will be
  // none: the tail says why.
  kPassage = 7,
  // Copy device memory to the host and release it, once all that was submitted is done. `reserved`
  // numbers the parks of a lease; the answers repeat it. Answered with kParked or kStays.
  kPark = 8,
  // The lease has its slices (again, or still): copy back. Takes an unanswered kPark back, too.
  kWake = 9,
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

// A passage is one connection between the workers of two servers, for copies between their GPUs
// (docs/decisions/0024). The second worker's tendrild makes this. Whoever knows it may take that
// end once, so it travels only to the program that both sessions belong to.
inline constexpr uint32_t kPassagesMax = 64;  // of one session
struct PassageToken {
  uint8_t server_id[kServerIdBytes];  // where the session is
  uint64_t session_id;
  uint32_t number;  // of the passage in that session
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
  // Parking. `reserved` is the number of the kPark. `record.bytes`: what was copied to the host.
  kParked = 13,
  kStays = 14,      // it cannot park; `record.content` begins with why, for people
  kWantsWake = 15,  // a call has come that needs the GPU; the answer is kWake
  kReturned = 16,   // everything is back
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
  // What of that is paid ahead, so not in use yet. For those who look.
  std::atomic<uint64_t> ahead_bytes[kSlicesMax][kTalliesMax];
  // What of it is in the host's memory now, because the lease is parked.
  std::atomic<uint64_t> parked_bytes[kSlicesMax][kTalliesMax];
  // 1: the worker's client keeps memory for its own next allocations, which others may ask for.
  std::atomic<uint64_t> keeps[kTalliesMax];
  // Since when another worker of the lease asks for it, in base::now_ns(); 0: nobody does. The
  // worker that is asked writes 0. A tenant can write anything here and in `keeps`: then its own
  // programs wait in vain.
  std::atomic<uint64_t> wanted_ns[kTalliesMax];
  // When a worker asked last.
  std::atomic<uint64_t> short_ns;
};

}  // namespace tendril::wire
