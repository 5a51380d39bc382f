// SPDX-License-Identifier: Apache-2.0
// Runs one session's calls in order against the driver. One thread takes calls off the lane, and nothing that takes long
// holds it up: waits are polled for a while, then handed to waiter threads; a call that is slow in the driver, or whose
// bytes are still on their way, runs `aside`, and a stand-in takes the calls that follow (turn.h); what calls without
// reply give up is freed by a thread of its own (releases.h). Everything here belongs to one client process; a worker
// process has exactly one Executor. Handlers, and whatever they reach without a lock of its own, have the turn.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "api/cuda_messages.gen.h"
#include "gpu/driver.h"
#include "session/service.h"
#include "transport/host_window.h"
#include "wire/assignment.h"
#include "worker/cuda/charge.h"
#include "worker/cuda/objects.h"
#include "worker/cuda/releases.h"
#include "worker/cuda/turn.h"

namespace tendril::worker {
class Exports;
}

namespace tendril::worker::cuda {

using api::Kind;

class ModuleStore;

// A context as the worker keeps it, by the index that CallHeader::context carries.
struct WorkerContext {
  CUcontext context = nullptr;
  uint32_t slot = 0;
  bool primary = false;
  uint32_t retains = 0;
  std::atomic<int> deferred{0};  // first error of calls without reply, told at the next wait
};

// What a thread of the executor knows of the call it runs.
struct Seat {
  session::Call call;
  std::vector<uint8_t> body;  // of a call that may outlive its place in the lane
  WorkerContext* context = nullptr;
  CUcontext driver_current = nullptr;
  bool answered_elsewhere = false;
  bool always_has_body = false;
  CUresult result = CUDA_SUCCESS;
  std::vector<uint8_t> reply;
  std::vector<std::unique_ptr<uint8_t[]>> scratch;
  uint64_t scratch_bytes = 0;
};

// A host function that the client runs: the driver's thread sleeps until the client has answered.
class Callbacks;
// Waits, and copies to the client under way (waits.h).
class Waiters;
class Output;
class Readback;
// Parameter layouts of functions (function.h).
class Layouts;
// Copies of the client's mapped host memory (mirror.h).
class Mirrors;
// Physical memory and its mappings (virtual_memory.h).
class VirtualMemory;
// What is shared with other sessions (ipc.h).
class Ipc;
// What graphs' own memory costs (graph_memory.h).
class GraphMemory;

class Executor {
 public:
  Executor(gpu::Driver* driver, session::Service* service, const wire::Assignment& assignment,
           wire::AccountingPage* accounting, transport::HostWindow window, Exports* exports);
  // Only when the driver runs nothing of this session any more: its threads call back. A worker process leaves without.
  ~Executor();

  // Until the client goes. Returns the exit status.
  int run();
  // After that: until no call is run any more and everything given up is released. A worker process leaves without.
  void settle();

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
  GraphMemory& graph_memory() { return *graph_memory_; }
  const wire::Assignment& assignment() const { return assignment_; }

  // The driver's ordinal of a slot of this session; -1: the client made the slot up.
  CUdevice device_of(uint32_t slot) const;
  // The slot of a driver's ordinal; the call's own where several slots are on one GPU. 0 for a GPU that is not the
  // session's.
  uint32_t slot_of(CUdevice device) const;
  // The context of the call being executed (null when it named none) and its bookkeeping.
  WorkerContext* context() { return seat_->context; }
  // Slot of the context of the call; 0 when there is none.
  uint32_t slot() const { return seat_->context != nullptr ? seat_->context->slot : 0; }
  WorkerContext* find_context(uint64_t id);
  WorkerContext* add_context(uint64_t id);
  void remove_context(uint64_t id);
  // Makes `context` current on this thread, if it is not.
  CUresult use(CUcontext context);
  // The driver's current context changed behind our back.
  void forget_current() { seat_->driver_current = nullptr; }

  // Does `work`, which may take long and touches nothing that needs the turn, while other calls go on. Only in calls
  // that somebody waits for (then nobody can tell in which order they ran) and in transfers (see Arrival).
  template <typename Work>
  auto aside(Work&& work) {
    const Aside gone(this);
    return work();
  }
  template <typename Work>
  auto aside_if(bool aside_please, Work&& work) {
    return aside_please ? aside(work) : work();
  }
  // For what a call without reply gives up: `release` runs later, in order, with the turn and in this call's context.
  void later(std::function<CUresult(Executor&)> release);
  // Until everything that `later` was told so far is done. May take long.
  void await_releases();
  // An allocation that fails for lack of memory is tried again when everything on its way back is back.
  template <typename Allocate>
  CUresult with_room(Allocate&& allocate) {
    const CUresult result = allocate();
    if (result != CUDA_ERROR_OUT_OF_MEMORY || !releases_->pending()) return result;
    await_releases();
    return allocate();
  }
  // Runs one release. Its thread.
  void run_release(Seat* seat, WorkerContext* context, const std::function<CUresult(Executor&)>& release);
  void leave_seat(Seat* seat);
  bool is_reader() const { return turn_.is_reader(); }

  // A transfer whose bytes are being taken. Made and ended with the turn. The client says behind it, in the lane, that
  // it has sent all of it; calls after that wait until it is taken (await_arrival).
  class Arrival {
   public:
    Arrival(Executor& w, uint64_t transfer) : w_(w), transfer_(transfer) { w_.arrivals_.insert(transfer); }
    ~Arrival() {
      w_.arrivals_.erase(transfer_);
      w_.arrived_.signal();
    }
    Arrival(const Arrival&) = delete;

   private:
    Executor& w_;
    const uint64_t transfer_;
  };
  void await_arrival(uint64_t transfer);
  // Memory that lives until the next call; for arrays passed to the driver or put into replies. Bounded: null past 64
  // MiB.
  void* scratch(uint64_t bytes);

  // Results of calls, from the generated dispatcher.
  void finish(const session::Call& call, CUresult result);
  template <typename Answer>
  void answer(const session::Call& call, CUresult result, const Answer& r) {
    seat_->result = result;
    if (seat_->answered_elsewhere) return;  // a wait took the call over and will reply itself
    const uint64_t bytes = result == CUDA_SUCCESS || seat_->always_has_body ? wire::message_bytes(r) : 0;
    uint8_t* body = bytes != 0 ? reply_buffer(bytes) : nullptr;
    if (body != nullptr) wire::write_message(r, body);
    send_reply(call, result, body, static_cast<uint32_t>(body != nullptr ? bytes : 0));
  }
  // For handlers whose reply carries data also with an error (JIT logs).
  void reply_with_body_anyway() { seat_->always_has_body = true; }

  // Waits, started by handlers: the reply goes out when the GPU is there. Return CUDA_SUCCESS from the handler
  // afterwards.
  enum class WaitKind : uint8_t { kStream, kEvent, kContext };
  CUresult wait(WaitKind kind, void* object);
  // As above, for a copy whose data goes with the reply.
  CUresult wait_with_data(std::unique_ptr<Readback> readback);
  // The error that calls without reply left behind in a context, once. Any thread.
  CUresult take_deferred_of(WorkerContext* context);
  // Remembers the error of a call without reply.
  void defer(CUresult result);

  const session::Call& call() const { return seat_->call; }

 private:
  class Aside {
   public:
    explicit Aside(Executor* w) : w_(w), seat_(w->seat_) { w_->leave(); }
    ~Aside() { w_->come_back(seat_); }
    Aside(const Aside&) = delete;

   private:
    Executor* const w_;
    Seat* const seat_;
  };
  static void read_lane(void* self);
  void run_call(Seat* seat, const session::Call& call);
  void leave();
  void come_back(Seat* seat) {
    turn_.come_back();
    seat_ = seat;
  }
  bool enter_context(const session::Call& call);
  void trace(const Seat& seat);
  void send_reply(const session::Call& call, CUresult result, const uint8_t* body, uint32_t bytes);
  uint8_t* reply_buffer(uint64_t bytes);

  gpu::Driver* driver_;
  session::Service* service_;
  wire::Assignment assignment_;
  Objects objects_;
  Charge charge_;
  std::vector<std::unique_ptr<WorkerContext>> contexts_;  // by client index
  std::vector<std::unique_ptr<WorkerContext>> retired_;
  const bool tracing_;  // TENDRIL_WORKER_TRACE
  Turn turn_;
  Seat* seat_ = nullptr;  // of the thread that has the turn
  std::set<Seat*> seats_;
  std::set<uint64_t> arrivals_;
  base::Event arrived_;
  base::Event over_;
  std::atomic<bool> ended_{false};
  std::unique_ptr<Callbacks> callbacks_;
  std::unique_ptr<Waiters> waiters_;
  std::unique_ptr<Output> output_;
  std::unique_ptr<ModuleStore> store_;
  std::unique_ptr<Layouts> layouts_;
  std::unique_ptr<Mirrors> mirrors_;
  std::unique_ptr<VirtualMemory> virtual_memory_;
  std::unique_ptr<Ipc> ipc_;
  std::unique_ptr<GraphMemory> graph_memory_;
  std::unique_ptr<Releases> releases_;
};

}  // namespace tendril::worker::cuda
