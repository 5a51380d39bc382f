// SPDX-License-Identifier: Apache-2.0
// Runs one session's calls in order against the driver. One thread takes calls off the lane
// (`run`); it never sleeps in the driver for a client that waits: waits are polled for a while,
// then handed to waiter threads, so that other client threads' launches go on. Everything here
// belongs to one client process; a worker process has exactly one Executor.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "api/cuda_messages.gen.h"
#include "gpu/cuda/driver.h"
#include "session/lane/service.h"
#include "transport/host_window.h"
#include "wire/assignment.h"
#include "worker/core/charge.h"
#include "worker/core/gate.h"
#include "worker/core/objects.h"
#include "worker/core/turns.h"

namespace tendril::worker {
class Exports;
}

namespace tendril::worker::cuda {

using api::cuda::Kind;

class ModuleStore;

// A context as the worker keeps it, by the index that CallHeader::context carries.
struct WorkerContext {
  CUcontext context = nullptr;
  uint32_t slot = 0;
  bool primary = false;
  uint32_t retains = 0;
  std::atomic<int> deferred{0};  // first error of calls without reply, told at the next wait
  // The streams that calls in this context have named since it was last waited for, so that a wait
  // for it can ask them; `untold`: there may be work that none of them knows of. Executor thread.
  std::vector<CUstream> touched;
  CUstream touched_last = nullptr;
  bool untold = false;
  std::atomic<int> waits{0};  // for all of it, under way
  CUevent copied =
      nullptr;  // behind the last synchronous copy; ends with the context. Executor thread.
};

// A host function that the client runs: the driver's thread sleeps until the client has answered.
class Callbacks;
// Waits, and copies to the client under way (waits.h).
class Waiters;
class Output;
// Parameter layouts of functions (function.h).
class Layouts;
// Copies of the client's mapped host memory (mirror.h).
class Mirrors;
// Physical memory and its mappings (virtual_memory.h).
class VirtualMemory;
// What is shared with other sessions (ipc.h).
class Ipc;
// What pools and graphs keep (kept_memory.h).
class KeptMemory;

class Executor {
 public:
  Executor(gpu::Driver* driver, session::Service* service, const wire::Assignment& assignment,
           wire::AccountingPage* accounting, transport::HostWindow window, Exports* exports,
           Turns turns = {});
  // Only when the driver runs nothing of this session any more: its threads call back. A worker
  // process leaves without.
  ~Executor();

  // Until the client goes. Returns the exit status.
  int run();

  gpu::Driver& driver() { return *driver_; }
  session::Service& service() { return *service_; }
  Objects& objects() { return objects_; }
  Charge& charge() { return charge_; }
  Callbacks& callbacks() { return *callbacks_; }
  Waiters& waiters() { return *waiters_; }
  Output& output() { return *output_; }
  ModuleStore& store() { return *store_; }
  Layouts& layouts() { return *layouts_; }
  Mirrors& mirrors() { return *mirrors_; }
  VirtualMemory& virtual_memory() { return *virtual_memory_; }
  Ipc& ipc() { return *ipc_; }
  KeptMemory& kept_memory() { return *kept_memory_; }
  const wire::Assignment& assignment() const { return assignment_; }

  // The driver's ordinal of a slot of this session; -1: the client made the slot up.
  CUdevice device_of(uint32_t slot) const;
  // The slot of a driver's ordinal; the call's own where several slots are on one GPU. 0 for a GPU
  // that is not the session's.
  uint32_t slot_of(CUdevice device) const;
  // The context of the call being executed (null when it named none) and its bookkeeping.
  WorkerContext* context() { return current_; }
  // Slot of the context of the call; 0 when there is none.
  uint32_t slot() const { return current_ != nullptr ? current_->slot : 0; }
  WorkerContext* find_context(uint64_t id);
  WorkerContext* add_context(uint64_t id);
  void remove_context(uint64_t id);
  // What was in it has ended, with it or by a reset: nothing of that is charged, waited for or
  // asked any more.
  void empty_context(WorkerContext* context);
  // Makes `context` current on the executor thread, if it is not.
  CUresult use(CUcontext context);
  CUcontext current_in_driver() const { return driver_current_; }
  // The driver's current context changed behind our back.
  void forget_current() { driver_current_ = nullptr; }
  // Memory that lives until the next call; for arrays passed to the driver or put into replies.
  // Bounded: null past 64 MiB.
  void* scratch(uint64_t bytes);

  // Results of calls, from the generated dispatcher.
  void finish(const session::Call& call, CUresult result);
  template <typename Answer>
  void answer(const session::Call& call, CUresult result, const Answer& r) {
    result_ = result;
    if (answered_elsewhere_) {  // a wait took the call over and will reply itself
      answered_elsewhere_ = false;
      return;
    }
    const uint64_t bytes = result == CUDA_SUCCESS || always_has_body_ ? wire::message_bytes(r) : 0;
    always_has_body_ = false;
    uint8_t* body = bytes != 0 ? reply_buffer(bytes) : nullptr;
    if (body != nullptr) wire::write_message(r, body);
    send_reply(call, result, body, static_cast<uint32_t>(body != nullptr ? bytes : 0));
  }
  // For handlers whose reply carries data also with an error (JIT logs).
  void reply_with_body_anyway() { always_has_body_ = true; }

  // Waits, started by handlers: the reply goes out when the GPU is there. Return CUDA_SUCCESS from
  // the handler afterwards.
  enum class WaitKind : uint8_t { kStream, kEvent, kContext };
  CUresult wait(WaitKind kind, void* object);
  // As above, for a copy to the client: what the stream has now, then the reply, with the data of
  // `block` unless they go beside it. Events and blocks are the staging's.
  CUresult wait_for_copy(CUstream stream, const struct Block& block, uint64_t bytes);
  // A copy has been given to the stream of this id with this result: the call's. A synchronous one
  // may have returned in the program by now, so what a stream does that does not wait for the
  // legacy one comes after it; the client waits for copies once there is such a stream.
  CUresult copy_given(uint64_t stream_id, CUresult result) {
    return stream_id == 0 && !streams_apart_ && result == CUDA_SUCCESS && current_ != nullptr
               ? mark_copied()
               : result;
  }
  // A stream of the call's context that does not wait for the legacy one begins.
  CUresult begin_apart(CUstream stream);
  // The error that calls without reply left behind in a context, once. Any thread.
  CUresult take_deferred_of(WorkerContext* context);
  // A call is about to give work to `stream`, or may be.
  void touch(CUstream stream) {
    gate_.leaves_legacy_stream();
    if (current_ != nullptr && current_->touched_last != stream) note_touched(stream);
  }
  // `stream` is about to be destroyed: it is asked no more.
  void untouch(CUstream stream);
  // Streams that capture must not be asked anything.
  void capture_begins() { ++captures_; }
  void capture_ends() { captures_ -= captures_ != 0; }
  bool capturing() const { return captures_ != 0; }
  // Is what is given to `stream` captured, and not run?
  bool captures(CUstream stream) { return captures_ != 0 && ask_whether_captures(stream); }
  // Before a host function is given to `stream`.
  void pass_host_function(CUstream stream) {
    if (!gate_.open(slot()) && current_ != nullptr && !captures(stream))
      gate_.host_function(slot(), current_->context, stream);
  }
  // Before a piece of work for the GPU's processors (not a copy from or to the host) is given to
  // `stream`, in the call's context: waits where the GPU's time is divided. `what` and `size` tell
  // how long it will take: pieces that have both in common are alike. False: the session is over.
  bool may_work(CUstream stream, uint64_t what, uint64_t size) {
    return gate_.open(slot()) || wait_at_gate(stream, what, size);
  }
  // The same for one of several pieces, before the first of them is given: false when there is
  // something to wait for, or to do before.
  bool may_work_at_once(CUstream stream, uint64_t what, uint64_t size) {
    return captures_ == 0 && current_ != nullptr &&
           gate_.pass_at_once(current_->slot, current_->context, stream, work_kind(what, size));
  }
  Gate& gate() { return gate_; }
  // Remembers the error of a call without reply.
  void defer(CUresult result) {
    if (__builtin_expect(result != CUDA_SUCCESS, 0)) remember(result);
  }

  const session::Call& call() const { return *call_; }
  // A handler may run calls that follow the current one (session::Service::take_alike): nobody
  // waits for a wait to be polled, or for each call's line of trace.
  bool may_look_ahead() const;
  // The client sent what is no call: the session ends.
  void refuse(const session::Call& call);

 private:
  bool take_on_sight(const session::Call& call);
  bool enter_context(const session::Call& call);
  void trace(const session::Call& call);
  void remember(CUresult result);
  void note_touched(CUstream stream);
  CUresult mark_copied();
  bool ask_whether_captures(CUstream stream);
  bool wait_at_gate(CUstream stream, uint64_t what, uint64_t size);
  transport::Wait patience(bool polling) const;
  void send_reply(const session::Call& call, CUresult result, const uint8_t* body, uint32_t bytes);
  uint8_t* reply_buffer(uint64_t bytes);

  gpu::Driver* driver_;
  session::Service* service_;
  wire::Assignment assignment_;
  Objects objects_;
  Charge charge_;
  std::vector<std::unique_ptr<WorkerContext>> contexts_;  // by client index
  std::vector<std::unique_ptr<WorkerContext>> retired_;
  WorkerContext* current_ = nullptr;
  CUcontext driver_current_ = nullptr;
  const session::Call* call_ = nullptr;
  CUresult result_ = CUDA_SUCCESS;  // of the call that was just run
  const bool tracing_;              // TENDRIL_WORKER_TRACE
  uint32_t captures_ = 0;
  bool streams_apart_ = false;  // there has been one that does not wait for the legacy one
  bool answered_elsewhere_ = false;
  bool always_has_body_ = false;
  std::vector<uint8_t> reply_;
  std::vector<std::unique_ptr<uint8_t[]>> scratch_;
  uint64_t scratch_bytes_ = 0;
  std::unique_ptr<Callbacks> callbacks_;
  std::unique_ptr<Waiters> waiters_;
  std::unique_ptr<Output> output_;
  std::unique_ptr<ModuleStore> store_;
  std::unique_ptr<Layouts> layouts_;
  std::unique_ptr<Mirrors> mirrors_;
  std::unique_ptr<VirtualMemory> virtual_memory_;
  std::unique_ptr<Ipc> ipc_;
  std::unique_ptr<KeptMemory> kept_memory_;
  std::unique_ptr<GateHost> gate_host_;
  Gate gate_;
};

}  // namespace tendril::worker::cuda
