// SPDX-License-Identifier: Apache-2.0
// Communicators. See communicator.h.
#include "softnccl/communicator.h"

#include <atomic>

#include "softnccl/driver.h"
#include "softnccl/error.h"
#include "softnccl/knobs.h"
#include "softnccl/staging.h"

namespace tendril::softnccl {
namespace {

std::atomic<int> g_operators{ncclNumOps};
std::atomic<uint64_t> g_registrations{1};

struct Published {
  std::mutex lock;
  std::map<ncclComm_t, CommunicatorPtr> all;
};

struct Released {
  std::mutex lock;
  std::vector<CommunicatorPtr> all;
};

Released& released() {
  static Released& kept = *new Released;
  return kept;
}

Published& published() {
  static Published& kept = *new Published;
  return kept;
}

}  // namespace

ncclResult_t current_place(Place* place) {
  CUcontext context = nullptr;
  if (ncclResult_t bad = driver_error(driver()->context_current(&context), "cuCtxGetCurrent"))
    return bad;
  if (context == nullptr) return primary_place(0, place);
  place->context = context;
  return driver_error(driver()->context_device(&place->device), "cuCtxGetDevice");
}

ncclResult_t primary_place(int device, Place* place) {
  if (ncclResult_t bad = driver_error(driver()->device(&place->device, device), "cuDeviceGet"))
    return bad;
  if (ncclResult_t bad = driver_error(driver()->primary_retain(&place->context, place->device),
                                      "cuDevicePrimaryCtxRetain"))
    return bad;
  place->retained = true;
  return ncclSuccess;
}

Communicator::Communicator(Place place, int rank, int ranks, bool blocking)
    : place_(place), rank_(rank), ranks_(ranks), blocking_(blocking) {
  begin_staging(place_.context);
}

Communicator::~Communicator() {
  if (background_.joinable() && background_.get_id() == std::this_thread::get_id())
    background_.detach();  // its last act
  join_background();
  {
    ContextScope current(place_.context);
    for (CUevent event : {joined, launched})
      if (event != nullptr) driver()->event_destroy(event);
    RelaxedScope relaxed;
    buffers_.free();
    line_buffers_.free();
  }
  end_staging(place_.context);
  if (place_.retained) driver()->primary_release(place_.device);
}

ncclResult_t Communicator::prepare() {
  ContextScope current(place_.context);
  RelaxedScope relaxed;
  for (CUevent* event : {&joined, &launched})
    if (ncclResult_t bad =
            driver_error(driver()->event_create(event, CU_EVENT_DISABLE_TIMING), "cuEventCreate"))
      return bad;
  if (ncclResult_t bad = buffers_.allocate(uint64_t{knobs().buffer_mb} << 20)) return bad;
  return mesh_.listen();
}

ncclResult_t Communicator::prepare_lines() {
  ContextScope current(place_.context);
  RelaxedScope relaxed;
  return line_buffers_.map(uint64_t{knobs().peer_mb} << 20, place_.device);
}

ncclResult_t Communicator::meet(const ncclUniqueId& id) {
  std::vector<Member> members;
  if (ncclResult_t bad = join(id, rank_, ranks_, mesh_.self(), stop_, &members)) return bad;
  return settle(rank_, std::move(members));
}

ncclResult_t Communicator::settle(int rank, std::vector<Member> members) {
  for (size_t i = 0; i < members.size(); i++)
    if (members[i].version != mesh_.self().version)
      return error(ncclInvalidUsage, "mismatched NCCL version: rank " + std::to_string(rank) +
                                         " has version " + std::to_string(mesh_.self().version) +
                                         ", rank " + std::to_string(i) + " has version " +
                                         std::to_string(members[i].version));
  rank_ = rank;
  ranks_ = static_cast<int>(members.size());
  mesh_.set_members(rank, std::move(members));
  return ncclSuccess;
}

ncclResult_t Communicator::state() const {
  std::lock_guard guard(lock_);
  return state_;
}

void Communicator::set_state(ncclResult_t state) {
  std::lock_guard guard(lock_);
  if (state_ == ncclSuccess || state_ == ncclInProgress) state_ = state;
  changed_.notify_all();  // who finishes waits no more for what has failed
}

ncclResult_t Communicator::ready() const {
  std::lock_guard guard(lock_);
  if (state_ == ncclInProgress)
    return error(ncclInvalidArgument,
                 "the communicator is used before its last operation returned ncclSuccess");
  if (state_ == ncclSuccess && finalized_)
    return error(ncclInvalidArgument, "the communicator is used after ncclCommFinalize");
  return state_;
}

ncclResult_t Communicator::begin_launch(bool in_graph) {
  std::unique_lock guard(lock_);
  if (in_graph) {
    in_graphs_++;
    return ncclSuccess;
  }
  while (under_way_ >= knobs().queue) {
    if (stop_.raised()) return ncclInternalError;
    changed_.wait(guard);
  }
  under_way_++;
  return ncclSuccess;
}

void Communicator::end_launch(bool in_graph) {
  std::lock_guard guard(lock_);
  (in_graph ? in_graphs_ : under_way_)--;
  changed_.notify_all();
}

void Communicator::in_turn(const std::function<ncclResult_t()>& what) {
  {
    std::lock_guard guard(lock_);
    running_++;
  }
  {
    std::lock_guard turn(turn_);
    if (!stop_.raised()) {
      const ncclResult_t before = state();
      const bool failed = before != ncclSuccess && before != ncclInProgress;
      const ncclResult_t result = failed ? before : what();
      if (result != ncclSuccess) {
        if (!stop_.raised()) set_state(result);
        stop_.wait();
      }
    }
  }
  std::lock_guard guard(lock_);
  running_--;
  changed_.notify_all();
}

void Communicator::finish() {
  std::unique_lock guard(lock_);
  changed_.wait(guard, [&] {
    const bool failed = state_ != ncclSuccess && state_ != ncclInProgress;
    return failed || stop_.raised() || (under_way_ == 0 && in_graphs_ == 0);
  });
}

void Communicator::abort() {
  stop_.raise();
  {
    std::unique_lock guard(lock_);
    changed_.notify_all();
    changed_.wait(guard, [&] { return running_ == 0; });
    // Not awaited: it may serve other communicators of a group, which are not aborted yet.
    if (background_.joinable()) background_.detach();
  }
}

void Communicator::in_background(std::function<void()> what) {
  join_background();  // its work is over, or this one could not have been asked for
  std::lock_guard guard(lock_);
  background_ = std::thread(std::move(what));
}

void Communicator::join_background() {
  std::thread background;
  {
    std::lock_guard guard(lock_);
    background.swap(background_);
  }
  if (background.joinable()) background.join();
}

bool Communicator::finalized() const {
  std::lock_guard guard(lock_);
  return finalized_;
}

void Communicator::set_finalized() {
  std::lock_guard guard(lock_);
  finalized_ = true;
}

ncclRedOp_t Communicator::add_scalar(const Scalar& scalar) {
  const int op = g_operators.fetch_add(1);
  std::lock_guard guard(lock_);
  scalars_.emplace(op, scalar);
  return static_cast<ncclRedOp_t>(op);
}

bool Communicator::drop_scalar(ncclRedOp_t op) {
  std::lock_guard guard(lock_);
  return scalars_.erase(static_cast<int>(op)) == 1;
}

bool Communicator::find_scalar(ncclRedOp_t op, Scalar* scalar) const {
  std::lock_guard guard(lock_);
  auto found = scalars_.find(static_cast<int>(op));
  if (found == scalars_.end()) return false;
  *scalar = found->second;
  return true;
}

void* Communicator::add_registration() {
  const uint64_t number = g_registrations.fetch_add(1);
  std::lock_guard guard(lock_);
  registrations_.insert(number);
  return reinterpret_cast<void*>(number);
}

bool Communicator::drop_registration(void* handle) {
  std::lock_guard guard(lock_);
  return registrations_.erase(reinterpret_cast<uint64_t>(handle)) == 1;
}

ncclComm_t publish(const CommunicatorPtr& communicator) {
  auto handle = reinterpret_cast<ncclComm_t>(communicator.get());
  std::lock_guard guard(published().lock);
  published().all.emplace(handle, communicator);
  return handle;
}

CommunicatorPtr find(ncclComm_t handle) {
  std::lock_guard guard(published().lock);
  auto found = published().all.find(handle);
  return found == published().all.end() ? nullptr : found->second;
}

bool withdraw(ncclComm_t handle) {
  std::lock_guard guard(published().lock);
  return published().all.erase(handle) == 1;
}

void end_launch_and_release(CommunicatorPtr communicator, bool in_graph) {
  // Under the lock, so that whoever waited for the launch finds the reference.
  std::lock_guard guard(released().lock);
  communicator->end_launch(in_graph);
  released().all.push_back(std::move(communicator));
}

void let_go() {
  std::vector<CommunicatorPtr> dead;  // ends after the lock
  {
    std::lock_guard guard(released().lock);
    dead.swap(released().all);
  }
}

}  // namespace tendril::softnccl
