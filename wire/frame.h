// SPDX-License-Identifier: Apache-2.0
// The fixed headers of the data plane, as docs/wire.md describes them. Little-endian, no padding,
// sizes asserted. A command lane carries calls client -> worker, one after another; the reply lane
// carries frames worker -> client; bulk channels carry chunks both ways. Used by session/ and by
// the generated codecs; contains no API knowledge.
#pragma once

#include <cstdint>

namespace tendril::wire {

inline constexpr uint32_t kCallAlign = 8;            // every call and frame is padded to this
inline constexpr uint32_t kCallBytesMax = 1u << 20;  // larger payloads travel on the bulk plane
inline constexpr uint32_t kReplyBytesMax = 1u << 20;
inline constexpr uint32_t kInlineBytesMax =
    64u << 10;  // copies up to this size ride in the lane itself
// The same for copies to the client: one connection's time for so many is less than that of waking
// a receiver and then the waiter.
inline constexpr uint32_t kReplyInlineMax = 256u << 10;
inline constexpr uint32_t kChunkBytesMax =
    1u << 20;  // one bulk chunk: small enough to overlap network and DMA

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
  kDelivery = 2,  // bytes that the client must place in its memory before it looks at later frames
  kTransfer = 3,  // a bulk transfer to the client is complete on the worker's side; wait for its
                  // bytes first
  kOutput = 4,    // one byte, 1 or 2, then text of a kernel for the program's stdout or stderr
  kCallback = 5,  // please run a host function and answer
  kError = 6,     // a sticky error happened (result), text for people
  kGoodbye = 7,   // the worker ends the session; text says why
  kGrant = 8,     // body: GrantBody. The worker takes this outgoing transfer now: send all of it
  kBulkData = 9,  // body: ChunkHeader and data, in sessions without bulk channels
  kProgress =
      10,  // body: u64. The worker has run so many calls, bulk data and goodbyes not counted
  kMemoryWritten = 11,  // no body. Since the client last asked, GPUs have written host memory that
                        // it has a mirror of
};

// A client is never further ahead of its worker than so many calls. A driver stops a program after
// about a thousand launches, too: one that never waits would otherwise queue minutes of work.
// Enough for 5 ms of launches.
inline constexpr uint64_t kCallsAheadMax = 2048;
// In calls. A client that is held is woken each time, at the expense of the thread that launches.
inline constexpr uint64_t kProgressEvery = 1024;

// `flags` of CallHeader and ReplyHeader belong to session/. The three low bits count the padding
// bytes at the end.
inline constexpr uint16_t kFlagPadMask = 7;
inline constexpr uint16_t kFlagBulkData =
    8;  // a call whose body is ChunkHeader and data (no bulk channels)
inline constexpr uint16_t kFlagGoodbye = 16;  // the client ends the session

// transfer 0: sent once at the start; `bytes` is then the number of chunks that the client may send
// ungranted, over all transfers.
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
  // client -> worker: chunks in the whole transfer, and kChunkEager when sent before the grant;
  // else 0
  uint32_t pieces;
};
static_assert(sizeof(ChunkHeader) == 24);
inline constexpr uint32_t kChunkEager = 1u << 31;

}  // namespace tendril::wire
