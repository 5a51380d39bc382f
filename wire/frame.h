// SPDX-License-Identifier: Apache-2.0
// The fixed headers of the data plane, as docs/wire.md describes them. Little-endian, no padding,
// sizes asserted. A command lane carries calls from client to worker, one after another. The reply
// lane carries frames from worker to client. Bulk channels carry chunks both ways. Used by session/
// and by the generated codecs. Contains no API knowledge.
#pragma once

#include <cstdint>

namespace tendril::wire {

inline constexpr uint32_t kCallAlign = 8;            // every call and frame is padded to this
inline constexpr uint32_t kCallBytesMax = 1u << 20;  // larger payloads travel on the bulk plane
inline constexpr uint32_t kReplyBytesMax = 1u << 20;
inline constexpr uint32_t kInlineBytesMax =
    64u << 10;  // copies up to this size travel in the lane itself
// The same for copies to the client. It is larger, because one connection carries this many bytes
// in less time than it takes to wake a receiver and then the waiter.
inline constexpr uint32_t kReplyInlineMax = 256u << 10;
inline constexpr uint32_t kChunkBytesMax =
    1u << 20;  // one bulk chunk: small enough that network and DMA overlap

// One call. `context` is the client's id of the context that is current for it (0 = none).
struct CallHeader {
  uint32_t bytes;   // header, body and padding
  uint16_t opcode;  // api/cuda/registry/opcodes.txt
  uint16_t flags;   // kFlag...
  uint32_t context;
  uint32_t reply_id;  // 0: nobody waits
};
static_assert(sizeof(CallHeader) == 16);

enum class FrameKind : uint16_t {
  kReply = 1,     // answers reply_id; result is the call's
  kDelivery = 2,  // bytes that the client must store in its memory before it looks at later frames
  // a bulk transfer to the client is complete on the worker's side; its bytes must arrive before
  // later frames are handled
  kTransfer = 3,
  kOutput = 4,    // one byte, 1 or 2, then text of a kernel for the program's stdout or stderr
  kCallback = 5,  // run a host function and answer
  kError = 6,     // a sticky error happened (result), text for people
  kGoodbye = 7,   // the worker ends the session; text says why
  kGrant = 8,     // body: GrantBody. The worker now takes this outgoing transfer: send all of it
  kBulkData = 9,  // body: ChunkHeader and data, in sessions without bulk channels
  kProgress =
      10,  // body: u64, the number of calls that the worker has run, without bulk data and goodbyes
  // no body. Since the client last asked, GPUs have written host memory that the worker mirrors
  kMemoryWritten = 11,
  kNews = 12,  // the API's own: something that its client wants to know without asking
};

// A client is at most this many calls ahead of its worker. Otherwise a program that never waits
// would queue minutes of work. A driver, too, stops a program after about a thousand launches. This
// many are enough for 5 ms of launches.
inline constexpr uint64_t kCallsAheadMax = 2048;
// In calls. Each report wakes a client that is held, which costs time on the thread that launches.
inline constexpr uint64_t kProgressEvery = 1024;

// `flags` of CallHeader and ReplyHeader belong to session/. The three low bits count the padding
// bytes at the end.
inline constexpr uint16_t kFlagPadMask = 7;
inline constexpr uint16_t kFlagBulkData =
    8;  // a call whose body is ChunkHeader and data (no bulk channels)
inline constexpr uint16_t kFlagGoodbye = 16;  // the client ends the session

// transfer 0: sent once at the start. `bytes` is then the number of chunks that the client may send
// without a grant, over all transfers.
struct GrantBody {
  uint64_t transfer;
  uint64_t bytes;
};
static_assert(sizeof(GrantBody) == 16);

struct ReplyHeader {
  uint32_t bytes;
  uint16_t kind;  // FrameKind
  uint16_t flags;
  int32_t result;
  uint32_t reply_id;
};
static_assert(sizeof(ReplyHeader) == 16);

// One chunk on a bulk channel; `bytes` of data follow it, unpadded.
struct ChunkHeader {
  uint64_t transfer;  // chosen by the client, unique in the session
  uint64_t offset;
  uint32_t bytes;
  // client -> worker: the number of chunks in the whole transfer, with kChunkEager if sent before
  // the grant. Otherwise 0
  uint32_t pieces;
};
static_assert(sizeof(ChunkHeader) == 24);
inline constexpr uint32_t kChunkEager = 1u << 31;

}  // namespace tendril::wire
