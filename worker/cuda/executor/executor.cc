// SPDX-License-Identifier: Apache-2.0
// See executor.h.
#include "worker/cuda/executor/executor.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "base/text.h"
#include "worker/core/code_store.h"
#include "worker/core/output.h"
#include "worker/cuda/code/loaded_code.h"
#include "worker/cuda/executor/call_text.h"
#include "worker/cuda/executor/callbacks.h"
#include "worker/cuda/executor/dispatch.h"
#include "worker/cuda/executor/waits.h"
#include "worker/cuda/function.h"
#include "worker/cuda/graphs.h"
#include "worker/cuda/image_objects.h"
#include "worker/cuda/ipc.h"
#include "worker/cuda/link.h"
#include "worker/cuda/memory/context_memory.h"
#include "worker/cuda/memory/device_blocks.h"
#include "worker/cuda/memory/direct.h"
#include "worker/cuda/memory/graph_sizes.h"
#include "worker/cuda/memory/kept_memory.h"
#include "worker/cuda/memory/mirror.h"
#include "worker/cuda/module.h"
#include "worker/cuda/parking/parking.h"
#include "worker/cuda/passage/passages.h"
#include "worker/cuda/virtual_memory.h"
#include "worker/nccl/operations.h"

namespace tendril::worker::cuda {
namespace {

// While a turn is held, because tendrild may shorten an endless turn.
constexpr int32_t kGateLookMs = 1;
// How soon an executor that sleeps sees that its session is to be parked.
constexpr int32_t kOrderLookMs = 200;
constexpr uint32_t kSpinUs = 50;  // how long the executor looks for the next call before it sleeps
// Over shared memory the next call comes sooner, over a network later.
constexpr uint32_t kSpinBeforeSynchronisingUs = 3;
// A Python program needs some 100 us from a wait to its next call.
constexpr uint32_t kSpinAfterWaitUs = 300;

// A launch may take others with it that have arrived (function.cc).
constexpr uint64_t kNodesOfCall = 32;

bool changes_mirrors(uint16_t opcode) {
  using wire::cuda::Op;
  const Op op = static_cast<Op>(opcode);
  return op == Op::mirror_create || op == Op::mirror_share || op == Op::mirror_destroy;
}

bool is_launch(uint16_t opcode) {
  const auto op = static_cast<wire::cuda::Op>(opcode);
  using wire::cuda::Op;
  return op == Op::launch_kernel || op == Op::launch_kernel_ex || op == Op::launch_kernel_buffer ||
         op == Op::graph_launch;
}

// Work of streams that is no launch: with the launches, what a lease that is not idle does.
bool is_transfer(uint16_t opcode) {
  using wire::cuda::Op;
  switch (static_cast<Op>(opcode)) {
    case Op::copy_to_device:
    case Op::copy_from_device:
    case Op::copy_from_device_async:
    case Op::copy_device:
    case Op::copy_shape_to_device:
    case Op::copy_shape_from_device:
    case Op::copy_shape_device:
    case Op::passage_send:
    case Op::passage_receive:
    case Op::memory_set:
    case Op::host_function:
    case Op::cuStreamWriteValue32_v2:
    case Op::cuStreamWriteValue64_v2:
    case Op::cuStreamBatchMemOp_v2:
      return true;
    default:
      return false;
  }
}

// True: while a stream captures, this call may add a node to a graph.
bool may_be_captured(uint16_t opcode) {
  using wire::cuda::Op;
  if (opcode >= nccl::kFirstOpcode) return true;
  switch (static_cast<Op>(opcode)) {
    case Op::copy_device:
    case Op::copy_shape_device:
    case Op::memory_set:
    case Op::pool_allocate:
    case Op::pool_free:
    case Op::host_function:
    case Op::event_record:
    case Op::stream_wait_event:
    case Op::cuStreamWaitValue32_v2:
    case Op::cuStreamWaitValue64_v2:
    case Op::cuStreamWriteValue32_v2:
    case Op::cuStreamWriteValue64_v2:
    case Op::cuStreamBatchMemOp_v2:
      return true;
    default:
      return is_launch(opcode);
  }
}

// True: this call may run before the driver is synchronised for the last wait. Such calls report
// nothing that synchronising changes. Two kinds synchronise by themselves: the launch of a graph
// that allocates, and a wait while its work runs.
bool may_come_before_synchronising(uint16_t opcode) {
  const auto op = static_cast<wire::cuda::Op>(opcode);
  using wire::cuda::Op;
  return is_launch(opcode) || op == Op::event_record || op == Op::context_synchronize ||
         op == Op::stream_synchronize || op == Op::event_synchronize;
}

// TENDRIL_WORKER_MEMORY_MB, if it is set, says what the session may take of the machine's memory,
// and TENDRIL_WORKER_OBJECTS, how many objects of the driver.
HostBounds bounds_of(gpu::Driver* driver, const wire::Assignment& assignment) {
  int gpus = 0;
  if (driver->cuDeviceGetCount(&gpus) != CUDA_SUCCESS || gpus < 1) gpus = 1;
  HostBounds bounds = host_bounds(assignment, static_cast<uint32_t>(gpus), machine_memory_bytes());
  const uint32_t megabytes = base::env_u32("TENDRIL_WORKER_MEMORY_MB", 0);
  if (megabytes != 0) bounds.bytes = uint64_t{megabytes} << 20;
  const uint32_t objects = base::env_u32("TENDRIL_WORKER_OBJECTS", 0);
  if (objects != 0) bounds.objects = objects;
  return bounds;
}

}  // namespace

Executor::Executor(gpu::Driver* driver, session::Service* service,
                   const wire::Assignment& assignment, wire::AccountingPage* accounting,
                   transport::HostWindow window, Exports* exports, Turns turns)
    : driver_(driver),
      service_(service),
      assignment_(assignment),
      counts_(service->counts()),
      tracing_(base::env_u32("TENDRIL_WORKER_TRACE", 0) != 0),
      host_bounds_(bounds_of(driver, assignment)),
      host_(host_bounds_.bytes),
      objects_(host_bounds_.objects,
               [this](Kind kind, uint64_t id, void* object) { ended(kind, id, object); }),
      charge_(assignment, accounting),
      pages_(&charge_),
      contexts_(driver),
      streams_(driver, &contexts_),
      replies_(service),
      callbacks_(std::make_unique<Callbacks>(service,
                                             [this](CUstream stream, uint64_t last) {
                                               waiters_->deliver_from_callback(stream, last);
                                             })),
      waiters_(std::make_unique<Waiters>(this)),
      output_(std::make_unique<Output>()),
      store_(std::make_unique<CodeStore>(exports)),
      code_(std::make_unique<LoadedCode>()),
      layouts_(std::make_unique<Layouts>()),
      mirrors_(std::make_unique<Mirrors>(std::move(window), &host_, &charge_,
                                         std::min(assignment.slice_count, wire::kSlicesMax))),
      direct_(std::make_unique<Direct>(this, exports)),
      blocks_(std::make_unique<DeviceBlocks>(this)),
      virtual_memory_(std::make_unique<VirtualMemory>()),
      ipc_(std::make_unique<Ipc>(exports)),
      kept_memory_(std::make_unique<KeptMemory>(this)),
      context_memory_(std::make_unique<ContextMemory>(this)),
      graphs_(std::make_unique<Graphs>()),
      graph_sizes_(std::make_unique<GraphSizes>(this)),
      image_objects_(std::make_unique<ImageObjects>()),
      passages_(std::make_unique<Passages>(this, exports)),
      parking_(std::make_unique<Parking>(this, exports != nullptr ? exports->park_line() : nullptr,
                                         accounting)),
      gate_(this, turns, std::min(assignment.slice_count, wire::kSlicesMax)) {}

Executor::~Executor() {
  passages_.reset();  // streams that they hold go on
  waiters_.reset();   // their threads use the rest
  mirrors_->destroy_all(driver_);
}

void Executor::offer(std::vector<gpu::NcclFile> libraries) {
  collectives_ = std::make_unique<nccl::Executor>(this, std::move(libraries));
}

int Executor::run() {
  counts_.counts_work.store(1, std::memory_order_relaxed);
  // A driver call may wait for a host function, whose answer comes behind that call in the lane.
  service_->on_sight([this](const session::Call& call) { return take_on_sight(call); });
  Gate& gate = gate_.gate();
  for (uint32_t slot = 0; slot < assignment_.slice_count; ++slot) gate.has_context(slot);
  Loop<Executor>::run(service_, &gate, this);
  callbacks_->end();
  return 0;
}

bool Executor::polling() const { return waiters_->polling(); }
void Executor::poll() { waiters_->poll(); }
void Executor::catch_up() { waiters_->synchronise_owed(); }

bool Executor::catch_up_now() {
  if (!waiters_->owes_synchronising()) return false;
  waiters_->synchronise_owed();
  return true;
}

void Executor::looked() { waiters_->note_ended(); }

void Executor::idle() {
  idle_calls_ = counts_.calls.load(std::memory_order_relaxed);
  idle_ms_ += slept_ms_;
  const int32_t again_ms = kept_memory_->look_again_ms();
  if (again_ms < 0 || idle_ms_ < again_ms) return;
  idle_ms_ = 0;
  kept_memory_->look_again();
}

bool Executor::ordered() const {
  return parking_->ordered() || (charge_.is_asked() && !client_asked_);
}

void Executor::obey() {
  if (charge_.is_asked() && !client_asked_) {
    client_asked_ = true;
    service_->push(wire::FrameKind::kNews, 0, nullptr, 0);
    service_->flush();
  }
  if (parking_->ordered()) parking_->obey();
}

bool Executor::has_collectives() const {
  return collectives_ != nullptr && collectives_->communicators() != nullptr;
}

// How long to look for the next call.
transport::Wait Executor::patience(bool polling) {
  if (polling) return {0, 0};
  if (waiters_->owes_synchronising()) return {kSpinBeforeSynchronisingUs, 0};
  const bool gated = gate_.gate().pace() != Gate::Pace::kNever;
  const uint32_t spin_us = waiters_->some_ended() && !gated ? kSpinAfterWaitUs : kSpinUs;
  // The message that wakes us may be something other than a call.
  const int32_t again_ms = kept_memory_->look_again_ms();
  const int32_t most_ms = parking_->ordered() ? kGateLookMs : kOrderLookMs;
  slept_ms_ = again_ms < 0 ? most_ms : std::min(again_ms, most_ms);
  // A sleeper that only looks around does not spin for a call before it sleeps again.
  const bool idle = counts_.calls.load(std::memory_order_relaxed) == idle_calls_;
  return {idle ? 0 : spin_us, gated ? kGateLookMs : slept_ms_};
}

CallOutcome Executor::serve(const session::Call& call) {
  call_ = &call;
  if (__builtin_expect(parking_->attends(), 0)) {
    bool answered = false;
    if (!parking_->attend(call, &answered)) return CallOutcome::kSessionOver;
    if (answered) return CallOutcome::kRun;
  }
  if (is_launch(call.opcode))
    wire::count_alone(counts_.launches, 1);
  else if (is_transfer(call.opcode))
    wire::count_alone(counts_.transfers, 1);
  if (waiters_->owes_synchronising() && !may_come_before_synchronising(call.opcode))
    waiters_->synchronise_owed();
  scratch_.clear();
  if (__builtin_expect(collectives_ != nullptr, 0)) collectives_->give_back();
  replies_.begin();
  if (callbacks_->any_destroyed()) {
    for (uint64_t object : callbacks_->take_destroyed()) objects_.gone(Kind::kUserObject, object);
  }
  // Done here, not in the handlers: a call whose context is gone reaches no handler.
  if (mirrors_->changes_are_coming() && changes_mirrors(call.opcode)) mirrors_->change_begins();
  if (!enter_context(call)) return CallOutcome::kAnswered;
  if (__builtin_expect(streams_.capturing(), 0) && may_be_captured(call.opcode) &&
      !graph_sizes_->may_capture(kNodesOfCall)) {
    finish(call, CUDA_ERROR_OUT_OF_MEMORY);
    return CallOutcome::kAnswered;
  }
  if (call.opcode >= nccl::kFirstOpcode ? !serve_collective(call) : !dispatch(*this, call)) {
    refuse(call);
    return CallOutcome::kSessionOver;
  }
  if (__builtin_expect(tracing_, 0)) trace(call);
  waiters_->reclaim(SIZE_MAX);
  return CallOutcome::kRun;
}

// A server without NCCL says so to every such call.
bool Executor::serve_collective(const session::Call& call) {
  wire::count_alone(counts_.transfers, 1);
  if (collectives_ != nullptr) return collectives_->serve(call);
  replies_.fail(call, CUDA_ERROR_NOT_SUPPORTED);
  return true;
}

// Serves what the client's host functions need, wherever it is in the lane: their answers, and
// keeping host memory in step with its mirrors before and after them. Memory may be updated early,
// because a GPU that reads host memory directly would see the change as early. Runs on the thread
// that attends; the executor may be in the driver meanwhile.
bool Executor::take_on_sight(const session::Call& call) {
  wire::cuda::host_function_done_request done;
  wire::cuda::mirror_push_request push;
  wire::cuda::mirror_fetch_request fetch;
  if (call.opcode >= nccl::kFirstOpcode)
    return collectives_ != nullptr && collectives_->take_on_sight(call);
  switch (static_cast<wire::cuda::Op>(call.opcode)) {
    case wire::cuda::Op::host_function_done:
      if (!wire::read_message(done, call.body, call.bytes))
        return false;  // the executor will report the error when it runs this call
      callbacks_->done(done.invocation);
      return true;
    case wire::cuda::Op::mirror_push:
      if (mirrors_->changes_are_coming() || !wire::read_message(push, call.body, call.bytes))
        return false;
      // If the mirror does not exist yet, the executor runs this call in order.
      return mirrors_->push(push.address, push.data) == CUDA_SUCCESS;
    case wire::cuda::Op::mirror_fetch: {
      if (mirrors_->changes_are_coming() || !wire::read_message(fetch, call.body, call.bytes))
        return false;
      Mirrors::Written written;
      mirrors_->fetch(&written);
      wire::cuda::mirror_fetch_reply reply;
      reply.offsets = {written.offsets.data(), written.offsets.size()};
      reply.data = {written.data.data(), written.data.size()};
      reply.more = written.more;
      reply.both = written.both;
      std::vector<uint8_t> body(wire::message_bytes(reply));
      wire::write_message(reply, body.data());
      service_->reply(call.reply_id, CUDA_SUCCESS, body.data(), static_cast<uint32_t>(body.size()));
      return true;
    }
    default:
      if (changes_mirrors(call.opcode)) mirrors_->change_is_coming();
      return false;
  }
}

// Writes one line into the server's log. A wait is logged when it begins.
void Executor::trace(const session::Call& call) {
  api::Text text;
  text.raw("trace: ");
  text.now();
  tell_call(text, call.opcode, call.body, call.bytes);
  const int32_t result = replies_.result();
  const char* name = api::Enumerators<CUresult>::name_of(static_cast<uint32_t>(result));
  text.end(replies_.taken_over() ? " -> waits" : " -> ");
  if (!replies_.taken_over()) text.end(name != nullptr ? name : std::to_string(result).c_str());
  text.end("\n");
  if (write(output_->log_descriptor(), text.data(), text.bytes()) < 0)
    return;  // a full disk loses lines, nothing else
}

// Makes the call's context current. False: it failed, and the call has been answered.
bool Executor::enter_context(const session::Call& call) {
  const CUresult result = contexts_.enter(call.context);
  if (result == CUDA_SUCCESS) return true;
  finish(call, result);
  return false;
}

// The driver's object is gone already.
void Executor::ended(Kind kind, uint64_t id, void* object) {
  release_host(object);
  switch (kind) {
    case Kind::kStream:
      if (streams_.capture_ends(static_cast<CUstream>(object))) graphs_->capture_lost(*this);
      break;
    case Kind::kEvent:
      ipc_->gone(reinterpret_cast<uint64_t>(object));
      break;
    case Kind::kFunction:
    case Kind::kKernel:
      layouts_->forget(id);
      break;
    case Kind::kGraph:
      graphs_->forget(*this, static_cast<CUgraph>(object));
      graph_sizes_->ended(object);
      break;
    case Kind::kExec:
      context_memory_->ended(static_cast<CUgraphExec>(object));
      graph_sizes_->ended(object);
      break;
    case Kind::kNode:
      graph_sizes_->ended(object);
      break;
    case Kind::kUserObject:
      graphs_->forget_object(id);
      break;
    case Kind::kLink:
      forget_link(object);
      break;
    default:
      break;
  }
}

bool Executor::hold_host(const void* object, uint64_t bytes) {
  if (!host_.take(bytes)) return false;
  held_host_[object] += bytes;
  return true;
}

bool Executor::may_link(uint64_t edges) { return graph_sizes_->may_link(edges); }

void Executor::release_host(const void* object) {
  const auto held = held_host_.find(object);
  if (held == held_host_.end()) return;
  host_.give_back(held->second);
  held_host_.erase(held);
}

bool Executor::prepare_to_end(CUcontext context) {
  contexts_.use(context);
  passages_->end_context(context);
  waiters_->deliver_all();
  waiters_->reclaim(0);
  return waiters_->end_waits_of(context);
}

void Executor::forget_stream(CUstream stream) {
  context_memory_->ended(stream);
  streams_.forget(stream);
  waiters_->forget_stream(stream);
  gate_.stream_ends(stream);
}

CUdevice Executor::device_of(uint32_t slot) const {
  if (slot >= assignment_.slice_count || slot >= wire::kSlicesMax) return -1;
  CUdevice device = -1;
  if (driver_->cuDeviceGet(&device, static_cast<int>(assignment_.slices[slot].gpu_index)) !=
      CUDA_SUCCESS)
    return -1;
  return device;
}

uint32_t Executor::slot_of(CUdevice device) const {
  if (device_of(slot()) == device) return slot();
  for (uint32_t i = 0; i < assignment_.slice_count; ++i) {
    if (device_of(i) == device) return i;
  }
  return 0;
}

void Executor::empty_context(WorkerContext* context) {
  blocks_->forget(context, [this](uint64_t address) {
    ipc_->gone(address);
    ipc_->closed(address);
  });
  charge_.release_context(context);
  pages_.release_context(context);
  if (collectives_ != nullptr) collectives_->context_ended(context->context);
  context_memory_->ended(context->context);
  waiters_->forget_context(context->context);
  passages_->forget_context(context->context);
  gate_.forget_context(context->context);
  if (context->context != nullptr) forget_code(*this, context->context);
  image_objects_->forget_context(*this, context->context);
  objects_.end(context->context);
  if (streams_.captures_end_with(context->context)) graphs_->capture_lost(*this);
  context->touched.clear();  // its streams are gone
  context->touched_last = nullptr;
  context->untold = false;
  context->copied = nullptr;
}

void Executor::remove_context(uint64_t id) {
  WorkerContext* context = contexts_.find(id);
  if (context == nullptr) return;
  contexts_.retire(id);
  empty_context(context);
}

void Executor::refuse(const session::Call& call) {
  service_->end((std::string("malformed or unknown call ") + op_name(call.opcode) + " (" +
                 std::to_string(call.opcode) + ", " + std::to_string(call.bytes) +
                 " bytes): client and server do not understand each other")
                    .c_str());
}

bool Executor::may_look_ahead() const { return !tracing_ && !waiters_->polling(); }

}  // namespace tendril::worker::cuda
