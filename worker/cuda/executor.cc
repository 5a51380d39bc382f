// SPDX-License-Identifier: Apache-2.0
// The executor's loop, contexts and replies. See executor.h.
#include "worker/cuda/executor.h"

#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "base/text.h"
#include "worker/cuda/call_text.h"
#include "worker/cuda/callbacks.h"
#include "worker/cuda/dispatch.h"
#include "worker/cuda/function.h"
#include "worker/cuda/ipc.h"
#include "worker/cuda/graph_memory.h"
#include "worker/cuda/module.h"
#include "worker/cuda/mirror.h"
#include "worker/cuda/module_store.h"
#include "worker/cuda/output.h"
#include "worker/cuda/virtual_memory.h"
#include "worker/cuda/waits.h"

namespace tendril::worker::cuda {
namespace {

constexpr uint64_t kScratchMax = 64u << 20;
constexpr uint32_t kSpinUs = 50;  // how long the executor looks for the next call before it sleeps

// The one call that is handled when it is seen, in whatever place of the lane it stands.
bool take_completion(Callbacks* callbacks, const session::Call& call) {
  wire::cuda::host_function_done_request m;
  if (call.opcode != static_cast<uint16_t>(wire::cuda::Op::host_function_done)) return false;
  if (!wire::read_message(m, call.body, call.bytes)) return false;  // the reader will complain
  callbacks->done(m.invocation);
  return true;
}

std::string store_directory() {
  const char* directory = std::getenv("TENDRIL_MODULE_STORE");
  return directory != nullptr ? directory : "";
}

}  // namespace

Executor::Executor(gpu::Driver* driver, session::Service* service, const wire::Assignment& assignment,
                   wire::AccountingPage* accounting, transport::HostWindow window, Exports* exports)
    : driver_(driver),
      service_(service),
      assignment_(assignment),
      charge_(assignment, accounting),
      tracing_(base::env_u32("TENDRIL_WORKER_TRACE", 0) != 0),
      turn_(read_lane, this),
      callbacks_(std::make_unique<Callbacks>(service, [this] { waiters_->deliver_from_callback(); })),
      waiters_(std::make_unique<Waiters>(this)),
      output_(std::make_unique<Output>()),
      store_(std::make_unique<ModuleStore>(store_directory())),
      layouts_(std::make_unique<Layouts>()),
      mirrors_(std::make_unique<Mirrors>(std::move(window))),
      virtual_memory_(std::make_unique<VirtualMemory>()),
      ipc_(std::make_unique<Ipc>(exports)),
      graph_memory_(std::make_unique<GraphMemory>()),
      releases_(std::make_unique<Releases>(this)) {}

Executor::~Executor() {
  settle();
  waiters_.reset();  // their threads use the rest
  mirrors_->destroy_all(driver_);
}

int Executor::run() {
  // The answer of a host function must get through whatever the reader is doing: it may be waiting for that function.
  service_->on_sight([this](const session::Call& call) { return take_completion(callbacks_.get(), call); });
  turn_.begin();
  read_lane(this);
  while (!ended_.load(std::memory_order_acquire)) {
    const uint32_t seen = over_.read();
    if (!ended_.load(std::memory_order_acquire)) over_.wait(seen, -1);
  }
  callbacks_->end();
  return 0;
}

// One line for the server's log. A wait is told when it begins.
void Executor::trace(const Seat& seat) {
  api::Text text;
  text.raw("trace: ");
  tell_call(text, seat.call.opcode, seat.call.body, seat.call.bytes);
  const char* name = api::name_of(static_cast<const CUresult*>(nullptr), static_cast<uint32_t>(seat.result));
  text.end(seat.answered_elsewhere ? " -> waits" : " -> ");
  if (!seat.answered_elsewhere) text.end(name != nullptr ? name : std::to_string(seat.result).c_str());
  text.end("\n");
  if (write(output_->log_descriptor(), text.data(), text.bytes()) < 0) return;  // a full disk loses lines, nothing else
}

// The reader: takes calls until the session ends or a stand-in has taken over.
void Executor::read_lane(void* self) {
  Executor& w = *static_cast<Executor*>(self);
  Seat seat;
  w.turn_.take_back();
  w.seats_.insert(&seat);
  bool reader = w.turn_.is_reader();
  w.turn_.give();
  while (reader) {
    const bool polling = w.waiters_->polling();
    const transport::Wait wait = polling ? transport::Wait{0, 0} : transport::Wait{kSpinUs, -1};
    base::Result<session::Call> call = w.service_->next(wait);
    if (!call.ok() && call.status().code() != base::Code::kTimeout) {
      w.ended_.store(true, std::memory_order_release);
      w.over_.signal();
      break;
    }
    w.turn_.take();
    w.seat_ = &seat;
    if (call.ok()) w.run_call(&seat, *call);
    reader = w.turn_.is_reader();
    if (reader && polling) w.waiters_->poll();
    w.turn_.give();
  }
  w.leave_seat(&seat);
}

void Executor::leave_seat(Seat* seat) {
  turn_.take_back();
  seats_.erase(seat);
  turn_.give();
}

void Executor::run_call(Seat* seat, const session::Call& call) {
  seat->call = call;
  seat->scratch.clear();
  seat->scratch_bytes = 0;
  seat->answered_elsewhere = false;
  seat->always_has_body = false;
  if (call.reply_id != 0 || tracing_) {
    seat->body.assign(call.body, call.body + call.bytes);
    seat->call.body = seat->body.data();
  }
  if (callbacks_->any_destroyed()) {
    for (uint64_t object : callbacks_->take_destroyed()) objects_.unbind(Kind::kUserObject, object);
  }
  if (!enter_context(seat->call)) return;
  if (!dispatch(*this, seat->call)) {
    service_->end((std::string("malformed or unknown call ") + op_name(call.opcode) + " (" +
                   std::to_string(call.opcode) + ", " + std::to_string(call.bytes) +
                   " bytes): client and server do not understand each other")
                      .c_str());
    return;
  }
  if (__builtin_expect(tracing_, 0)) trace(*seat);
  waiters_->reclaim();
}

void Executor::settle() {
  turn_.end();
  releases_->end();
}

void Executor::leave() {
  if (turn_.is_reader()) service_->flush();
  turn_.leave();
}

void Executor::later(std::function<CUresult(Executor&)> release) { releases_->add(context(), std::move(release)); }

void Executor::await_releases() {
  if (releases_->pending()) aside([this] { releases_->drain(); });
}

void Executor::run_release(Seat* seat, WorkerContext* context, const std::function<CUresult(Executor&)>& release) {
  turn_.take_back();
  seat_ = seat;
  seat->context = context;
  seats_.insert(seat);
  if (context != nullptr) use(context->context);
  defer(release(*this));
  turn_.give();
}

// The reader waits here, and the lane with it: what follows must not overtake the bytes. They have left the client, so
// this takes no longer than the network does.
void Executor::await_arrival(uint64_t transfer) {
  if (arrivals_.count(transfer) == 0) return;
  Seat* const seat = seat_;
  service_->flush();
  while (arrivals_.count(transfer) != 0) {
    const uint32_t seen = arrived_.read();
    turn_.give();
    arrived_.wait(seen, -1);
    turn_.take_back();
    seat_ = seat;
  }
}

// Makes the call's context current. False: it named one that does not exist, and has been answered.
bool Executor::enter_context(const session::Call& call) {
  seat_->context = nullptr;
  if (call.context == 0) return true;
  WorkerContext* context = call.context < contexts_.size() ? contexts_[call.context].get() : nullptr;
  if (context == nullptr) {
    send_reply(call, CUDA_ERROR_INVALID_CONTEXT, nullptr, 0);
    return false;
  }
  seat_->context = context;
  const CUresult result = use(context->context);
  if (result == CUDA_SUCCESS) return true;
  finish(call, result);
  return false;
}

CUresult Executor::use(CUcontext context) {
  if (seat_->driver_current == context) return CUDA_SUCCESS;
  const CUresult result = driver_->cuCtxSetCurrent(context);
  seat_->driver_current = result == CUDA_SUCCESS ? context : nullptr;
  return result;
}

CUdevice Executor::device_of(uint32_t slot) const {
  if (slot >= assignment_.slice_count || slot >= wire::kSlicesMax) return -1;
  CUdevice device = -1;
  if (driver_->cuDeviceGet(&device, static_cast<int>(assignment_.slices[slot].gpu_index)) != CUDA_SUCCESS) return -1;
  return device;
}

uint32_t Executor::slot_of(CUdevice device) const {
  if (device_of(slot()) == device) return slot();
  for (uint32_t i = 0; i < assignment_.slice_count; ++i) {
    if (device_of(i) == device) return i;
  }
  return 0;
}

WorkerContext* Executor::find_context(uint64_t id) {
  const uint32_t index = api::id_index(id);
  if (api::id_kind(id) != Kind::kContext || index >= contexts_.size()) return nullptr;
  return contexts_[index].get();
}

WorkerContext* Executor::add_context(uint64_t id) {
  constexpr uint32_t kContextsMax = 4096;
  const uint32_t index = api::id_index(id);
  if (api::id_kind(id) != Kind::kContext || index == 0 || index >= kContextsMax) return nullptr;
  if (index >= contexts_.size()) contexts_.resize(index + 1);
  contexts_[index] = std::make_unique<WorkerContext>();
  return contexts_[index].get();
}

void Executor::remove_context(uint64_t id) {
  WorkerContext* context = find_context(id);
  if (context == nullptr) return;
  for (Seat* seat : seats_) {  // a new context may get the same address
    if (seat->context == context) seat->context = nullptr;
    seat->driver_current = nullptr;
  }
  waiters_->forget(context->context);
  if (context->context != nullptr) forget_code(*this, context->context);
  retired_.push_back(std::move(contexts_[api::id_index(id)]));  // a wait may still point at it
}

void* Executor::scratch(uint64_t bytes) {
  if (bytes > kScratchMax - seat_->scratch_bytes) return nullptr;
  seat_->scratch_bytes += bytes;
  seat_->scratch.emplace_back(new (std::nothrow) uint8_t[bytes + 16]);
  // Aligned for any image, CUtensorMap included, is not needed: images are copied by value.
  return seat_->scratch.back().get();
}

uint8_t* Executor::reply_buffer(uint64_t bytes) {
  if (bytes > wire::kReplyBytesMax) return nullptr;
  if (seat_->reply.size() < bytes) seat_->reply.resize(bytes);
  return seat_->reply.data();
}

void Executor::send_reply(const session::Call& call, CUresult result, const uint8_t* body, uint32_t bytes) {
  if (call.reply_id == 0) return;  // a client that asked a question without wanting the answer
  service_->reply(call.reply_id, result, body, bytes);
}

void Executor::finish(const session::Call& call, CUresult result) {
  seat_->result = result;
  if (result == CUDA_SUCCESS) return;
  defer(result);
  if (call.reply_id != 0) send_reply(call, result, nullptr, 0);
}

void Executor::defer(CUresult result) {
  WorkerContext* const context = seat_->context;
  if (context == nullptr || result == CUDA_SUCCESS) return;
  // The end of the capture tells these.
  if (result >= CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED && result <= CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD) return;
  int expected = 0;
  context->deferred.compare_exchange_strong(expected, static_cast<int>(result));
}

CUresult Executor::take_deferred_of(WorkerContext* context) {
  return context != nullptr ? static_cast<CUresult>(context->deferred.exchange(0)) : CUDA_SUCCESS;
}

CUresult Executor::wait(WaitKind kind, void* object) {
  Wait wait;
  wait.kind = kind;
  wait.object = object;
  wait.context = seat_->context;
  wait.driver_context = seat_->driver_current;
  wait.reply_id = seat_->call.reply_id;
  seat_->answered_elsewhere = true;
  waiters_->add(std::move(wait));
  return CUDA_SUCCESS;
}

CUresult Executor::wait_with_data(std::unique_ptr<Readback> readback) {
  Wait wait;
  wait.kind = WaitKind::kEvent;
  wait.object = readback->event();
  wait.context = seat_->context;
  wait.driver_context = seat_->driver_current;
  wait.reply_id = seat_->call.reply_id;
  wait.readback = std::move(readback);
  seat_->answered_elsewhere = true;
  waiters_->add(std::move(wait));
  return CUDA_SUCCESS;
}

}  // namespace tendril::worker::cuda
