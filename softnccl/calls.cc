// SPDX-License-Identifier: Apache-2.0
// Calls that move and reduce data, operators, groups and memory. See bodies.h.
#include <cstring>
#include <string>

#include "softnccl/bodies.h"
#include "softnccl/driver.h"
#include "softnccl/error.h"
#include "softnccl/group.h"

namespace tendril::softnccl {
namespace {

ncclResult_t check_operator(const Communicator& communicator, ncclRedOp_t op, Operation* made) {
  static constexpr Reduction kBuiltIn[] = {Reduction::kSum, Reduction::kProduct,
                                           Reduction::kMaximum, Reduction::kMinimum,
                                           Reduction::kAverage};
  const auto number = static_cast<unsigned>(op);
  if (number < ncclNumOps) {
    made->reduction = kBuiltIn[number];
    return ncclSuccess;
  }
  Scalar scalar;
  if (!communicator.find_scalar(op, &scalar))
    return error(ncclInvalidArgument,
                 "operator " + std::to_string(number) + " is none of this communicator");
  if (scalar.type != made->type)
    return error(ncclInvalidArgument, "the operator was made for another type");
  made->reduction = Reduction::kScaledSum;
  made->scalar = scalar.value;
  made->scalar_at = scalar.at;
  return ncclSuccess;
}

ncclResult_t check(const CommunicatorPtr& communicator, ncclRedOp_t op, Operation* made) {
  if (ncclResult_t bad = communicator->ready()) return bad;
  if (type_bytes(made->type) == 0)
    return error(ncclInvalidArgument, "there is no type " + std::to_string(made->type));
  const bool named = has_root(made->kind) || is_between_two(made->kind);
  if (named && (made->peer < 0 || made->peer >= communicator->ranks()))
    return error(ncclInvalidArgument, "there is no rank " + std::to_string(made->peer) + " of " +
                                          std::to_string(communicator->ranks()));
  const int rank = communicator->rank(), ranks = communicator->ranks();
  if ((bytes_read(*made, rank, ranks) != 0 && made->from == 0) ||
      (bytes_written(*made, rank, ranks) != 0 && made->to == 0))
    return error(ncclInvalidArgument, "a buffer is null");
  return reduces(made->kind) ? check_operator(*communicator, op, made) : ncclSuccess;
}

// There is one algorithm.
ncclResult_t check_configuration(const ncclCollConfig_t* config) {
  if (config == nullptr) return ncclSuccess;
  if (config->magic != kConfigMagic || config->size < sizeof *config)
    return error(ncclInvalidArgument, "an ncclCollConfig_t that was not initialised");
  if (config->minCTAs != kUndefined && config->minCTAs > config->maxCTAs)
    return error(ncclInvalidArgument, "minCTAs is above maxCTAs");
  const char* algorithm = config->algSelection;
  if (algorithm != nullptr && *algorithm != 0 && std::strcmp(algorithm, "ring") != 0)
    return error(ncclInvalidUsage, std::string("there is no algorithm ") + algorithm);
  return ncclSuccess;
}

ncclResult_t queue(Kind kind, const void* from, void* to, size_t count, ncclDataType_t type,
                   ncclRedOp_t op, int peer, ncclComm_t comm, CUstream stream,
                   const ncclCollConfig_t* config = nullptr) {
  Operation made;
  made.kind = kind;
  made.type = type;
  made.count = count;
  made.peer = peer;
  made.from = reinterpret_cast<CUdeviceptr>(from);
  made.to = reinterpret_cast<CUdeviceptr>(to);
  const CommunicatorPtr communicator = find(comm);
  group_start();
  ncclResult_t bad = communicator ? check(communicator, op, &made)
                                  : error(ncclInvalidArgument, "there is no such communicator");
  if (bad == ncclSuccess) bad = check_configuration(config);
  if (bad != ncclSuccess) {
    group_fail(bad);
    group_end();
    return bad;
  }
  // As NCCL does: nothing to do, so nobody is waited for.
  if (count != 0 || is_between_two(kind)) group_queue(communicator, {made, stream});
  return group_end();
}

}  // namespace

ncclResult_t soft_nccl_AllReduce(const void* from, void* to, size_t count, ncclDataType_t type,
                                 ncclRedOp_t op, ncclComm_t comm, CUstream stream) {
  return queue(Kind::kAllReduce, from, to, count, type, op, 0, comm, stream);
}

ncclResult_t soft_nccl_Broadcast(const void* from, void* to, size_t count, ncclDataType_t type,
                                 int root, ncclComm_t comm, CUstream stream) {
  return queue(Kind::kBroadcast, from, to, count, type, ncclSum, root, comm, stream);
}

ncclResult_t soft_nccl_Bcast(void* data, size_t count, ncclDataType_t type, int root,
                             ncclComm_t comm, CUstream stream) {
  return queue(Kind::kBroadcast, data, data, count, type, ncclSum, root, comm, stream);
}

ncclResult_t soft_nccl_Reduce(const void* from, void* to, size_t count, ncclDataType_t type,
                              ncclRedOp_t op, int root, ncclComm_t comm, CUstream stream) {
  return queue(Kind::kReduce, from, to, count, type, op, root, comm, stream);
}

ncclResult_t soft_nccl_AllGather(const void* from, void* to, size_t count, ncclDataType_t type,
                                 ncclComm_t comm, CUstream stream) {
  return queue(Kind::kAllGather, from, to, count, type, ncclSum, 0, comm, stream);
}

ncclResult_t soft_nccl_ReduceScatter(const void* from, void* to, size_t count, ncclDataType_t type,
                                     ncclRedOp_t op, ncclComm_t comm, CUstream stream) {
  return queue(Kind::kReduceScatter, from, to, count, type, op, 0, comm, stream);
}

ncclResult_t soft_nccl_AlltoAll(const void* from, void* to, size_t count, ncclDataType_t type,
                                ncclComm_t comm, CUstream stream) {
  return queue(Kind::kAllToAll, from, to, count, type, ncclSum, 0, comm, stream);
}

ncclResult_t soft_nccl_Gather(const void* from, void* to, size_t count, ncclDataType_t type,
                              int root, ncclComm_t comm, CUstream stream) {
  return queue(Kind::kGather, from, to, count, type, ncclSum, root, comm, stream);
}

ncclResult_t soft_nccl_Scatter(const void* from, void* to, size_t count, ncclDataType_t type,
                               int root, ncclComm_t comm, CUstream stream) {
  return queue(Kind::kScatter, from, to, count, type, ncclSum, root, comm, stream);
}

ncclResult_t soft_nccl_Send(const void* from, size_t count, ncclDataType_t type, int peer,
                            ncclComm_t comm, CUstream stream) {
  return queue(Kind::kSend, from, nullptr, count, type, ncclSum, peer, comm, stream);
}

ncclResult_t soft_nccl_Recv(void* to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                            CUstream stream) {
  return queue(Kind::kReceive, nullptr, to, count, type, ncclSum, peer, comm, stream);
}

ncclResult_t soft_nccl_AllReduceConfig(const void* from, void* to, size_t count,
                                       ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                                       CUstream stream, const ncclCollConfig_t* config) {
  return queue(Kind::kAllReduce, from, to, count, type, op, 0, comm, stream, config);
}

ncclResult_t soft_nccl_BroadcastConfig(const void* from, void* to, size_t count,
                                       ncclDataType_t type, int root, ncclComm_t comm,
                                       CUstream stream, const ncclCollConfig_t* config) {
  return queue(Kind::kBroadcast, from, to, count, type, ncclSum, root, comm, stream, config);
}

ncclResult_t soft_nccl_ReduceConfig(const void* from, void* to, size_t count, ncclDataType_t type,
                                    ncclRedOp_t op, int root, ncclComm_t comm, CUstream stream,
                                    const ncclCollConfig_t* config) {
  return queue(Kind::kReduce, from, to, count, type, op, root, comm, stream, config);
}

ncclResult_t soft_nccl_AllGatherConfig(const void* from, void* to, size_t count,
                                       ncclDataType_t type, ncclComm_t comm, CUstream stream,
                                       const ncclCollConfig_t* config) {
  return queue(Kind::kAllGather, from, to, count, type, ncclSum, 0, comm, stream, config);
}

ncclResult_t soft_nccl_ReduceScatterConfig(const void* from, void* to, size_t count,
                                           ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                                           CUstream stream, const ncclCollConfig_t* config) {
  return queue(Kind::kReduceScatter, from, to, count, type, op, 0, comm, stream, config);
}

ncclResult_t soft_nccl_AlltoAllConfig(const void* from, void* to, size_t count, ncclDataType_t type,
                                      ncclComm_t comm, CUstream stream,
                                      const ncclCollConfig_t* config) {
  return queue(Kind::kAllToAll, from, to, count, type, ncclSum, 0, comm, stream, config);
}

ncclResult_t soft_nccl_GatherConfig(const void* from, void* to, size_t count, ncclDataType_t type,
                                    int root, ncclComm_t comm, CUstream stream,
                                    const ncclCollConfig_t* config) {
  return queue(Kind::kGather, from, to, count, type, ncclSum, root, comm, stream, config);
}

ncclResult_t soft_nccl_ScatterConfig(const void* from, void* to, size_t count, ncclDataType_t type,
                                     int root, ncclComm_t comm, CUstream stream,
                                     const ncclCollConfig_t* config) {
  return queue(Kind::kScatter, from, to, count, type, ncclSum, root, comm, stream, config);
}

ncclResult_t soft_nccl_GroupStart() {
  group_start();
  return ncclSuccess;
}

ncclResult_t soft_nccl_GroupEnd() { return group_end(); }

ncclResult_t soft_nccl_GroupSimulateEnd(ncclSimInfo_t* info) {
  if (ncclResult_t bad = group_drop()) return bad;
  if (info != nullptr) info->estimatedTime = 0;
  return ncclSuccess;
}

ncclResult_t soft_nccl_RedOpCreatePreMulSum(ncclRedOp_t* op, void* scalar, ncclDataType_t type,
                                            ncclScalarResidence_t residence, ncclComm_t comm) {
  const CommunicatorPtr communicator = find(comm);
  const size_t bytes = type_bytes(type);
  if (!communicator) return error(ncclInvalidArgument, "there is no such communicator");
  if (ncclResult_t bad = communicator->ready()) return bad;
  if (op == nullptr || scalar == nullptr || bytes == 0)
    return error(ncclInvalidArgument, "an operator needs a scalar and a type");
  Scalar made = {type};
  if (residence == ncclScalarHostImmediate)
    std::memcpy(&made.value, scalar, bytes);
  else if (residence == ncclScalarDevice)
    made.at = reinterpret_cast<CUdeviceptr>(scalar);
  else
    return error(ncclInvalidArgument, "the scalar lies nowhere");
  *op = communicator->add_scalar(made);
  return ncclSuccess;
}

ncclResult_t soft_nccl_RedOpDestroy(ncclRedOp_t op, ncclComm_t comm) {
  const CommunicatorPtr communicator = find(comm);
  if (!communicator) return error(ncclInvalidArgument, "there is no such communicator");
  if (static_cast<unsigned>(op) < ncclNumOps)
    return error(ncclInvalidArgument, "a built-in operator cannot be destroyed");
  return communicator->drop_scalar(op)
             ? ncclSuccess
             : error(ncclInvalidArgument, "there is no such operator of this communicator");
}

ncclResult_t soft_nccl_MemAlloc(void** address, size_t bytes) {
  CUdeviceptr made = 0;
  if (address == nullptr || bytes == 0)
    return error(ncclInvalidArgument, "an allocation of nothing, or without a place for it");
  const ncclResult_t result = driver_error(driver()->allocate(&made, bytes), "cuMemAlloc");
  *address = reinterpret_cast<void*>(made);
  return result;
}

ncclResult_t soft_nccl_MemFree(void* address) {
  if (address == nullptr) return ncclSuccess;
  return driver_error(driver()->deallocate(reinterpret_cast<CUdeviceptr>(address)), "cuMemFree");
}

ncclResult_t soft_nccl_CommRegister(ncclComm_t comm, void* buffer, size_t bytes, void** handle) {
  const CommunicatorPtr communicator = find(comm);
  if (!communicator || buffer == nullptr || bytes == 0 || handle == nullptr)
    return error(ncclInvalidArgument, "a registration needs a communicator and a buffer");
  if (ncclResult_t bad = communicator->ready()) return bad;
  *handle = communicator->add_registration();
  return ncclSuccess;
}

ncclResult_t soft_nccl_CommDeregister(ncclComm_t comm, void* handle) {
  const CommunicatorPtr communicator = find(comm);
  if (!communicator || !communicator->drop_registration(handle))
    return error(ncclInvalidArgument, "there is no such registration of this communicator");
  return ncclSuccess;
}

// As NCCL does where symmetric memory is not to be had: no window, and no error.
ncclResult_t soft_nccl_CommWindowRegister(ncclComm_t comm, void*, size_t, ncclWindow_t* window,
                                          int) {
  if (!find(comm) || window == nullptr)
    return error(ncclInvalidArgument, "a window needs a communicator");
  *window = nullptr;
  return ncclSuccess;
}

ncclResult_t soft_nccl_CommWindowDeregister(ncclComm_t comm, ncclWindow_t window) {
  return find(comm) && window == nullptr ? ncclSuccess
                                         : error(ncclInvalidArgument, "there is no such window");
}

}  // namespace tendril::softnccl
