// SPDX-License-Identifier: Apache-2.0
// See communicator.h. Handles are numbers with a generation, so a stale one is seen and never
// followed.
#include "client/nccl/communicator.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include <atomic>

#include "api/cuda_abi.gen.h"
#include "api/nccl_messages.gen.h"
#include "base/lock.h"
#include "client/common/log.h"

namespace tendril::client::nccl {
namespace {

constexpr uint64_t kMark = 0x6e63ull << 48;  // no address looks like that
constexpr size_t kMost = 1u << 16;

struct Place {
  Communicator communicator;
  uint32_t generation = 0;
};

// Made at first use and never destroyed, because programs call from their exit handlers.
struct Records {
  base::Lock lock;
  std::vector<Place*> places;
  std::vector<uint32_t> free;
};
std::atomic<Records*> g_records{nullptr};
std::atomic<uint64_t> g_next_id{1};
constexpr int32_t kNoDevice = -1, kManyDevices = -2;
std::atomic<int32_t> g_device{kNoDevice};  // of all communicators so far
constinit thread_local Group* t_group = nullptr;
base::Lock g_text_lock;
char g_text[1024];

Records& records() {
  Records* made = g_records.load(std::memory_order_acquire);
  if (made != nullptr) return *made;
  Records* fresh = new Records;
  if (g_records.compare_exchange_strong(made, fresh)) return *fresh;
  delete fresh;
  return *made;
}

uint64_t value_of(ncclComm_t handle) { return reinterpret_cast<uint64_t>(handle); }

// lock held
Place* place_of(Records& all, ncclComm_t handle) {
  const uint64_t value = value_of(handle);
  const uint64_t index = value & (kMost - 1);
  if (value >> 48 != kMark >> 48 || index >= all.places.size()) return nullptr;
  Place* place = all.places[index];
  const bool same = (value >> 16 & 0xffffffffu) == place->generation;
  return same && place->communicator.id != 0 ? place : nullptr;
}

const api::nccl::Door* open_door() {
  // Whoever calls NCCL has a driver library open. It is not opened here: a program without GPUs
  // must not attach because of this.
  using GetTable = CUresult (*)(const void**, const CUuuid*);
  // structure: allow dlopen: finds our own library beside this one
  void* driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
  const auto get =
      driver != nullptr ? reinterpret_cast<GetTable>(dlsym(driver, "cuGetExportTable")) : nullptr;
  CUuuid id;
  memcpy(id.bytes, api::nccl::kDoorId, sizeof id.bytes);
  const void* table = nullptr;
  if (get == nullptr || get(&table, &id) != CUDA_SUCCESS || table == nullptr) {
    log_once(LogLevel::kError,
             "Tendril's libnccl.so.2 found another libcuda.so.1 than Tendril's; set "
             "TENDRIL_NCCL=program to use the program's own NCCL");
    return nullptr;
  }
  const auto* found = static_cast<const api::nccl::Door*>(table);
  if (found->bytes == sizeof *found && found->digest == wire::nccl::kSchemaDigest) return found;
  log_once(LogLevel::kError,
           "libnccl.so.2 and libcuda.so.1 are of different versions of Tendril; install both from "
           "one");
  return nullptr;
}

// Communicators of work that goes on, those that it makes included.
void note_in_progress(const std::vector<api::nccl::Element>& work) {
  Records& all = records();
  const base::Locked held(all.lock);
  for (const api::nccl::Element& element : work) {
    for (Place* place : all.places) {
      const uint64_t id = place->communicator.id;
      if (id == 0 || (id != element.communicator && id != element.made)) continue;
      place->communicator.in_progress.store(true);
      place->communicator.blocking.store(false);
    }
  }
}

ncclResult_t perform(const std::vector<api::nccl::Element>& work, const std::vector<uint8_t>& extra,
                     void* id) {
  const api::nccl::Door* way = door();
  if (way == nullptr) return ncclSystemError;
  char text[1024] = {};
  const auto result = static_cast<ncclResult_t>(
      way->run(work.data(), work.size(), extra.data(), extra.size(), id, text, sizeof text));
  if (text[0] != 0) remember(text);
  if (result == ncclInProgress) note_in_progress(work);
  return result;
}

// Ahead if NCCL will not wait. Otherwise it has come to know all this afterwards.
ncclResult_t perform_collectives(const std::vector<api::nccl::Element>& work,
                                 const std::vector<Group::Use>& uses) {
  bool ahead = has_one_device();
  for (const Group::Use& use : uses)
    ahead = ahead && use.communicator->blocking.load() && use.communicator->familiar.has(use.key);
  const api::nccl::Door* way = door();
  if (ahead && way != nullptr && way->run_ahead(work.data(), work.size())) return ncclSuccess;
  const ncclResult_t result = perform(work, {}, nullptr);
  for (const Group::Use& use : uses)
    if (result == ncclSuccess) use.communicator->familiar.add(use.key);
  return result;
}

bool is_failure(ncclResult_t result) { return result != ncclSuccess && result != ncclInProgress; }

}  // namespace

Communicator* find(ncclComm_t handle) {
  Records& all = records();
  const base::Locked held(all.lock);
  Place* place = place_of(all, handle);
  return place != nullptr ? &place->communicator : nullptr;
}

Communicator* create(ncclComm_t* made, int32_t device, int rank, int ranks) {
  Records& all = records();
  const base::Locked held(all.lock);
  uint32_t index = 0;
  if (!all.free.empty()) {
    index = all.free.back();
    all.free.pop_back();
  } else {
    if (all.places.size() == kMost) return nullptr;
    index = static_cast<uint32_t>(all.places.size());
    all.places.push_back(new Place);
  }
  Place* place = all.places[index];
  ++place->generation;
  place->communicator.id = g_next_id.fetch_add(1);
  place->communicator.device = device;
  place->communicator.rank = rank;
  place->communicator.ranks = ranks;
  place->communicator.operations.clear();
  place->communicator.in_progress.store(false);
  place->communicator.blocking.store(true);
  place->communicator.familiar.clear();
  int32_t none = kNoDevice;
  if (!g_device.compare_exchange_strong(none, device) && none != device)
    g_device.store(kManyDevices);
  *made = reinterpret_cast<ncclComm_t>(kMark | uint64_t{place->generation} << 16 | index);
  return &place->communicator;
}

void destroy(ncclComm_t handle) {
  Records& all = records();
  const base::Locked held(all.lock);
  Place* place = place_of(all, handle);
  if (place == nullptr) return;
  place->communicator.id = 0;
  all.free.push_back(static_cast<uint32_t>(value_of(handle) & (kMost - 1)));
}

bool has_one_device() { return g_device.load() >= 0; }

uint32_t Familiar::key_of(const api::nccl::Element& element, uint64_t bytes) {
  uint32_t power = 0;
  while (bytes >> power > 1) ++power;
  const uint32_t all = (static_cast<uint32_t>(element.what) << 6 | power) +
                       static_cast<uint32_t>(element.peer) * 1223;  // a prime: peers lie apart
  return all % kKeys;
}

const api::nccl::Door* door() {
  static std::atomic<const api::nccl::Door*> found{nullptr};
  const api::nccl::Door* way = found.load(std::memory_order_acquire);
  if (way != nullptr) return way;
  way = open_door();
  found.store(way, std::memory_order_release);
  return way;
}

Group* open_group() { return t_group; }

void start_group() {
  if (t_group == nullptr) t_group = new Group;
  ++t_group->depth;
}

ncclResult_t end_group() {
  if (t_group == nullptr) return ncclInvalidUsage;
  if (--t_group->depth != 0) return ncclSuccess;
  Group* group = t_group;
  t_group = nullptr;
  ncclResult_t result = group->failed;
  if (!is_failure(result) && !group->work.empty()) {
    result = group->only_collectives ? perform_collectives(group->work, group->uses)
                                     : perform(group->work, group->extra, nullptr);
  }
  if (is_failure(result)) {
    for (ncclComm_t made : group->made) destroy(made);
  }
  delete group;
  return result;
}

ncclResult_t submit(api::nccl::Element element, const std::vector<uint8_t>& extra,
                    ncclComm_t made) {
  Group* group = t_group;
  if (group == nullptr) {
    const ncclResult_t result = perform({element}, extra, nullptr);
    if (is_failure(result) && made != nullptr) destroy(made);
    return result;
  }
  const auto base = static_cast<uint32_t>(group->extra.size());
  element.ids_at += base;
  element.config_at += base;
  if (group->work.size() == api::nccl::kElementsMax ||
      base + extra.size() > api::nccl::kExtraBytesMax)
    return group->failed = ncclInvalidUsage;
  group->extra.insert(group->extra.end(), extra.begin(), extra.end());
  group->work.push_back(element);
  group->only_collectives = false;
  if (made != nullptr) group->made.push_back(made);
  return ncclSuccess;
}

ncclResult_t submit_collective(const api::nccl::Element& element, Communicator* communicator,
                               uint64_t bytes) {
  const Group::Use use = {communicator, Familiar::key_of(element, bytes)};
  Group* group = t_group;
  if (group == nullptr) return perform_collectives({element}, {use});
  if (group->work.size() == api::nccl::kElementsMax) return group->failed = ncclInvalidUsage;
  group->work.push_back(element);
  group->uses.push_back(use);
  return ncclSuccess;
}

ncclResult_t do_now(const api::nccl::Element& element) { return perform({element}, {}, nullptr); }

ncclResult_t ask_unique_id(int32_t device, void* id) {
  api::nccl::Element element;
  element.what = api::nccl::What::kUniqueId;
  element.device = device;
  return perform({element}, {}, id);
}

void remember(const char* text) {
  const base::Locked held(g_text_lock);
  snprintf(g_text, sizeof g_text, "%s", text);
}
const char* last_error() { return g_text; }

}  // namespace tendril::client::nccl
