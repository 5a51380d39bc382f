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
  kFinalize,
  kDestroy,
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
  uint64_t count = 0;    // of kInit: the ranks
  uint64_t stream = 0;   // the program's handle; on the wire the worker's id
  uint64_t context = 0;  // of kInit and kUniqueId: on the wire the worker's id; else 0
  uint64_t made = 0;     // of kSplit: the communicator that comes to be; 0: this rank gets none
  uint64_t scalar = 0;   // of kPreMulSum: its bits, or where it is
  uint32_t scalar_on_device = 0;
  int32_t key = 0;                           // of kSplit
  uint32_t ids_at = 0, ids = 0;              // of kInit: unique ids in `extra`
  uint32_t config_at = 0, config_bytes = 0;  // of kInit and kSplit: ncclConfig_t in `extra`
  int32_t device = 0;                        // the program's ordinal; means nothing to the worker
  uint32_t unused = 0;
};
static_assert(sizeof(Element) == 112);

inline constexpr uint32_t kUniqueIdBytes = 128;
// Of NCCL 2.32. What later versions add is left to the server.
inline constexpr uint32_t kConfigBytesMax = 120;
inline constexpr uint32_t kElementsMax = 4096;
inline constexpr uint32_t kExtraBytesMax = 1u << 20;

// Where texts of the program are in ncclConfig_t: pointers that mean nothing elsewhere.
inline constexpr uint32_t kConfigPointers[] = {32, 48};

}  // namespace tendril::api::nccl
