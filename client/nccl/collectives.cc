// SPDX-License-Identifier: Apache-2.0
// The bodies of api/nccl/collectives.spec.
#include <string.h>

#include "client/nccl/communicator.h"
#include "client/nccl/configuration.h"
#include "client/nccl/entry.h"

namespace tendril::client::nccl {
namespace {

using api::nccl::Element;
using api::nccl::What;

constexpr int kOperationsMax = 1024;

uint64_t type_bytes(ncclDataType_t type) {
  static constexpr uint8_t kBytes[ncclNumTypes] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  return type >= 0 && type < ncclNumTypes ? kBytes[type] : 0;
}

// In a group the error is also the group's.
ncclResult_t failed(ncclResult_t result) {
  if (Group* group = open_group(); group != nullptr && group->failed == ncclSuccess)
    group->failed = result;
  return result;
}

struct Asked {
  What what;
  const void* send;
  void* receive;
  size_t count;
  ncclDataType_t type;
  int peer;
  ncclComm_t comm;
  CUstream stream;
  const ncclCollConfig_t* config = nullptr;  // null: as without one
};

bool take_operation(const Communicator& communicator, ncclRedOp_t operation, Element* element) {
  const auto number = static_cast<int64_t>(operation);
  element->operation = static_cast<int32_t>(number);
  if (number < ncclNumOps) return number >= 0;
  const auto index = static_cast<size_t>(number - ncclNumOps);
  if (index >= communicator.operations.size() || !communicator.operations[index].alive)
    return false;
  const Communicator::Operation& own = communicator.operations[index];
  if (own.type != element->type) return false;
  element->operation = api::nccl::kPreMulSum;
  element->scalar = own.scalar;
  element->scalar_on_device = own.on_device ? 1 : 0;
  return true;
}

ncclResult_t collective(const Asked& asked, ncclRedOp_t operation = ncclSum) {
  Communicator* communicator = find(asked.comm);
  if (communicator == nullptr) return failed(ncclInvalidArgument);
  Element element;
  element.what = asked.what;
  element.type = static_cast<uint32_t>(asked.type);
  element.peer = asked.peer;
  element.communicator = communicator->id;
  element.send = reinterpret_cast<uint64_t>(asked.send);
  element.receive = reinterpret_cast<uint64_t>(asked.receive);
  element.count = asked.count;
  element.stream = reinterpret_cast<uint64_t>(asked.stream);
  element.device = communicator->device;
  if (type_bytes(asked.type) == 0 || !take_operation(*communicator, operation, &element))
    return failed(ncclInvalidArgument);
  if (asked.config == nullptr)
    return submit_collective(element, communicator, asked.count * type_bytes(asked.type));
  std::vector<uint8_t> extra;
  const ncclResult_t added = add_configuration(asked.config, &element, &extra);
  return added == ncclSuccess ? submit(element, extra) : failed(added);
}

}  // namespace

ncclResult_t ncclAllReduce(const void* sendbuff, void* recvbuff, size_t count,
                           ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                           CUstream stream) {
  return collective({What::kAllReduce, sendbuff, recvbuff, count, datatype, 0, comm, stream}, op);
}

ncclResult_t ncclBroadcast(const void* sendbuff, void* recvbuff, size_t count,
                           ncclDataType_t datatype, int root, ncclComm_t comm, CUstream stream) {
  return collective({What::kBroadcast, sendbuff, recvbuff, count, datatype, root, comm, stream});
}

ncclResult_t ncclBcast(void* buff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,
                       CUstream stream) {
  return ncclBroadcast(buff, buff, count, datatype, root, comm, stream);
}

ncclResult_t ncclReduce(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                        ncclRedOp_t op, int root, ncclComm_t comm, CUstream stream) {
  return collective({What::kReduce, sendbuff, recvbuff, count, datatype, root, comm, stream}, op);
}

ncclResult_t ncclAllGather(const void* sendbuff, void* recvbuff, size_t sendcount,
                           ncclDataType_t datatype, ncclComm_t comm, CUstream stream) {
  return collective({What::kAllGather, sendbuff, recvbuff, sendcount, datatype, 0, comm, stream});
}

ncclResult_t ncclReduceScatter(const void* sendbuff, void* recvbuff, size_t recvcount,
                               ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                               CUstream stream) {
  return collective(
      {What::kReduceScatter, sendbuff, recvbuff, recvcount, datatype, 0, comm, stream}, op);
}

ncclResult_t ncclAlltoAll(const void* sendbuff, void* recvbuff, size_t count,
                          ncclDataType_t datatype, ncclComm_t comm, CUstream stream) {
  return collective({What::kAllToAll, sendbuff, recvbuff, count, datatype, 0, comm, stream});
}

ncclResult_t ncclGather(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                        int root, ncclComm_t comm, CUstream stream) {
  return collective({What::kGather, sendbuff, recvbuff, count, datatype, root, comm, stream});
}

ncclResult_t ncclScatter(const void* sendbuff, void* recvbuff, size_t count,
                         ncclDataType_t datatype, int root, ncclComm_t comm, CUstream stream) {
  return collective({What::kScatter, sendbuff, recvbuff, count, datatype, root, comm, stream});
}

ncclResult_t ncclSend(const void* sendbuff, size_t count, ncclDataType_t datatype, int peer,
                      ncclComm_t comm, CUstream stream) {
  return collective({What::kSend, sendbuff, nullptr, count, datatype, peer, comm, stream});
}

ncclResult_t ncclRecv(void* recvbuff, size_t count, ncclDataType_t datatype, int peer,
                      ncclComm_t comm, CUstream stream) {
  return collective({What::kReceive, nullptr, recvbuff, count, datatype, peer, comm, stream});
}

ncclResult_t ncclAllReduceConfig(const void* sendbuff, void* recvbuff, size_t count,
                                 ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                                 CUstream stream, const ncclCollConfig_t* config) {
  return collective(
      {What::kAllReduce, sendbuff, recvbuff, count, datatype, 0, comm, stream, config}, op);
}

ncclResult_t ncclBroadcastConfig(const void* sendbuff, void* recvbuff, size_t count,
                                 ncclDataType_t datatype, int root, ncclComm_t comm,
                                 CUstream stream, const ncclCollConfig_t* config) {
  return collective(
      {What::kBroadcast, sendbuff, recvbuff, count, datatype, root, comm, stream, config});
}

ncclResult_t ncclReduceConfig(const void* sendbuff, void* recvbuff, size_t count,
                              ncclDataType_t datatype, ncclRedOp_t op, int root, ncclComm_t comm,
                              CUstream stream, const ncclCollConfig_t* config) {
  return collective(
      {What::kReduce, sendbuff, recvbuff, count, datatype, root, comm, stream, config}, op);
}

ncclResult_t ncclAllGatherConfig(const void* sendbuff, void* recvbuff, size_t sendcount,
                                 ncclDataType_t datatype, ncclComm_t comm, CUstream stream,
                                 const ncclCollConfig_t* config) {
  return collective(
      {What::kAllGather, sendbuff, recvbuff, sendcount, datatype, 0, comm, stream, config});
}

ncclResult_t ncclReduceScatterConfig(const void* sendbuff, void* recvbuff, size_t recvcount,
                                     ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                                     CUstream stream, const ncclCollConfig_t* config) {
  return collective(
      {What::kReduceScatter, sendbuff, recvbuff, recvcount, datatype, 0, comm, stream, config}, op);
}

ncclResult_t ncclAlltoAllConfig(const void* sendbuff, void* recvbuff, size_t count,
                                ncclDataType_t datatype, ncclComm_t comm, CUstream stream,
                                const ncclCollConfig_t* config) {
  return collective(
      {What::kAllToAll, sendbuff, recvbuff, count, datatype, 0, comm, stream, config});
}

ncclResult_t ncclGatherConfig(const void* sendbuff, void* recvbuff, size_t count,
                              ncclDataType_t datatype, int root, ncclComm_t comm, CUstream stream,
                              const ncclCollConfig_t* config) {
  return collective(
      {What::kGather, sendbuff, recvbuff, count, datatype, root, comm, stream, config});
}

ncclResult_t ncclScatterConfig(const void* sendbuff, void* recvbuff, size_t count,
                               ncclDataType_t datatype, int root, ncclComm_t comm, CUstream stream,
                               const ncclCollConfig_t* config) {
  return collective(
      {What::kScatter, sendbuff, recvbuff, count, datatype, root, comm, stream, config});
}

ncclResult_t ncclGroupStart() {
  start_group();
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() { return end_group(); }

ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t* op, void* scalar, ncclDataType_t datatype,
                                      ncclScalarResidence_t residence, ncclComm_t comm) {
  Communicator* communicator = find(comm);
  const uint64_t bytes = type_bytes(datatype);
  if (communicator == nullptr || op == nullptr || scalar == nullptr || bytes == 0)
    return ncclInvalidArgument;
  Communicator::Operation made;
  made.alive = true;
  made.on_device = residence == ncclScalarDevice;
  made.type = static_cast<uint32_t>(datatype);
  if (made.on_device)
    made.scalar = reinterpret_cast<uint64_t>(scalar);
  else
    memcpy(&made.scalar, scalar, bytes);
  std::vector<Communicator::Operation>& all = communicator->operations;
  size_t place = 0;
  while (place < all.size() && all[place].alive) ++place;
  if (place == kOperationsMax) return ncclInternalError;
  if (place == all.size()) all.emplace_back();
  all[place] = made;
  *op = static_cast<ncclRedOp_t>(ncclNumOps + static_cast<int>(place));
  return ncclSuccess;
}

ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm) {
  Communicator* communicator = find(comm);
  const auto place = static_cast<size_t>(static_cast<int64_t>(op) - ncclNumOps);
  if (communicator == nullptr || op < ncclNumOps || place >= communicator->operations.size() ||
      !communicator->operations[place].alive)
    return ncclInvalidArgument;
  communicator->operations[place].alive = false;
  return ncclSuccess;
}

}  // namespace tendril::client::nccl
