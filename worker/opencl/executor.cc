// SPDX-License-Identifier: Apache-2.0
// See executor.h.
#include "worker/opencl/executor.h"

#include <stdio.h>

#include <algorithm>
#include <thread>

#include "worker/core/exports.h"
#include "worker/core/park_line.h"

namespace tendril::worker::opencl {
namespace {

constexpr uint32_t kSpinUs = 20;  // how long to look for the next call before sleeping
constexpr int32_t kGateLookMs = 1, kOrderLookMs = 200;
constexpr int kBackgroundMax = 16;

// The platforms of the devices in this assignment.
std::vector<cl_platform_id> platforms_of(const gpu::OpenclDriver& driver,
                                         const wire::Assignment& assignment) {
  const std::vector<gpu::OpenclDriver::Device> all = driver.devices();
  std::vector<cl_platform_id> platforms;
  for (uint32_t slot = 0; slot < assignment.slice_count; ++slot) {
    const uint32_t index = assignment.slices[slot].gpu_index;
    const cl_platform_id platform = index < all.size() ? all[index].platform : nullptr;
    if (platform != nullptr &&
        std::find(platforms.begin(), platforms.end(), platform) == platforms.end())
      platforms.push_back(platform);
  }
  return platforms;
}

}  // namespace

Executor::Executor(const gpu::OpenclDriver& driver, session::Service* service,
                   const wire::Assignment& assignment, wire::AccountingPage* accounting,
                   Exports* exports, Turns turns)
    : driver_(driver.for_platforms(platforms_of(driver, assignment))),
      service_(service),
      assignment_(assignment),
      exports_(exports),
      platforms_(platforms_of(driver, assignment)),
      host_bounds_(host_bounds(assignment, 1, machine_memory_bytes())),
      host_(host_bounds_.bytes),
      rooms_(&host_),
      objects_(api::opencl::kKinds, host_bounds_.objects),
      charge_(assignment, accounting),
      code_(exports, std::min(kHeldBytesMax, host_bounds_.bytes)),
      replies_(service),
      jobs_(driver_, &output_, service),
      gate_(this, turns, assignment.slice_count) {
  const std::vector<gpu::OpenclDriver::Device> all = driver.devices();
  for (uint32_t slot = 0; slot < assignment.slice_count; ++slot) {
    const uint32_t index = assignment.slices[slot].gpu_index;
    devices_.push_back(index < all.size() ? all[index] : gpu::OpenclDriver::Device());
  }
}

Executor::~Executor() {
  while (in_background_->load() != 0) std::this_thread::yield();
  let_go();
}

int Executor::run() {
  Loop<Executor>::run(service_, &gate_.gate(), this);
  return 0;
}

uint32_t Executor::slot_of(cl_device_id device) const {
  const auto part = parts_.find(device);
  if (part != parts_.end()) return part->second;
  uint32_t slot = 0;
  while (slot < devices_.size() && devices_[slot].id != device) ++slot;
  return slot;
}

QueueState* Executor::queue(uint64_t id) {
  const auto found = queues_.find(id);
  return found != queues_.end() ? &found->second : nullptr;
}

void Executor::waits_for(const cl_event* events, uint64_t count) {
  QueueState* const state = queue(call_queue_);
  const auto hold = [&](cl_event event) {
    std::vector<cl_event>& all = state->holders;
    if (std::find(all.begin(), all.end(), event) != all.end()) return;
    driver_.clRetainEvent(event);
    all.push_back(event);
  };
  for (uint64_t i = 0; state != nullptr && i < count; ++i) {
    cl_command_queue of = nullptr;  // none: the program sets it
    if (jobs_.status_of(events[i]) <= CL_COMPLETE ||
        driver_.clGetEventInfo(events[i], CL_EVENT_COMMAND_QUEUE, sizeof of, &of, nullptr) !=
            CL_SUCCESS)
      continue;
    if (of == nullptr) hold(events[i]);
    const QueueState* const other = of != nullptr ? queue(queue_of(of)) : nullptr;
    if (other != nullptr && other != state)
      for (cl_event event : other->holders) hold(event);
  }
}

bool Executor::may_block(const QueueState& state) const {
  return state.flushes->load() != 0 ||
         std::any_of(state.holders.begin(), state.holders.end(),
                     [this](cl_event event) { return jobs_.status_of(event) > CL_COMPLETE; });
}

void Executor::let_go_of_holders(QueueState* state) {
  for (cl_event event : state->holders) driver_.clReleaseEvent(event);
  state->holders.clear();
}

uint64_t Executor::queue_of(cl_command_queue handle) const {
  for (const auto& [id, state] : queues_)
    if (objects_.find(Kind::kQueue, id) == handle) return id;
  return 0;
}

void Executor::begin(uint64_t id, cl_command_queue handle) {
  if (!may_block(*queue(id))) driver_.clFlush(handle);
}

cl_int Executor::flush(uint64_t id, cl_command_queue handle) {
  QueueState& state = *queue(id);
  if (!may_block(state) || in_background_->load() >= kBackgroundMax) {
    let_go_of_holders(&state);
    return driver_.clFlush(handle);
  }
  driver_.clRetainCommandQueue(handle);
  state.flushes->fetch_add(1);
  in_background_->fetch_add(1);
  std::thread([this, handle, one = flushing_, flushes = state.flushes, count = in_background_] {
    {
      const std::lock_guard<std::mutex> hold(*one);
      driver_.clFlush(handle);
    }
    driver_.clReleaseCommandQueue(handle);
    flushes->fetch_sub(1);
    count->fetch_sub(1);
  }).detach();
  return CL_SUCCESS;
}

bool Executor::charge_all(cl_context context, uint64_t id, uint64_t bytes) {
  const std::vector<uint32_t>& slots = context_slots_[context];
  for (size_t i = 0; i < slots.size(); ++i) {
    if (charge_.take(slots[i], bytes)) continue;
    while (i != 0) charge_.give_back(slots[--i], bytes);
    return false;
  }
  for (const uint32_t slot : slots) charges_[id].push_back({slot, bytes});
  return true;
}

void Executor::uncharge(uint64_t id) {
  const auto found = charges_.find(id);
  if (found == charges_.end()) return;
  for (const auto& [slot, bytes] : found->second) charge_.give_back(slot, bytes);
  charges_.erase(found);
}

JobRef Executor::held(uint64_t event) {
  const auto found = held_events_.find(event);
  if (found == held_events_.end()) return nullptr;
  if (!found->second->finished.load(std::memory_order_acquire)) return found->second;
  held_events_.erase(found);
  return nullptr;
}

void Executor::keep(cl_event event, Room memory) {
  constexpr size_t kLookFrom = 32;
  kept_.push_back({event, std::move(memory)});
  if (kept_.size() >= kLookFrom) let_go();
}

void Executor::hold_piece(cl_event event, const session::Piece& piece) {
  pieces_held_->fetch_add(1);
  jobs_.add(
      {event}, {},
      [service = service_, held = pieces_held_, piece](cl_int) {
        service->release(piece);
        held->fetch_sub(1);
      },
      true);
}

void Executor::let_go() {
  while (!kept_.empty() && jobs_.status_of(kept_.front().event) <= CL_COMPLETE) {
    driver_.clReleaseEvent(kept_.front().event);
    kept_.pop_front();
  }
}

void Executor::in_background(std::function<void()> work) {
  replies_.take_over();
  if (in_background_->fetch_add(1) >= kBackgroundMax) {
    work();
    in_background_->fetch_sub(1);
    return;
  }
  std::thread([work = std::move(work), count = in_background_] {
    work();
    count->fetch_sub(1);
  }).detach();
}

transport::Wait Executor::patience(bool polling) {
  if (polling) return {0, 0};
  const bool gated = gate_.gate().pace() != Gate::Pace::kNever;
  return {kSpinUs, gated ? kGateLookMs : kOrderLookMs};
}

// Sessions of this API stay on their devices.
bool Executor::ordered() const {
  return exports_ != nullptr && exports_->park_line() != nullptr &&
         exports_->park_line()->wanted() != refused_park_;
}

void Executor::obey() {
  refused_park_ = exports_->park_line()->wanted();
  if (refused_park_ != 0)
    exports_->park_line()->stays(refused_park_, "OpenCL sessions are not parked");
}

CallOutcome Executor::serve(const session::Call& call) {
  call_ = &call;
  call_queue_ = call_event_ = 0;
  last_stays_ = false;
  replies_.begin();
  scratch_.clear();
  if (dispatch(*this, call)) {
    QueueState* const state = call_queue_ != 0 && !last_stays_ ? queue(call_queue_) : nullptr;
    if (state != nullptr) forget_last(state);
    return CallOutcome::kRun;
  }
  service_->end("the client sent a call that cannot be read");
  return CallOutcome::kSessionOver;
}

void Executor::finish(const session::Call& call, cl_int result) {
  if (__builtin_expect(result != CL_SUCCESS, 0)) {
    failed(result);
    if (QueueState* state = queue(call_queue_); state != nullptr && state->owed == CL_SUCCESS)
      state->owed = result;
    dprintf(output_.log_descriptor(), "%s failed: the driver answers %d\n", op_name(call.opcode),
            result);
  }
  replies_.finish(call, result);
}

// The program has the event already. So the event exists, and says what happened.
void Executor::failed(cl_int result) {
  QueueState* state = queue(call_queue_);
  if (call_event_ == 0 || state == nullptr || driver_.clCreateUserEvent == nullptr) return;
  cl_int made = CL_SUCCESS;
  cl_event event = driver_.clCreateUserEvent(state->context, &made);
  if (made != CL_SUCCESS) return;
  driver_.clSetUserEventStatus(event, result < 0 ? result : CL_OUT_OF_RESOURCES);
  objects_.bind(Kind::kEvent, call_event_, event);
  call_event_ = 0;
}

}  // namespace tendril::worker::opencl
