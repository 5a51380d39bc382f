// SPDX-License-Identifier: Apache-2.0
// The executor's loop, contexts and replies. See executor.h.
#include "worker/cuda/executor/executor.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "base/text.h"
#include "worker/cuda/code/module_store.h"
#include "worker/cuda/executor/call_text.h"
#include "worker/cuda/executor/callbacks.h"
#include "worker/cuda/executor/dispatch.h"
#include "worker/cuda/executor/gate_host.h"
#include "worker/cuda/executor/output.h"
#include "worker/cuda/executor/waits.h"
#include "worker/cuda/function.h"
#include "worker/cuda/ipc.h"
#include "worker/cuda/memory/kept_memory.h"
#include "worker/cuda/memory/mirror.h"
#include "worker/cuda/module.h"
#include "worker/cuda/virtual_memory.h"

namespace tendril::worker::cuda {
namespace {

constexpr uint64_t kScratchMax = 64u << 20;
constexpr int32_t kGateLookMs = 1;  // while a turn is held: tendrild may shorten one without end
constexpr uint32_t kSpinUs = 50;  // how long the executor looks for the next call before it sleeps
constexpr uint32_t kSpinBeforeSynchronisingUs =
    3;  // shared memory brings the next call in less, a network in more
constexpr uint32_t kSpinAfterWaitUs =
    300;  // a program in Python takes some 100 us from a wait to its next call

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

// Before these the driver need not have been synchronised with for the last wait: they tell nothing
// that this changes, and a graph that allocates sees to it itself, as a wait does while its own
// work runs.
bool may_come_before_synchronising(uint16_t opcode) {
  const auto op = static_cast<wire::cuda::Op>(opcode);
  using wire::cuda::Op;
  return is_launch(opcode) || op == Op::event_record || op == Op::context_synchronize ||
         op == Op::stream_synchronize || op == Op::event_synchronize;
}

std::string store_directory() {
  const char* directory = std::getenv("TENDRIL_MODULE_STORE");
  return directory != nullptr ? directory : "";
}

}  // namespace

Executor::Executor(gpu::Driver* driver, session::Service* service,
                   const wire::Assignment& assignment, wire::AccountingPage* accounting,
                   transport::HostWindow window, Exports* exports, Turns turns)
    : driver_(driver),
      service_(service),
      assignment_(assignment),
      charge_(assignment, accounting),
      tracing_(base::env_u32("TENDRIL_WORKER_TRACE", 0) != 0),
      callbacks_(std::make_unique<Callbacks>(service,
                                             [this](CUstream stream, uint64_t last) {
                                               waiters_->deliver_from_callback(stream, last);
                                             })),
      waiters_(std::make_unique<Waiters>(this)),
      output_(std::make_unique<Output>()),
      store_(std::make_unique<ModuleStore>(store_directory())),
      layouts_(std::make_unique<Layouts>()),
      mirrors_(std::make_unique<Mirrors>(std::move(window))),
      virtual_memory_(std::make_unique<VirtualMemory>()),
      ipc_(std::make_unique<Ipc>(exports)),
      kept_memory_(std::make_unique<KeptMemory>(this)),
      gate_host_(std::make_unique<ExecutorGateHost>(this)),
      gate_(gate_host_.get(), turns, std::min(assignment.slice_count, wire::kSlicesMax)) {}

Executor::~Executor() {
  waiters_.reset();  // their threads use the rest
  mirrors_->destroy_all(driver_);
}

int Executor::run() {
  // A driver call may wait for a host function; the answer stands behind that call in the lane.
  service_->on_sight([this](const session::Call& call) { return take_on_sight(call); });
  wire::SessionCounts& counts = service_->counts();
  for (uint32_t slot = 0; slot < assignment_.slice_count; ++slot) gate_.has_context(slot);
  for (;;) {
    const bool polling = waiters_->polling();
    const Gate::Pace pace = gate_.pace();
    if ((polling || pace == Gate::Pace::kAtOnce) && !service_->pending()) {
      waiters_->synchronise_owed();
      if (polling) waiters_->poll();
      if (pace != Gate::Pace::kNever) gate_.look(false);
      if (!polling) gate_.rest();
      continue;
    }
    base::Result<session::Call> call = service_->next(patience(polling));
    if (waiters_->owes_synchronising() && !call.ok() &&
        call.status().code() == base::Code::kTimeout) {
      waiters_->synchronise_owed();
      continue;
    }
    if (!polling) waiters_->note_ended();
    if (!call.ok()) {
      if (call.status().code() == base::Code::kTimeout) {
        if (polling) waiters_->poll();
        if (pace != Gate::Pace::kNever)
          gate_.look(!polling);
        else if (!polling)
          kept_memory_->look_again();
        continue;
      }
      break;
    }
    call_ = &*call;
    if (is_launch(call->opcode)) wire::count_alone(counts.launches, 1);
    if (waiters_->owes_synchronising() && !may_come_before_synchronising(call->opcode))
      waiters_->synchronise_owed();
    scratch_.clear();
    scratch_bytes_ = 0;
    answered_elsewhere_ = false;
    always_has_body_ = false;
    if (callbacks_->any_destroyed()) {
      for (uint64_t object : callbacks_->take_destroyed())
        objects_.unbind(Kind::kUserObject, object);
    }
    // Here and not in the handlers, as a call whose context is gone does not get there.
    if (mirrors_->changes_are_coming() && changes_mirrors(call->opcode)) mirrors_->change_begins();
    if (!enter_context(*call)) continue;
    if (!dispatch(*this, *call)) {
      refuse(*call);
      break;
    }
    if (__builtin_expect(tracing_, 0)) trace(*call);
    waiters_->reclaim(SIZE_MAX);
    if (polling) waiters_->poll();
    gate_.look_between_calls();
  }
  callbacks_->end();
  return 0;
}

// How long to look for the next call.
transport::Wait Executor::patience(bool polling) const {
  if (polling) return {0, 0};
  if (waiters_->owes_synchronising()) return {kSpinBeforeSynchronisingUs, 0};
  const uint32_t spin_us =
      waiters_->some_ended() && gate_.pace() == Gate::Pace::kNever ? kSpinAfterWaitUs : kSpinUs;
  int32_t timeout_ms = kept_memory_->look_again_ms();
  if (gate_.pace() != Gate::Pace::kNever)
    timeout_ms = kGateLookMs;  // what has come need not be a call
  return {spin_us, timeout_ms};
}

bool Executor::ask_whether_captures(CUstream stream) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  return driver_->cuStreamIsCapturing(stream, &status) != CUDA_SUCCESS ||
         status != CU_STREAM_CAPTURE_STATUS_NONE;
}

bool Executor::wait_at_gate(CUstream stream, uint64_t what, uint64_t size) {
  if (captures(stream)) return true;
  return gate_.pass(slot(), current_ != nullptr ? current_->context : nullptr, stream,
                    work_kind(what, size));
}

// What the client's host functions need of us, in whatever place of the lane it stands: their
// answers, and host memory kept in step with its mirrors before and after them. Taking memory's
// news early is no more than a GPU that reaches such memory would see anyway. On the thread that
// attends, while the executor may be in the driver.
bool Executor::take_on_sight(const session::Call& call) {
  wire::cuda::host_function_done_request done;
  wire::cuda::mirror_push_request push;
  wire::cuda::mirror_fetch_request fetch;
  switch (static_cast<wire::cuda::Op>(call.opcode)) {
    case wire::cuda::Op::host_function_done:
      if (!wire::read_message(done, call.body, call.bytes))
        return false;  // in its turn the executor will complain
      callbacks_->done(done.invocation);
      return true;
    case wire::cuda::Op::mirror_push:
      if (mirrors_->changes_are_coming() || !wire::read_message(push, call.body, call.bytes))
        return false;
      return mirrors_->push(push.address, push.data) ==
             CUDA_SUCCESS;  // a mirror still to be made: in its turn
    case wire::cuda::Op::mirror_fetch: {
      if (mirrors_->changes_are_coming() || !wire::read_message(fetch, call.body, call.bytes))
        return false;
      Mirrors::Written written;
      mirrors_->fetch(&written);
      wire::cuda::mirror_fetch_reply r;
      r.offsets = {written.offsets.data(), written.offsets.size()};
      r.data = {written.data.data(), written.data.size()};
      r.more = written.more;
      r.both = written.both;
      std::vector<uint8_t> body(wire::message_bytes(r));
      wire::write_message(r, body.data());
      service_->reply(call.reply_id, CUDA_SUCCESS, body.data(), static_cast<uint32_t>(body.size()));
      return true;
    }
    default:
      if (changes_mirrors(call.opcode)) mirrors_->change_is_coming();
      return false;
  }
}

// One line for the server's log. A wait is told when it begins.
void Executor::trace(const session::Call& call) {
  api::Text text;
  text.raw("trace: ");
  text.now();
  tell_call(text, call.opcode, call.body, call.bytes);
  const char* name = api::Enumerators<CUresult>::name_of(static_cast<uint32_t>(result_));
  text.end(answered_elsewhere_ ? " -> waits" : " -> ");
  if (!answered_elsewhere_) text.end(name != nullptr ? name : std::to_string(result_).c_str());
  text.end("\n");
  if (write(output_->log_descriptor(), text.data(), text.bytes()) < 0)
    return;  // a full disk loses lines, nothing else
}

// Makes the call's context current. False: it named one that does not exist, and has been answered.
bool Executor::enter_context(const session::Call& call) {
  current_ = nullptr;
  if (call.context == 0) return true;
  WorkerContext* context =
      call.context < contexts_.size() ? contexts_[call.context].get() : nullptr;
  if (context == nullptr) {
    send_reply(call, CUDA_ERROR_INVALID_CONTEXT, nullptr, 0);
    return false;
  }
  current_ = context;
  const CUresult result = use(context->context);
  if (result == CUDA_SUCCESS) return true;
  finish(call, result);
  if (call.reply_id != 0) send_reply(call, result, nullptr, 0);
  return false;
}

CUresult Executor::use(CUcontext context) {
  if (driver_current_ == context) return CUDA_SUCCESS;
  const CUresult result = driver_->cuCtxSetCurrent(context);
  driver_current_ = result == CUDA_SUCCESS ? context : nullptr;
  return result;
}

// A stream may belong to another context than the call's.
void Executor::note_touched(CUstream stream) {
  current_->touched_last = stream;
  const auto holds = [stream](const WorkerContext& context) {
    return std::find(context.touched.begin(), context.touched.end(), stream) !=
           context.touched.end();
  };
  if (holds(*current_)) return;
  CUcontext of = nullptr;
  if (driver_->cuStreamGetCtx(stream, &of) != CUDA_SUCCESS) {
    current_->untold = true;
    return;
  }
  for (std::unique_ptr<WorkerContext>& context : contexts_) {
    if (context == nullptr || context->context != of) continue;
    if (context.get() != current_) current_->touched_last = nullptr;
    if (!holds(*context)) context->touched.push_back(stream);
  }
}

void Executor::untouch(CUstream stream) {
  for (std::unique_ptr<WorkerContext>& context : contexts_) {
    if (context == nullptr) continue;
    const auto found = std::find(context->touched.begin(), context->touched.end(), stream);
    if (found == context->touched.end()) continue;
    context->touched.erase(found);
    context->touched_last = nullptr;
    context->untold = true;
  }
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

WorkerContext* Executor::find_context(uint64_t id) {
  const uint32_t index = api::id_index(id);
  if (api::cuda::id_kind(id) != Kind::kContext || index >= contexts_.size()) return nullptr;
  return contexts_[index].get();
}

WorkerContext* Executor::add_context(uint64_t id) {
  constexpr uint32_t kContextsMax = 4096;
  const uint32_t index = api::id_index(id);
  if (api::cuda::id_kind(id) != Kind::kContext || index == 0 || index >= kContextsMax)
    return nullptr;
  if (index >= contexts_.size()) contexts_.resize(index + 1);
  if (contexts_[index] != nullptr)
    retired_.push_back(std::move(contexts_[index]));  // calls may still be using it
  contexts_[index] = std::make_unique<WorkerContext>();
  return contexts_[index].get();
}

void Executor::empty_context(WorkerContext* context) {
  charge().release_context(context);
  waiters_->forget_context(context->context);
  gate_.forget_context(context->context);
  if (context->context != nullptr) forget_code(*this, context->context);
  context->touched.clear();  // its streams are gone
  context->touched_last = nullptr;
  context->untold = false;
  context->copied = nullptr;
}

void Executor::remove_context(uint64_t id) {
  WorkerContext* context = find_context(id);
  if (context == nullptr) return;
  if (current_ == context) current_ = nullptr;
  driver_current_ = nullptr;
  empty_context(context);
  retired_.push_back(std::move(contexts_[api::id_index(id)]));  // a wait may still point at it
}

void* Executor::scratch(uint64_t bytes) {
  if (bytes > kScratchMax - scratch_bytes_) return nullptr;
  scratch_bytes_ += bytes;
  scratch_.emplace_back(new (std::nothrow) uint8_t[bytes + 16]);
  // Aligned for any image, CUtensorMap included, is not needed: images are copied by value.
  return scratch_.back().get();
}

uint8_t* Executor::reply_buffer(uint64_t bytes) {
  if (bytes > wire::kReplyBytesMax) return nullptr;
  if (reply_.size() < bytes) reply_.resize(bytes);
  return reply_.data();
}

void Executor::send_reply(const session::Call& call, CUresult result, const uint8_t* body,
                          uint32_t bytes) {
  if (call.reply_id == 0) return;  // a client that asked a question without wanting the answer
  service_->reply(call.reply_id, result, body, bytes);
}

void Executor::finish(const session::Call& call, CUresult result) {
  result_ = result;
  if (result == CUDA_SUCCESS) return;
  defer(result);
  if (call.reply_id != 0) send_reply(call, result, nullptr, 0);
}

void Executor::refuse(const session::Call& call) {
  service_->end((std::string("malformed or unknown call ") + op_name(call.opcode) + " (" +
                 std::to_string(call.opcode) + ", " + std::to_string(call.bytes) +
                 " bytes): client and server do not understand each other")
                    .c_str());
}

bool Executor::may_look_ahead() const { return !tracing_ && !waiters_->polling(); }

void Executor::remember(CUresult result) {
  if (current_ == nullptr) return;
  // The end of the capture tells these.
  if (result >= CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED &&
      result <= CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD)
    return;
  int expected = 0;
  current_->deferred.compare_exchange_strong(expected, static_cast<int>(result));
}

CUresult Executor::take_deferred_of(WorkerContext* context) {
  return context != nullptr ? static_cast<CUresult>(context->deferred.exchange(0)) : CUDA_SUCCESS;
}

CUresult Executor::wait(WaitKind kind, void* object) {
  Wait wait;
  wait.kind = kind;
  wait.object = object;
  wait.context = current_;
  wait.driver_context = driver_current_;
  wait.reply_id = call_->reply_id;
  answered_elsewhere_ = true;
  waiters_->add(wait);
  return CUDA_SUCCESS;
}

// No event of the copies' own but the last is needed: each comes after those before it. Nothing has
// been given to another stream since the copy, so that the event ties no streams together which the
// copy has not.
CUresult Executor::mark_copied() {
  if (current_->copied == nullptr) {
    const CUresult result = driver_->cuEventCreate(&current_->copied, CU_EVENT_DISABLE_TIMING);
    if (result != CUDA_SUCCESS) return result;
  }
  return driver_->cuEventRecord(current_->copied, nullptr);
}

CUresult Executor::begin_apart(CUstream stream) {
  streams_apart_ = true;
  if (current_ == nullptr || current_->copied == nullptr) return CUDA_SUCCESS;
  return driver_->cuStreamWaitEvent(stream, current_->copied, 0);
}

CUresult Executor::wait_for_copy(CUstream stream, const Block& block, uint64_t bytes) {
  Wait wait;
  const CUresult marked = waiters_->mark_copy(current_->context, stream, block, &wait.own_event);
  if (marked != CUDA_SUCCESS) return marked;
  wait.kind = WaitKind::kEvent;
  wait.object = wait.own_event;
  wait.context = current_;
  wait.driver_context = driver_current_;
  wait.reply_id = call_->reply_id;
  wait.block = block;
  wait.bytes = bytes;
  answered_elsewhere_ = true;
  waiters_->add(wait);
  return CUDA_SUCCESS;
}

}  // namespace tendril::worker::cuda
