// SPDX-License-Identifier: Apache-2.0
// Calls that make, ask and end communicators. See bodies.h.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>

#include "softnccl/bodies.h"
#include "softnccl/driver.h"
#include "softnccl/error.h"
#include "softnccl/group.h"
#include "softnccl/knobs.h"

namespace tendril::softnccl {
namespace {

// What a rank tells its parent's others when they split.
struct Wish {
  int32_t color;
  int32_t key;
  Member self;
};

// There is one network.
ncclResult_t blocking_of(const ncclConfig_t* config, bool otherwise, bool* blocking) {
  *blocking = otherwise;
  if (config == nullptr) return ncclSuccess;
  if (config->magic != kConfigMagic)
    return error(ncclInvalidArgument, "an ncclConfig_t without its magic number");
  // Nothing after the first member is needed, so any size that has it will do.
  if (config->size < offsetof(ncclConfig_t, blocking) + sizeof(int))
    return error(ncclInvalidArgument,
                 "an ncclConfig_t of " + std::to_string(config->size) + " bytes");
  const bool names = config->size >= offsetof(ncclConfig_t, netName) + sizeof config->netName;
  if (names && config->netName != nullptr && std::strcmp(config->netName, "Socket") != 0)
    return error(ncclInvalidUsage, std::string("there is no network ") + config->netName);
  if (config->blocking == kUndefined) return ncclSuccess;
  if (config->blocking != 0 && config->blocking != 1)
    return error(ncclInvalidArgument,
                 "blocking is " + std::to_string(config->blocking) + ", which is neither 0 nor 1");
  *blocking = config->blocking == 1;
  return ncclSuccess;
}

ncclResult_t known(ncclComm_t handle, CommunicatorPtr* communicator) {
  *communicator = find(handle);
  return *communicator ? ncclSuccess : error(ncclInvalidArgument, "there is no such communicator");
}

ncclResult_t usable(ncclComm_t handle, CommunicatorPtr* communicator) {
  if (ncclResult_t bad = known(handle, communicator)) return bad;
  return (*communicator)->ready();
}

ncclResult_t make_rank(ncclComm_t* handle, int ranks, std::vector<ncclUniqueId> ids, int rank,
                       Place place, bool blocking) {
  auto made = std::make_shared<Communicator>(place, rank, ranks, blocking);
  *handle = publish(made);
  auto work = [made, rank, ids = std::move(ids)] {
    if (ncclResult_t bad = made->prepare()) return bad;
    for (size_t i = 1; rank == 0 && i < ids.size(); i++) dismiss(ids[i], made->stop());
    return made->meet(ids[0]);
  };
  group_make({made, nullptr, handle, std::move(work)});
  return ncclSuccess;
}

ncclResult_t init(ncclComm_t* handle, int ranks, int rank, int id_count, const ncclUniqueId* ids,
                  const ncclConfig_t* config) {
  let_go();
  if (handle == nullptr || ids == nullptr || id_count < 1 || id_count > ranks || ranks < 1 ||
      ranks > kRanksMax || rank < 0 || rank >= ranks)
    return error(ncclInvalidArgument, "rank " + std::to_string(rank) + " of " +
                                          std::to_string(ranks) + " with " +
                                          std::to_string(id_count) + " ids is no communicator");
  *handle = nullptr;
  bool blocking = true;
  Place place;
  const char* algorithm = std::getenv("NCCL_ALGO");
  if (algorithm != nullptr && std::strcmp(algorithm, "ring") != 0)
    return error(ncclInvalidUsage, std::string("NCCL_ALGO names no algorithm: ") + algorithm);
  if (ncclResult_t bad = blocking_of(config, true, &blocking)) return bad;
  if (ncclResult_t bad = current_place(&place)) return bad;
  group_start();
  make_rank(handle, ranks, {ids, ids + id_count}, rank, place, blocking);
  return group_end();
}

// All of `ranks` of a parent tell each other what they want.
ncclResult_t ask_all(Communicator* parent, const std::vector<int>& ranks, const Wish& own,
                     std::vector<Wish>* wishes) {
  if (ncclResult_t bad = parent->mesh().connect(Purpose::kControl, ranks, parent->stop()))
    return bad;
  wishes->assign(static_cast<size_t>(parent->ranks()), Wish{kNoColor, 0, {}});
  (*wishes)[static_cast<size_t>(parent->rank())] = own;
  Wish mine = own;
  std::vector<Piece> sends, receives;
  for (int peer : ranks) {
    if (peer == parent->rank()) continue;
    auto& wish = (*wishes)[static_cast<size_t>(peer)];
    sends.push_back({peer, reinterpret_cast<char*>(&mine), sizeof mine, 0});
    receives.push_back({peer, reinterpret_cast<char*>(&wish), sizeof wish, 0});
  }
  return parent->mesh().exchange(Purpose::kControl, sends, receives, parent->stop());
}

// The ranks of one color in the order of their keys, then of their old ranks.
std::vector<int> of_color(const std::vector<Wish>& wishes, int color) {
  std::vector<int> ranks;
  for (size_t rank = 0; rank < wishes.size(); rank++)
    if (wishes[rank].color == color) ranks.push_back(static_cast<int>(rank));
  std::stable_sort(ranks.begin(), ranks.end(), [&](int a, int b) {
    return wishes[static_cast<size_t>(a)].key < wishes[static_cast<size_t>(b)].key;
  });
  return ranks;
}

// A communicator of those `ranks` of a parent that have one color. How many they are is known only
// when all have told their colors.
ncclResult_t part(const CommunicatorPtr& parent, std::vector<int> ranks, int color, int key,
                  ncclComm_t* handle, const ncclConfig_t* config) {
  *handle = nullptr;
  bool blocking = true;
  if (ncclResult_t bad = blocking_of(config, parent->blocking(), &blocking)) return bad;
  Place place = parent->place();
  if (place.retained)
    if (ncclResult_t bad = primary_place(place.device, &place)) return bad;
  CommunicatorPtr made;
  if (color != kNoColor) {
    made = std::make_shared<Communicator>(place, 0, parent->ranks(), blocking);
    *handle = publish(made);
  } else if (place.retained) {
    driver()->primary_release(place.device);
  }
  auto work = [parent, made, ranks = std::move(ranks), color, key]() -> ncclResult_t {
    Wish own = {color, key, {}};
    if (made) {
      if (ncclResult_t bad = made->prepare()) return bad;
      own.self = made->mesh().self();
    }
    std::vector<Wish> wishes;
    if (ncclResult_t bad = ask_all(parent.get(), ranks, own, &wishes)) return bad;
    if (!made) return ncclSuccess;
    const std::vector<int> mine = of_color(wishes, color);
    std::vector<Member> members;
    for (int rank : mine) members.push_back(wishes[static_cast<size_t>(rank)].self);
    const auto at = std::find(mine.begin(), mine.end(), parent->rank());
    return made->settle(static_cast<int>(at - mine.begin()), std::move(members));
  };
  group_start();
  group_make({made, parent, handle, std::move(work)});
  return group_end();
}

// Waits for the end of everything and frees.
ncclResult_t end(ncclComm_t handle, const CommunicatorPtr& communicator, bool abort) {
  const ncclResult_t state = communicator->state();
  const bool failed = state != ncclSuccess && state != ncclInProgress;
  if (!withdraw(handle)) return error(ncclInvalidArgument, "there is no such communicator");
  if (abort || failed) {
    communicator->abort();
  } else {
    communicator->join_background();
    communicator->finish();
  }
  let_go();
  return ncclSuccess;
}

}  // namespace

ncclResult_t soft_nccl_GetVersion(int* version) {
  if (version == nullptr) return error(ncclInvalidArgument, "no place for the version");
  *version = knobs().version;
  return ncclSuccess;
}

ncclResult_t soft_nccl_GetUniqueId(ncclUniqueId* id) {
  if (id == nullptr) return error(ncclInvalidArgument, "no place for the unique id");
  return make_unique_id(id);
}

ncclResult_t soft_nccl_CommInitRank(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank) {
  return init(comm, ranks, rank, 1, &id, nullptr);
}

ncclResult_t soft_nccl_CommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank,
                                          ncclConfig_t* config) {
  return init(comm, ranks, rank, 1, &id, config);
}

ncclResult_t soft_nccl_CommInitRankScalable(ncclComm_t* comm, int ranks, int rank, int id_count,
                                            ncclUniqueId* ids, ncclConfig_t* config) {
  return init(comm, ranks, rank, id_count, ids, config);
}

ncclResult_t soft_nccl_CommInitAll(ncclComm_t* comms, int count, const int* devices) {
  let_go();
  int there = 0;
  if (ncclResult_t bad = driver_error(driver()->device_count(&there), "cuDeviceGetCount"))
    return bad;
  if (comms == nullptr || count < 1 || count > kRanksMax || (devices == nullptr && count > there))
    return error(ncclInvalidArgument,
                 std::to_string(count) + " communicators on " + std::to_string(there) + " devices");
  for (int i = 0; devices != nullptr && i < count; i++) {
    if (devices[i] < 0 || devices[i] >= there)
      return error(ncclInvalidArgument, "there is no device " + std::to_string(devices[i]));
    if (std::find(devices, devices + i, devices[i]) != devices + i)
      return error(ncclInvalidUsage, "device " + std::to_string(devices[i]) + " is named twice");
  }
  ncclUniqueId id;
  if (ncclResult_t bad = make_unique_id(&id)) return bad;
  group_start();
  for (int i = 0; i < count; i++) {
    Place place;
    comms[i] = nullptr;
    if (ncclResult_t bad = primary_place(devices != nullptr ? devices[i] : i, &place))
      group_fail(bad);
    else
      make_rank(&comms[i], count, {id}, i, place, true);
  }
  return group_end();
}

ncclResult_t soft_nccl_CommSplit(ncclComm_t comm, int color, int key, ncclComm_t* made,
                                 ncclConfig_t* config) {
  CommunicatorPtr parent;
  if (ncclResult_t bad = usable(comm, &parent)) return bad;
  if (made == nullptr || color < kNoColor)
    return error(ncclInvalidArgument, "color " + std::to_string(color) + " is none");
  std::vector<int> all;
  for (int rank = 0; rank < parent->ranks(); rank++) all.push_back(rank);
  return part(parent, std::move(all), color, key, made, config);
}

ncclResult_t soft_nccl_CommShrink(ncclComm_t comm, int* excluded, int count, ncclComm_t* made,
                                  ncclConfig_t* config, int) {
  CommunicatorPtr parent;
  // The parent may have failed: those who are excluded may be the reason.
  if (ncclResult_t bad = known(comm, &parent)) return bad;
  if (made == nullptr || excluded == nullptr || count < 1)
    return error(ncclInvalidArgument, "ncclCommShrink without ranks to exclude");
  std::vector<int> rest;
  for (int rank = 0; rank < parent->ranks(); rank++)
    if (std::find(excluded, excluded + count, rank) == excluded + count) rest.push_back(rank);
  if (std::find(rest.begin(), rest.end(), parent->rank()) == rest.end())
    return error(ncclInvalidArgument, "an excluded rank must not call ncclCommShrink");
  return part(parent, std::move(rest), 0, 0, made, config);
}

ncclResult_t soft_nccl_CommFinalize(ncclComm_t comm) {
  CommunicatorPtr communicator;
  if (ncclResult_t bad = usable(comm, &communicator)) return bad;
  communicator->set_finalized();
  if (communicator->blocking()) {
    communicator->finish();
    return communicator->state();
  }
  communicator->set_state(ncclInProgress);
  communicator->in_background([communicator] {
    communicator->finish();
    communicator->set_state(ncclSuccess);
  });
  return ncclInProgress;
}

ncclResult_t soft_nccl_CommDestroy(ncclComm_t comm) {
  CommunicatorPtr communicator;
  if (comm == nullptr) return ncclSuccess;
  if (ncclResult_t bad = known(comm, &communicator)) return bad;
  return end(comm, communicator, false);
}

ncclResult_t soft_nccl_CommAbort(ncclComm_t comm) {
  CommunicatorPtr communicator;
  if (comm == nullptr) return ncclSuccess;
  if (ncclResult_t bad = known(comm, &communicator)) return bad;
  return end(comm, communicator, true);
}

ncclResult_t soft_nccl_CommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  CommunicatorPtr communicator;
  if (ncclResult_t bad = known(comm, &communicator)) return bad;
  if (state == nullptr) return error(ncclInvalidArgument, "no place for the state");
  *state = communicator->state();
  return ncclSuccess;
}

ncclResult_t soft_nccl_CommCount(ncclComm_t comm, int* count) {
  CommunicatorPtr communicator;
  if (ncclResult_t bad = usable(comm, &communicator)) return bad;
  if (count == nullptr) return error(ncclInvalidArgument, "no place for the count");
  *count = communicator->ranks();
  return ncclSuccess;
}

ncclResult_t soft_nccl_CommCuDevice(ncclComm_t comm, int* device) {
  CommunicatorPtr communicator;
  if (ncclResult_t bad = usable(comm, &communicator)) return bad;
  if (device == nullptr) return error(ncclInvalidArgument, "no place for the device");
  *device = communicator->place().device;
  return ncclSuccess;
}

ncclResult_t soft_nccl_CommUserRank(ncclComm_t comm, int* rank) {
  CommunicatorPtr communicator;
  if (ncclResult_t bad = usable(comm, &communicator)) return bad;
  if (rank == nullptr) return error(ncclInvalidArgument, "no place for the rank");
  *rank = communicator->rank();
  return ncclSuccess;
}

}  // namespace tendril::softnccl
