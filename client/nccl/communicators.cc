// SPDX-License-Identifier: Apache-2.0
// The bodies of api/nccl/communicators.spec.
#include <string.h>

#include "client/nccl/communicator.h"
#include "client/nccl/entry.h"

namespace tendril::client::nccl {
namespace {

using api::nccl::Element;
using api::nccl::What;

// The program's configuration as it travels, at the end of `extra`. False: it is none.
bool add_configuration(const ncclConfig_t* config, Element* element, std::vector<uint8_t>* extra) {
  if (config == nullptr) return true;
  if (config->magic != NCCL_CONFIG_MAGIC || config->size < sizeof *config) return false;
  const size_t bytes =
      config->size < api::nccl::kConfigBytesMax ? config->size : api::nccl::kConfigBytesMax;
  while (extra->size() % 8 != 0) extra->push_back(0);
  element->config_at = static_cast<uint32_t>(extra->size());
  element->config_bytes = static_cast<uint32_t>(bytes);
  const auto* at = reinterpret_cast<const uint8_t*>(config);
  extra->insert(extra->end(), at, at + bytes);
  return true;
}

ncclResult_t begin(ncclComm_t* comm, int32_t device, int ranks, int rank, const ncclUniqueId* ids,
                   int id_count, const ncclConfig_t* config) {
  if (comm == nullptr || ids == nullptr || ranks < 1 || rank < 0 || rank >= ranks || id_count < 1 ||
      id_count > ranks || device < 0)
    return ncclInvalidArgument;
  std::vector<uint8_t> extra(sizeof *ids * static_cast<size_t>(id_count));
  memcpy(extra.data(), ids, extra.size());
  Element element;
  element.what = What::kInit;
  element.ids = static_cast<uint32_t>(id_count);
  if (!add_configuration(config, &element, &extra)) return ncclInvalidArgument;
  const Communicator* made = create(comm, device, rank, ranks);
  if (made == nullptr) return ncclInternalError;
  element.communicator = made->id;
  element.device = device;
  element.count = static_cast<uint64_t>(ranks);
  element.peer = rank;
  const ncclComm_t handle = *comm;
  const ncclResult_t result = submit(element, extra, handle);
  if (find(handle) == nullptr) *comm = nullptr;
  return result;
}

ncclResult_t begin_here(ncclComm_t* comm, int ranks, int rank, const ncclUniqueId* ids,
                        int id_count, const ncclConfig_t* config) {
  const api::nccl::Door* way = door();
  if (way == nullptr) return ncclSystemError;
  return begin(comm, way->current_device(), ranks, rank, ids, id_count, config);
}

// Who a communicator is that came from a split: only NCCL knows.
ncclResult_t learn(Communicator* communicator) {
  if (communicator->ranks != 0) return ncclSuccess;
  const api::nccl::Door* way = door();
  if (way == nullptr) return ncclSystemError;
  int32_t rank = 0, ranks = 0;
  const auto state =
      static_cast<ncclResult_t>(way->state(communicator->device, communicator->id, &rank, &ranks));
  if (state != ncclSuccess) return state;
  communicator->rank = rank;
  communicator->ranks = ranks;
  return ranks != 0 ? ncclSuccess : ncclInternalError;
}

// Ends are no part of a group: what is there is done first.
ncclResult_t end(ncclComm_t comm, What what) {
  const Communicator* known = find(comm);
  if (known == nullptr) return ncclInvalidArgument;
  Element element;
  element.what = what;
  element.communicator = known->id;
  element.device = known->device;
  return submit(element);
}

}  // namespace

ncclResult_t ncclCommInitRank(ncclComm_t* comm, int nranks, ncclUniqueId commId, int rank) {
  return begin_here(comm, nranks, rank, &commId, 1, nullptr);
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int nranks, ncclUniqueId commId, int rank,
                                    ncclConfig_t* config) {
  return begin_here(comm, nranks, rank, &commId, 1, config);
}

ncclResult_t ncclCommInitRankScalable(ncclComm_t* newcomm, int nranks, int myrank, int nId,
                                      ncclUniqueId* commIds, ncclConfig_t* config) {
  return begin_here(newcomm, nranks, myrank, commIds, nId, config);
}

ncclResult_t ncclCommInitAll(ncclComm_t* comm, int ndev, const int* devlist) {
  if (comm == nullptr || ndev < 1) return ncclInvalidArgument;
  for (int i = 0; devlist != nullptr && i < ndev; ++i) {
    for (int j = 0; j < i; ++j)
      if (devlist[i] == devlist[j]) return ncclInvalidUsage;
  }
  const auto device = [devlist](int i) { return devlist != nullptr ? devlist[i] : i; };
  ncclUniqueId id;
  const ncclResult_t asked = ask_unique_id(device(0), &id);
  if (asked != ncclSuccess) return asked;
  start_group();
  ncclResult_t result = ncclSuccess;
  for (int i = 0; i < ndev && result == ncclSuccess; ++i)
    result = begin(comm + i, device(i), ndev, i, &id, 1, nullptr);
  if (result != ncclSuccess) open_group()->failed = result;
  return end_group();
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* newcomm,
                           ncclConfig_t* config) {
  const Communicator* parent = find(comm);
  if (parent == nullptr || newcomm == nullptr) return ncclInvalidArgument;
  Element element;
  std::vector<uint8_t> extra;
  if (!add_configuration(config, &element, &extra)) return ncclInvalidArgument;
  element.what = What::kSplit;
  element.communicator = parent->id;
  element.device = parent->device;
  element.peer = color;
  element.key = key;
  *newcomm = nullptr;
  ncclComm_t handle = nullptr;
  if (color != NCCL_SPLIT_NOCOLOR) {
    const Communicator* made = create(&handle, parent->device, -1, 0);
    if (made == nullptr) return ncclInternalError;
    element.made = made->id;
    *newcomm = handle;
  }
  const ncclResult_t result = submit(element, extra, handle);
  if (handle != nullptr && find(handle) == nullptr) *newcomm = nullptr;
  return result;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) { return end(comm, What::kFinalize); }

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  if (comm == nullptr) return ncclSuccess;
  const ncclResult_t result = end(comm, What::kDestroy);
  if (result != ncclInvalidArgument) destroy(comm);
  return result;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  if (comm == nullptr) return ncclSuccess;
  const Communicator* known = find(comm);
  const api::nccl::Door* way = door();
  if (known == nullptr || way == nullptr) return ncclInvalidArgument;
  const uint32_t result = way->abort(known->device, known->id);
  destroy(comm);
  return static_cast<ncclResult_t>(result);
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* asyncError) {
  const Communicator* known = find(comm);
  const api::nccl::Door* way = door();
  if (known == nullptr || asyncError == nullptr || way == nullptr) return ncclInvalidArgument;
  int32_t rank = 0, ranks = 0;
  *asyncError = static_cast<ncclResult_t>(way->state(known->device, known->id, &rank, &ranks));
  return ncclSuccess;
}

ncclResult_t ncclCommCount(ncclComm_t comm, int* count) {
  Communicator* known = find(comm);
  if (known == nullptr || count == nullptr) return ncclInvalidArgument;
  const ncclResult_t learned = learn(known);
  if (learned == ncclSuccess) *count = known->ranks;
  return learned;
}

ncclResult_t ncclCommCuDevice(ncclComm_t comm, int* device) {
  const Communicator* known = find(comm);
  if (known == nullptr || device == nullptr) return ncclInvalidArgument;
  *device = known->device;
  return ncclSuccess;
}

ncclResult_t ncclCommUserRank(ncclComm_t comm, int* rank) {
  Communicator* known = find(comm);
  if (known == nullptr || rank == nullptr) return ncclInvalidArgument;
  const ncclResult_t learned = learn(known);
  if (learned == ncclSuccess) *rank = known->rank;
  return learned;
}

// Registering speeds up what is then done from the buffer. NCCL works without it.
ncclResult_t ncclCommRegister(ncclComm_t comm, void* buff, size_t, void** handle) {
  if (find(comm) == nullptr || buff == nullptr || handle == nullptr) return ncclInvalidArgument;
  *handle = nullptr;
  return ncclSuccess;
}

ncclResult_t ncclCommDeregister(ncclComm_t comm, void* handle) {
  return find(comm) != nullptr && handle == nullptr ? ncclSuccess : ncclInvalidArgument;
}

}  // namespace tendril::client::nccl
