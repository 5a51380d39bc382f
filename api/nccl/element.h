// SPDX-License-Identifier: Apache-2.0
// One thing that NCCL is asked to do, as libnccl.so.2 gives it to libcuda.so.1 (client/cuda/nccl)
// and as that sends it to the worker (worker/nccl). It travels as it lies in memory, and the worker
// trusts none of it. Several elements are a group.
#pragma once

#include <cstdint>

namespace tendril::api::nccl {

enum class What : uint32_t {
  kUniqueId,
  kInit,
  kSplit,
  kShrink,
  kFinalize,
  kDestroy,
  kRegister,
  kDeregister,
  kAllReduce,
  kBroadcast,
  kReduce,
  kAllGather,
  kReduceScatter,
  kAllToAll,
  kGather,
  kScatter,
  kSend,
  kReceive,
  kCount,
};

// A reduction that the communicator makes of a scalar. Other operations have NCCL's numbers.
inline constexpr int32_t kPreMulSum = -1;

struct Element {
  What what = What::kCount;
  uint32_t type = 0;          // ncclDataType_t
  int32_t operation = 0;      // ncclRedOp_t, or kPreMulSum
  int32_t peer = 0;           // root or peer; of kInit: the rank; of kSplit: the colour
  uint64_t communicator = 0;  // chosen by the client
  uint64_t send = 0, receive = 0;
  uint64_t count = 0;    // of kInit: the ranks; of kRegister: bytes from `send` on
  uint64_t stream = 0;   // the program's handle; on the wire the worker's id
  uint64_t context = 0;  // of kInit and kUniqueId: on the wire the worker's id; else 0
  // Of kSplit and kShrink: the communicator that comes to be; 0: this rank gets none. Of kRegister
  // and kDeregister: the registration. Chosen by the client.
  uint64_t made = 0;
  uint64_t scalar = 0;  // of kPreMulSum: its bits, or where it is
  uint32_t scalar_on_device = 0;
  int32_t key = 0;  // of kSplit; of kShrink: its flags
  uint32_t ids_at = 0,
           ids = 0;  // in `extra`: unique ids of kInit, the ranks that kShrink leaves out
  // In `extra`: ncclConfig_t of what makes a communicator, ncclCollConfig_t of a collective.
  uint32_t config_at = 0, config_bytes = 0;
  int32_t device = 0;  // the program's ordinal; means nothing to the worker
  uint32_t unused = 0;
};
static_assert(sizeof(Element) == 112);

// What a worker tells unasked (wire::FrameKind::kNews): a communicator has failed.
struct Failure {
  uint64_t communicator = 0;
  uint32_t state = 0;  // ncclResult_t
  uint32_t unused = 0;
};
static_assert(sizeof(Failure) == 16);

inline constexpr uint32_t kUniqueIdBytes = 128;
// Of NCCL 2.32. What later versions add is left to the server.
inline constexpr uint32_t kConfigBytesMax = 120, kCollConfigBytesMax = 72;
// The part that every version of both has: size, magic, version.
inline constexpr uint32_t kConfigBytesMin = 16;
inline constexpr uint32_t kElementsMax = 4096;
inline constexpr uint32_t kExtraBytesMax = 1u << 20;

// Where the pointers are. In the place of a text's there travels how far behind the beginning of
// the configuration the text lies, with its NUL; 0: there is none. Other pointers travel as 0.
struct ConfigPointer {
  uint32_t at;
  bool is_text;
};
inline constexpr ConfigPointer kConfigPointers[] = {{32, true}, {48, true}};
inline constexpr ConfigPointer kCollConfigPointers[] = {{16, false}, {40, true}, {64, false}};
inline constexpr uint32_t kCollConfigEventAt = 64;
inline constexpr uint32_t kConfigTextsMax = 2, kConfigTextBytesMax = 256;  // with the NUL

}  // namespace tendril::api::nccl
