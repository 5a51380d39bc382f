// SPDX-License-Identifier: Apache-2.0
// The bodies of api/nccl/communicators.spec.
#include <string.h>

#include <atomic>

#include "client/nccl/communicator.h"
#include "client/nccl/configuration.h"
#include "client/nccl/entry.h"

namespace tendril::client::nccl {
namespace {

using api::nccl::Element;
using api::nccl::What;

constexpr int kRanksLeftOutMax = 1 << 16;
std::atomic<uint64_t> g_next_registration{1};

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
  const ncclResult_t added = add_configuration(config, &element, &extra);
  if (added != ncclSuccess) return added;
  Communicator* made = create(comm, device, rank, ranks);
  if (made == nullptr) return ncclInternalError;
  if (config != nullptr && config->blocking == 0) made->blocking.store(false);
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

// A communicator of some of a parent's ranks. `is_member`: this rank is one of them.
ncclResult_t part(const Communicator& parent, bool is_member, Element element,
                  std::vector<uint8_t> extra, ncclComm_t* made_here, const ncclConfig_t* config) {
  const ncclResult_t added = add_configuration(config, &element, &extra);
  if (added != ncclSuccess) return added;
  element.communicator = parent.id;
  element.device = parent.device;
  *made_here = nullptr;
  ncclComm_t handle = nullptr;
  if (is_member) {
    Communicator* made = create(&handle, parent.device, -1, 0);
    if (made == nullptr) return ncclInternalError;
    made->blocking.store(parent.blocking.load() && (config == nullptr || config->blocking != 0));
    element.made = made->id;
    *made_here = handle;
  }
  const ncclResult_t result = submit(element, extra, handle);
  if (handle != nullptr && find(handle) == nullptr) *made_here = nullptr;
  return result;
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
  element.what = What::kSplit;
  element.peer = color;
  element.key = key;
  return part(*parent, color != NCCL_SPLIT_NOCOLOR, element, {}, newcomm, config);
}

ncclResult_t ncclCommShrink(ncclComm_t comm, int* excludeRanksList, int excludeRanksCount,
                            ncclComm_t* newcomm, ncclConfig_t* config, int shrinkFlags) {
  const Communicator* parent = find(comm);
  if (parent == nullptr || newcomm == nullptr || excludeRanksList == nullptr ||
      excludeRanksCount < 1 || excludeRanksCount > kRanksLeftOutMax)
    return ncclInvalidArgument;
  Element element;
  element.what = What::kShrink;
  element.key = shrinkFlags;
  element.ids = static_cast<uint32_t>(excludeRanksCount);
  std::vector<uint8_t> extra(sizeof(int) * static_cast<size_t>(excludeRanksCount));
  memcpy(extra.data(), excludeRanksList, extra.size());
  return part(*parent, true, element, std::move(extra), newcomm, config);
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
  Communicator* known = find(comm);
  const api::nccl::Door* way = door();
  if (known == nullptr || asyncError == nullptr || way == nullptr) return ncclInvalidArgument;
  uint32_t state = way->failure(known->device, known->id);
  if (state == ncclSuccess && known->in_progress.load()) {
    int32_t rank = 0, ranks = 0;
    state = way->state(known->device, known->id, &rank, &ranks);
    if (state != ncclInProgress) known->in_progress.store(false);
  }
  *asyncError = static_cast<ncclResult_t>(state);
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

// NCCL does both at once, also between the start and the end of a group.
ncclResult_t ncclCommRegister(ncclComm_t comm, void* buff, size_t size, void** handle) {
  const Communicator* known = find(comm);
  if (known == nullptr || buff == nullptr || size == 0 || handle == nullptr)
    return ncclInvalidArgument;
  Element element;
  element.what = What::kRegister;
  element.communicator = known->id;
  element.device = known->device;
  element.send = reinterpret_cast<uint64_t>(buff);
  element.count = size;
  element.made = g_next_registration.fetch_add(1);
  const ncclResult_t result = do_now(element);
  *handle = result == ncclSuccess ? reinterpret_cast<void*>(element.made) : nullptr;
  return result;
}

ncclResult_t ncclCommDeregister(ncclComm_t comm, void* handle) {
  const Communicator* known = find(comm);
  if (known == nullptr) return ncclInvalidArgument;
  Element element;
  element.what = What::kDeregister;
  element.communicator = known->id;
  element.device = known->device;
  element.made = reinterpret_cast<uint64_t>(handle);
  return do_now(element);
}

}  // namespace tendril::client::nccl
