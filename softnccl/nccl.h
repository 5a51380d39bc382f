// SPDX-License-Identifier: Apache-2.0
// NCCL's public C API as far as softnccl has it (level 2.28): names, values and layouts, written
// down as facts. Whoever calls a libnccl.so.2 without a vendor's header may include it, too.
#pragma once

#include <climits>
#include <cstddef>

#include "api/cuda_abi.gen.h"

extern "C" {

typedef struct ncclComm* ncclComm_t;
typedef struct ncclWindow* ncclWindow_t;

struct ncclUniqueId {
  char internal[128];
};

enum ncclResult_t {
  ncclSuccess = 0,
  ncclUnhandledCudaError = 1,
  ncclSystemError = 2,
  ncclInternalError = 3,
  ncclInvalidArgument = 4,
  ncclInvalidUsage = 5,
  ncclRemoteError = 6,
  ncclInProgress = 7,
  ncclNumResults = 8
};

enum ncclDataType_t {
  ncclInt8 = 0,
  ncclUint8 = 1,
  ncclInt32 = 2,
  ncclUint32 = 3,
  ncclInt64 = 4,
  ncclUint64 = 5,
  ncclFloat16 = 6,
  ncclFloat32 = 7,
  ncclFloat64 = 8,
  ncclBfloat16 = 9,
  ncclFloat8e4m3 = 10,
  ncclFloat8e5m2 = 11,
  ncclNumTypes = 12
};

enum ncclRedOp_t {
  ncclSum = 0,
  ncclProd = 1,
  ncclMax = 2,
  ncclMin = 3,
  ncclAvg = 4,
  ncclNumOps = 5,
  ncclMaxRedOp = INT_MAX
};

enum ncclScalarResidence_t { ncclScalarDevice = 0, ncclScalarHostImmediate = 1 };

// The members that every version since 2.14 begins with. `size` says how many bytes follow.
struct ncclConfig_t {
  size_t size;
  unsigned magic;
  unsigned version;
  int blocking;
  int cgaClusterSize;
  int minCTAs;
  int maxCTAs;
  const char* netName;
  int splitShare;
};

// Of one collective, since 2.32.
struct ncclCollConfig_t {
  size_t size;
  unsigned magic;
  unsigned version;
  void* ext;
  int minCTAs;
  int maxCTAs;
  int nvlsCTAs;
  int cgaClusterSize;
  const char* algSelection;
};

struct ncclSimInfo_t {
  size_t size;
  unsigned magic;
  unsigned version;
  float estimatedTime;
};
}

namespace tendril::softnccl {

inline constexpr unsigned kConfigMagic = 0xcafebeef;
inline constexpr int kUndefined = INT_MIN;  // a member of a config that nobody set
inline constexpr int kNoColor = -1;

}  // namespace tendril::softnccl

// X(name, arguments, names): every function that answers with a result, without its prefix.
// structure: table
#define TENDRIL_SOFTNCCL_FUNCTIONS(X)                                                            \
  X(GetVersion, (int* version), (version))                                                       \
  X(GetUniqueId, (ncclUniqueId * id), (id))                                                      \
  X(CommInitRank, (ncclComm_t * comm, int ranks, ncclUniqueId id, int rank),                     \
    (comm, ranks, id, rank))                                                                     \
  X(CommInitRankConfig,                                                                          \
    (ncclComm_t * comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config),             \
    (comm, ranks, id, rank, config))                                                             \
  X(CommInitRankScalable,                                                                        \
    (ncclComm_t * comm, int ranks, int rank, int id_count, ncclUniqueId* ids,                    \
     ncclConfig_t* config),                                                                      \
    (comm, ranks, rank, id_count, ids, config))                                                  \
  X(CommInitAll, (ncclComm_t * comms, int count, const int* devices), (comms, count, devices))   \
  X(CommSplit, (ncclComm_t comm, int color, int key, ncclComm_t* made, ncclConfig_t* config),    \
    (comm, color, key, made, config))                                                            \
  X(CommShrink,                                                                                  \
    (ncclComm_t comm, int* excluded, int count, ncclComm_t* made, ncclConfig_t* config,          \
     int flags),                                                                                 \
    (comm, excluded, count, made, config, flags))                                                \
  X(CommFinalize, (ncclComm_t comm), (comm))                                                     \
  X(CommDestroy, (ncclComm_t comm), (comm))                                                      \
  X(CommAbort, (ncclComm_t comm), (comm))                                                        \
  X(CommGetAsyncError, (ncclComm_t comm, ncclResult_t * state), (comm, state))                   \
  X(CommCount, (ncclComm_t comm, int* count), (comm, count))                                     \
  X(CommCuDevice, (ncclComm_t comm, int* device), (comm, device))                                \
  X(CommUserRank, (ncclComm_t comm, int* rank), (comm, rank))                                    \
  X(CommRegister, (ncclComm_t comm, void* buffer, size_t bytes, void** handle),                  \
    (comm, buffer, bytes, handle))                                                               \
  X(CommDeregister, (ncclComm_t comm, void* handle), (comm, handle))                             \
  X(CommWindowRegister,                                                                          \
    (ncclComm_t comm, void* buffer, size_t bytes, ncclWindow_t* window, int flags),              \
    (comm, buffer, bytes, window, flags))                                                        \
  X(CommWindowDeregister, (ncclComm_t comm, ncclWindow_t window), (comm, window))                \
  X(MemAlloc, (void** address, size_t bytes), (address, bytes))                                  \
  X(MemFree, (void* address), (address))                                                         \
  X(RedOpCreatePreMulSum,                                                                        \
    (ncclRedOp_t * op, void* scalar, ncclDataType_t type, ncclScalarResidence_t residence,       \
     ncclComm_t comm),                                                                           \
    (op, scalar, type, residence, comm))                                                         \
  X(RedOpDestroy, (ncclRedOp_t op, ncclComm_t comm), (op, comm))                                 \
  X(AllReduce,                                                                                   \
    (const void* from, void* to, size_t count, ncclDataType_t type, ncclRedOp_t op,              \
     ncclComm_t comm, CUstream stream),                                                          \
    (from, to, count, type, op, comm, stream))                                                   \
  X(Broadcast,                                                                                   \
    (const void* from, void* to, size_t count, ncclDataType_t type, int root, ncclComm_t comm,   \
     CUstream stream),                                                                           \
    (from, to, count, type, root, comm, stream))                                                 \
  X(Bcast,                                                                                       \
    (void* data, size_t count, ncclDataType_t type, int root, ncclComm_t comm, CUstream stream), \
    (data, count, type, root, comm, stream))                                                     \
  X(Reduce,                                                                                      \
    (const void* from, void* to, size_t count, ncclDataType_t type, ncclRedOp_t op, int root,    \
     ncclComm_t comm, CUstream stream),                                                          \
    (from, to, count, type, op, root, comm, stream))                                             \
  X(AllGather,                                                                                   \
    (const void* from, void* to, size_t count, ncclDataType_t type, ncclComm_t comm,             \
     CUstream stream),                                                                           \
    (from, to, count, type, comm, stream))                                                       \
  X(ReduceScatter,                                                                               \
    (const void* from, void* to, size_t count, ncclDataType_t type, ncclRedOp_t op,              \
     ncclComm_t comm, CUstream stream),                                                          \
    (from, to, count, type, op, comm, stream))                                                   \
  X(AlltoAll,                                                                                    \
    (const void* from, void* to, size_t count, ncclDataType_t type, ncclComm_t comm,             \
     CUstream stream),                                                                           \
    (from, to, count, type, comm, stream))                                                       \
  X(Gather,                                                                                      \
    (const void* from, void* to, size_t count, ncclDataType_t type, int root, ncclComm_t comm,   \
     CUstream stream),                                                                           \
    (from, to, count, type, root, comm, stream))                                                 \
  X(Scatter,                                                                                     \
    (const void* from, void* to, size_t count, ncclDataType_t type, int root, ncclComm_t comm,   \
     CUstream stream),                                                                           \
    (from, to, count, type, root, comm, stream))                                                 \
  X(AllReduceConfig,                                                                             \
    (const void* from, void* to, size_t count, ncclDataType_t type, ncclRedOp_t op,              \
     ncclComm_t comm, CUstream stream, const ncclCollConfig_t* config),                          \
    (from, to, count, type, op, comm, stream, config))                                           \
  X(BroadcastConfig,                                                                             \
    (const void* from, void* to, size_t count, ncclDataType_t type, int root, ncclComm_t comm,   \
     CUstream stream, const ncclCollConfig_t* config),                                           \
    (from, to, count, type, root, comm, stream, config))                                         \
  X(ReduceConfig,                                                                                \
    (const void* from, void* to, size_t count, ncclDataType_t type, ncclRedOp_t op, int root,    \
     ncclComm_t comm, CUstream stream, const ncclCollConfig_t* config),                          \
    (from, to, count, type, op, root, comm, stream, config))                                     \
  X(AllGatherConfig,                                                                             \
    (const void* from, void* to, size_t count, ncclDataType_t type, ncclComm_t comm,             \
     CUstream stream, const ncclCollConfig_t* config),                                           \
    (from, to, count, type, comm, stream, config))                                               \
  X(ReduceScatterConfig,                                                                         \
    (const void* from, void* to, size_t count, ncclDataType_t type, ncclRedOp_t op,              \
     ncclComm_t comm, CUstream stream, const ncclCollConfig_t* config),                          \
    (from, to, count, type, op, comm, stream, config))                                           \
  X(AlltoAllConfig,                                                                              \
    (const void* from, void* to, size_t count, ncclDataType_t type, ncclComm_t comm,             \
     CUstream stream, const ncclCollConfig_t* config),                                           \
    (from, to, count, type, comm, stream, config))                                               \
  X(GatherConfig,                                                                                \
    (const void* from, void* to, size_t count, ncclDataType_t type, int root, ncclComm_t comm,   \
     CUstream stream, const ncclCollConfig_t* config),                                           \
    (from, to, count, type, root, comm, stream, config))                                         \
  X(ScatterConfig,                                                                               \
    (const void* from, void* to, size_t count, ncclDataType_t type, int root, ncclComm_t comm,   \
     CUstream stream, const ncclCollConfig_t* config),                                           \
    (from, to, count, type, root, comm, stream, config))                                         \
  X(Send,                                                                                        \
    (const void* from, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,             \
     CUstream stream),                                                                           \
    (from, count, type, peer, comm, stream))                                                     \
  X(Recv,                                                                                        \
    (void* to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, CUstream stream),   \
    (to, count, type, peer, comm, stream))                                                       \
  X(GroupStart, (), ())                                                                          \
  X(GroupEnd, (), ())                                                                            \
  X(GroupSimulateEnd, (ncclSimInfo_t * info), (info))
