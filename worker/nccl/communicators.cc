// SPDX-License-Identifier: Apache-2.0
// See communicators.h.
#include "worker/nccl/communicators.h"

#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

namespace tendril::worker::nccl {
namespace {

using api::nccl::Element;
using api::nccl::What;

constexpr size_t kCallersMax = 256, kCommunicatorsMax = 4096, kRegistrationsMax = 65536;
constexpr std::chrono::seconds kIdle{10};  // a thread whose caller is silent for so long ends
// How often communicators are looked at. NCCL is asked for a word that it keeps.
constexpr std::chrono::milliseconds kLookEvery{100};

// A collective with what belongs to this process.
struct Collective {
  const Element& element;
  CUstream stream;
  ncclComm_t comm;
  ncclRedOp_t operation;
};

// A function that the library lacks is refused. So is a configuration where it knows none.
ncclResult_t enqueue(const gpu::Nccl& l, const Collective& c, const ncclCollConfig_t* config) {
  const Element& e = c.element;
  const auto type = static_cast<ncclDataType_t>(e.type);
  const void* send = reinterpret_cast<const void*>(e.send);
  void* receive = reinterpret_cast<void*>(e.receive);
  const auto call = [&](auto* plain, auto* configured, auto... arguments) {
    if (config != nullptr)
      return configured != nullptr ? configured(arguments..., c.comm, c.stream, config)
                                   : ncclInvalidUsage;
    return plain != nullptr ? plain(arguments..., c.comm, c.stream) : ncclInvalidUsage;
  };
  const auto between_two = [&](auto* function, auto... arguments) {
    return function != nullptr ? function(arguments..., e.count, type, e.peer, c.comm, c.stream)
                               : ncclInvalidUsage;
  };
  switch (e.what) {
    case What::kAllReduce:
      return call(l.ncclAllReduce, l.ncclAllReduceConfig, send, receive, e.count, type,
                  c.operation);
    case What::kBroadcast:
      return call(l.ncclBroadcast, l.ncclBroadcastConfig, send, receive, e.count, type, e.peer);
    case What::kReduce:
      return call(l.ncclReduce, l.ncclReduceConfig, send, receive, e.count, type, c.operation,
                  e.peer);
    case What::kAllGather:
      return call(l.ncclAllGather, l.ncclAllGatherConfig, send, receive, e.count, type);
    case What::kReduceScatter:
      return call(l.ncclReduceScatter, l.ncclReduceScatterConfig, send, receive, e.count, type,
                  c.operation);
    case What::kAllToAll:
      return call(l.ncclAlltoAll, l.ncclAlltoAllConfig, send, receive, e.count, type);
    case What::kGather:
      return call(l.ncclGather, l.ncclGatherConfig, send, receive, e.count, type, e.peer);
    case What::kScatter:
      return call(l.ncclScatter, l.ncclScatterConfig, send, receive, e.count, type, e.peer);
    case What::kSend:
      return between_two(l.ncclSend, send);
    case What::kReceive:
      return between_two(l.ncclRecv, receive);
    default:
      return ncclInvalidArgument;
  }
}

}  // namespace

// What one group makes, until it has ended.
struct Communicators::Group {
  std::vector<uint64_t> made;  // communicators
  std::vector<std::pair<ncclRedOp_t, ncclComm_t>> operations;
  std::vector<std::unique_ptr<Configuration>> configurations;

  Configuration* read(const Element& element, const std::string& extra) {
    configurations.push_back(std::make_unique<Configuration>());
    read_configuration(element, extra, configurations.back().get());
    return configurations.back().get();
  }
};

Communicators::Communicators(std::unique_ptr<gpu::Nccl> library, const gpu::Driver* driver,
                             Tell tell)
    : library_(std::move(library)), driver_(driver), tell_(std::move(tell)) {}

Communicators::~Communicators() {
  Hold hold(mutex_);
  ending_ = true;
  for (const auto& [number, caller] : callers_) caller->woken.notify_all();
  ended_.notify_all();  // the watcher
  ended_.wait(hold, [this] { return threads_ == 0; });
}

bool Communicators::run(uint64_t caller, std::vector<Work> work, std::string extra,
                        std::function<void(const Answer&)> done) {
  const Hold hold(mutex_);
  if (callers_.count(caller) == 0 && callers_.size() >= kCallersMax && !dismiss_idle_caller())
    return false;
  std::shared_ptr<Caller>& place = callers_[caller];
  if (place == nullptr) {
    place = std::make_shared<Caller>();
    ++threads_;
    std::thread([this, caller, place] { serve(caller, place); }).detach();
  }
  place->jobs.push_back({std::move(work), std::move(extra), std::move(done)});
  place->woken.notify_one();
  return true;
}

ncclResult_t Communicators::run_here(std::vector<Work> work) {
  return perform({std::move(work), {}, {}}).result;
}

// With the lock held. A program may make many threads one after another. False: all have work.
bool Communicators::dismiss_idle_caller() {
  for (auto at = callers_.begin(); at != callers_.end(); ++at) {
    Caller& caller = *at->second;
    if (caller.busy || !caller.jobs.empty()) continue;
    caller.dismissed = true;
    caller.woken.notify_one();
    callers_.erase(at);
    return true;
  }
  return false;
}

void Communicators::serve(uint64_t number, const std::shared_ptr<Caller>& caller) {
  Hold hold(mutex_);
  for (;;) {
    caller->woken.wait_for(hold, kIdle,
                           [&] { return !caller->jobs.empty() || caller->dismissed || ending_; });
    if (caller->jobs.empty()) break;
    const Job job = std::move(caller->jobs.front());
    caller->jobs.erase(caller->jobs.begin());
    caller->busy = true;
    hold.unlock();
    job.done(perform(job));
    hold.lock();
    caller->busy = false;
  }
  if (!caller->dismissed) callers_.erase(number);
  --threads_;
  ended_.notify_all();
}

Answer Communicators::perform(const Job& job) {
  Answer answer;
  Group group;
  const bool together = job.work.size() > 1;
  if (together) answer.result = library_->ncclGroupStart();
  for (const Work& work : job.work) {
    const ncclResult_t result = give(work, job.extra, &group, &answer);
    const bool failed = result != ncclSuccess && result != ncclInProgress;
    if (failed || answer.result == ncclSuccess) answer.result = result;
    if (failed) break;
  }
  if (together) {
    const ncclResult_t ended = library_->ncclGroupEnd();
    if (answer.result == ncclSuccess || answer.result == ncclInProgress) answer.result = ended;
  }
  for (const auto& [operation, comm] : group.operations)
    library_->ncclRedOpDestroy(operation, comm);
  if (answer.result == ncclSuccess || answer.result == ncclInProgress) {
    begun(group.made);
    return answer;
  }
  for (const uint64_t id : group.made) forget(id);
  for (const Work& work : job.work) {
    const auto known = find(work.element.communicator);
    if (known != nullptr) ask(work.element.communicator, known.get(), ncclSuccess);
  }
  const char* text =
      library_->ncclGetLastError != nullptr ? library_->ncclGetLastError(nullptr) : nullptr;
  if (text != nullptr) answer.text.assign(text, strnlen(text, 1024));
  return answer;
}

ncclResult_t Communicators::give(const Work& work, const std::string& extra, Group* group,
                                 Answer* answer) {
  const Element& element = work.element;
  if (element.what == What::kUniqueId) {
    driver_->cuCtxSetCurrent(work.context);
    ncclUniqueId id = {};
    const ncclResult_t result = library_->ncclGetUniqueId(&id);
    if (result == ncclSuccess) answer->extra.assign(id.internal, sizeof id.internal);
    return result;
  }
  if (element.what == What::kInit) return begin(work, extra, group);
  const std::shared_ptr<Communicator> found = find(element.communicator);
  ncclComm_t comm = found != nullptr ? __atomic_load_n(&found->comm, __ATOMIC_ACQUIRE) : nullptr;
  if (comm == nullptr) return ncclInvalidArgument;
  driver_->cuCtxSetCurrent(found->context);
  switch (element.what) {
    case What::kSplit:
      return split(work, extra, comm, group);
    case What::kShrink:
      return shrink(work, extra, comm, group);
    case What::kRegister:
      return enlist(work, found.get(), comm);
    case What::kDeregister:
      return delist(work, found.get(), comm);
    case What::kFinalize:
    case What::kDestroy:
      return end(work, found.get(), comm);
    default:
      return collective(work, extra, comm, group);
  }
}

ncclResult_t Communicators::begin(const Work& work, const std::string& extra, Group* group) {
  const Element& element = work.element;
  const std::shared_ptr<Communicator> made = add(element.communicator, work.context);
  if (made == nullptr) return ncclInvalidArgument;
  group->made.push_back(element.communicator);
  driver_->cuCtxSetCurrent(work.context);
  Configuration* configuration = group->read(element, extra);
  std::vector<ncclUniqueId> ids = ids_of(element, extra);
  const int ranks = static_cast<int>(element.count);
  if (element.ids == 1) {
    return library_->ncclCommInitRankConfig(&made->comm, ranks, ids[0], element.peer,
                                            configuration->of_communicator());
  }
  if (library_->ncclCommInitRankScalable == nullptr) return ncclInvalidUsage;
  return library_->ncclCommInitRankScalable(&made->comm, ranks, element.peer,
                                            static_cast<int>(ids.size()), ids.data(),
                                            configuration->of_communicator());
}

ncclResult_t Communicators::split(const Work& work, const std::string& extra, ncclComm_t parent,
                                  Group* group) {
  const Element& element = work.element;
  if (library_->ncclCommSplit == nullptr) return ncclInvalidUsage;
  Configuration* configuration = group->read(element, extra);
  ncclComm_t nothing = nullptr;
  std::shared_ptr<Communicator> made;
  if (element.peer != NCCL_SPLIT_NOCOLOR) {
    const std::shared_ptr<Communicator> from = find(element.communicator);
    made = add(element.made, from != nullptr ? from->context : nullptr);
    if (made == nullptr) return ncclInvalidArgument;
    group->made.push_back(element.made);
  }
  return library_->ncclCommSplit(parent, element.peer, element.key,
                                 made != nullptr ? &made->comm : &nothing,
                                 configuration->of_communicator());
}

ncclResult_t Communicators::shrink(const Work& work, const std::string& extra, ncclComm_t parent,
                                   Group* group) {
  const Element& element = work.element;
  if (library_->ncclCommShrink == nullptr) return ncclInvalidUsage;
  Configuration* configuration = group->read(element, extra);
  const std::shared_ptr<Communicator> from = find(element.communicator);
  const std::shared_ptr<Communicator> made =
      add(element.made, from != nullptr ? from->context : nullptr);
  if (made == nullptr) return ncclInvalidArgument;
  group->made.push_back(element.made);
  std::vector<int> left_out = ranks_of(element, extra);
  return library_->ncclCommShrink(parent, left_out.data(), static_cast<int>(left_out.size()),
                                  &made->comm, configuration->of_communicator(), element.key);
}

// NCCL makes buffers reachable for other ranks, so only memory of the GPU can be one.
ncclResult_t Communicators::enlist(const Work& work, Communicator* communicator, ncclComm_t comm) {
  const Element& element = work.element;
  CUdeviceptr begin = 0;
  size_t bytes = 0;
  if (library_->ncclCommRegister == nullptr) return ncclInvalidUsage;
  if (driver_->cuMemGetAddressRange_v2(&begin, &bytes, element.send) != CUDA_SUCCESS ||
      element.count > bytes - (element.send - begin))
    return ncclInvalidArgument;
  {
    const Hold hold(mutex_);
    if (communicator->registrations.size() >= kRegistrationsMax ||
        communicator->registrations.count(element.made) != 0)
      return ncclInvalidUsage;
  }
  void* handle = nullptr;
  const ncclResult_t result = library_->ncclCommRegister(
      comm, reinterpret_cast<void*>(element.send), element.count, &handle);
  const Hold hold(mutex_);
  if (result == ncclSuccess) communicator->registrations[element.made] = handle;
  return result;
}

ncclResult_t Communicators::delist(const Work& work, Communicator* communicator, ncclComm_t comm) {
  if (library_->ncclCommDeregister == nullptr) return ncclInvalidUsage;
  void* handle = nullptr;
  {
    const Hold hold(mutex_);
    const auto found = communicator->registrations.find(work.element.made);
    if (found == communicator->registrations.end()) return ncclInvalidArgument;
    handle = found->second;
    communicator->registrations.erase(found);
  }
  return library_->ncclCommDeregister(comm, handle);
}

ncclResult_t Communicators::end(const Work& work, Communicator* communicator, ncclComm_t comm) {
  if (work.element.what == What::kFinalize) {
    return library_->ncclCommFinalize != nullptr ? library_->ncclCommFinalize(comm)
                                                 : ncclInvalidUsage;
  }
  if (!about_to_end(communicator)) return ncclInvalidArgument;
  const ncclResult_t result = library_->ncclCommDestroy(comm);
  forget(work.element.communicator);
  return result;
}

ncclResult_t Communicators::collective(const Work& work, const std::string& extra, ncclComm_t comm,
                                       Group* group) {
  const Element& e = work.element;
  auto operation = static_cast<ncclRedOp_t>(e.operation);
  if (reduces(e.what) && e.operation == api::nccl::kPreMulSum) {
    uint64_t scalar = e.scalar;
    void* at = e.scalar_on_device != 0 ? reinterpret_cast<void*>(scalar) : &scalar;
    const auto where = e.scalar_on_device != 0 ? ncclScalarDevice : ncclScalarHostImmediate;
    if (library_->ncclRedOpCreatePreMulSum == nullptr) return ncclInvalidUsage;
    const ncclResult_t made = library_->ncclRedOpCreatePreMulSum(
        &operation, at, static_cast<ncclDataType_t>(e.type), where, comm);
    if (made != ncclSuccess) return made;
    group->operations.emplace_back(operation, comm);
  }
  return enqueue(*library_, {e, work.stream, comm, operation},
                 e.config_bytes != 0 ? group->read(e, extra)->of_collective() : nullptr);
}

ncclResult_t Communicators::state(uint64_t communicator, int* rank, int* ranks) {
  const std::shared_ptr<Communicator> found = find(communicator);
  if (found == nullptr) return ncclInvalidArgument;
  const ncclResult_t state = ask(communicator, found.get(), ncclInProgress);
  if (state != ncclSuccess) return state;
  const std::lock_guard<std::mutex> hold(found->asking);
  if (found->ended) return ncclSuccess;
  if (library_->ncclCommUserRank != nullptr) library_->ncclCommUserRank(found->comm, rank);
  if (library_->ncclCommCount != nullptr) library_->ncclCommCount(found->comm, ranks);
  return ncclSuccess;
}

ncclResult_t Communicators::ask(uint64_t id, Communicator* communicator, ncclResult_t otherwise) {
  const std::lock_guard<std::mutex> hold(communicator->asking);
  ncclComm_t comm = __atomic_load_n(&communicator->comm, __ATOMIC_ACQUIRE);
  if (comm == nullptr || communicator->ended) return otherwise;
  ncclResult_t state = ncclSuccess;
  const ncclResult_t result = library_->ncclCommGetAsyncError(comm, &state);
  if (result != ncclSuccess) return result;
  if (state == ncclSuccess || state == ncclInProgress || communicator->told) return state;
  communicator->told = true;
  tell_(id, state);
  return state;
}

void Communicators::fail(uint64_t communicator, ncclResult_t state) {
  const std::shared_ptr<Communicator> found = find(communicator);
  if (found == nullptr) return;
  const std::lock_guard<std::mutex> hold(found->asking);
  if (!std::exchange(found->told, true)) tell_(communicator, state);
}

void Communicators::begun(const std::vector<uint64_t>& made) {
  for (const uint64_t id : made) {
    const std::shared_ptr<Communicator> found = find(id);
    if (found == nullptr) continue;
    const std::lock_guard<std::mutex> hold(found->asking);
    found->begun = true;
  }
}

bool Communicators::about_to_end(Communicator* communicator) {
  const std::lock_guard<std::mutex> hold(communicator->asking);
  return !std::exchange(communicator->ended, true);
}

// While there are communicators. One that is being made is left alone: if that fails, NCCL frees
// it, and the caller is told.
void Communicators::watch() {
  Hold hold(mutex_);
  while (!ending_ && !all_.empty()) {
    ended_.wait_for(hold, kLookEvery, [this] { return ending_; });
    const auto all = all_;
    hold.unlock();
    for (const auto& [id, communicator] : all) {
      bool begun = false;
      {
        const std::lock_guard<std::mutex> asking(communicator->asking);
        begun = communicator->begun;
      }
      if (begun) ask(id, communicator.get(), ncclSuccess);
    }
    hold.lock();
  }
  watching_ = false;
  --threads_;
  ended_.notify_all();
}

void Communicators::abort(uint64_t communicator, std::function<void(ncclResult_t)> done) {
  const std::shared_ptr<Communicator> found = find(communicator);
  ncclComm_t comm = found != nullptr ? __atomic_load_n(&found->comm, __ATOMIC_ACQUIRE) : nullptr;
  if (comm == nullptr) return done(ncclInvalidArgument);
  {
    const Hold hold(mutex_);
    ++threads_;
  }
  std::thread([this, found, comm, communicator, done = std::move(done)] {
    ncclResult_t result = ncclInvalidArgument;  // somebody else is ending it, and NCCL frees it
    if (about_to_end(found.get())) {
      driver_->cuCtxSetCurrent(found->context);
      result = library_->ncclCommAbort(comm);
      forget(communicator);
    }
    done(result);
    const Hold hold(mutex_);
    --threads_;
    ended_.notify_all();
  }).detach();
}

CUcontext Communicators::context_of(uint64_t communicator) {
  const std::shared_ptr<Communicator> found = find(communicator);
  return found != nullptr ? found->context : nullptr;
}

std::shared_ptr<Communicators::Communicator> Communicators::find(uint64_t id) {
  const Hold hold(mutex_);
  const auto found = all_.find(id);
  return found != all_.end() ? found->second : nullptr;
}

// Null: the id is taken, or there are too many.
std::shared_ptr<Communicators::Communicator> Communicators::add(uint64_t id, CUcontext context) {
  const Hold hold(mutex_);
  if (id == 0 || all_.size() >= kCommunicatorsMax) return nullptr;
  const auto [place, fresh] = all_.try_emplace(id);
  if (!fresh) return nullptr;
  place->second = std::make_shared<Communicator>();
  place->second->context = context;
  if (!watching_) {
    watching_ = true;
    ++threads_;
    std::thread([this] { watch(); }).detach();
  }
  return place->second;
}

void Communicators::forget(uint64_t id) {
  const Hold hold(mutex_);
  all_.erase(id);
}

}  // namespace tendril::worker::nccl
