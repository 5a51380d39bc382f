// SPDX-License-Identifier: Apache-2.0
// Runs the calls of one session in order against the driver. One thread takes them off the lane
// (`run`). It never sleeps in the driver for a client's wait. It polls a wait for a while and then
// hands it to a waiter thread. So launches of other client threads continue. Everything here
// belongs to one client process. A worker process has exactly one Executor.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>

#include "api/cuda_messages.gen.h"
#include "gpu/cuda/driver.h"
#include "gpu/inventory.h"
#include "session/lane/service.h"
#include "transport/host_window.h"
#include "wire/assignment.h"
#include "worker/core/charge.h"
#include "worker/core/host_use.h"
#include "worker/core/loop.h"
#include "worker/core/page_charge.h"
#include "worker/core/replies.h"
#include "worker/core/scratch.h"
#include "worker/core/turns.h"
#include "worker/cuda/executor/contexts.h"
#include "worker/cuda/executor/gate_port.h"
#include "worker/cuda/executor/objects.h"
#include "worker/cuda/executor/streams.h"

namespace tendril::worker {
class Exports;
// Images of device code by their content (worker/core/code_store.h).
class CodeStore;
// What kernels print, and the log (worker/core/output.h).
class Output;
}  // namespace tendril::worker
// NCCL (worker/nccl/operations.h).
namespace tendril::worker::nccl {
class Executor;
}

namespace tendril::worker::cuda {

// What is loaded of device code (loaded_code.h).
class LoadedCode;
// Host functions, which the client runs (callbacks.h). The driver's thread sleeps until the client
// has answered.
class Callbacks;
// Waits, and copies to the client that are under way (waits.h).
class Waiters;
// Parameter layouts of functions (function.h).
class Layouts;
// Copies of the client's mapped host memory (mirror.h).
class Mirrors;
// Device memory made by mapping (device_blocks.h).
class DeviceBlocks;
// Physical memory and its mappings of the program's own (virtual_memory.h).
class VirtualMemory;
// What is shared with other sessions (ipc.h).
class Ipc;
// What pools and graphs keep (kept_memory.h).
class ContextMemory;
class KeptMemory;
// What graphs hold (graphs.h).
class Graphs;
// What graphs take (graph_sizes.h).
class GraphSizes;
// Texture and surface objects (image_objects.h).
class ImageObjects;
// Connections to workers of other servers (passage/passages.h).
class Passages;
// Copies that network cards do alone (memory/direct.h).
class Direct;
// Memory that leaves the GPU while the session is idle (parking/parking.h).
class Parking;

class Executor {
 public:
  Executor(gpu::Driver* driver, session::Service* service, const wire::Assignment& assignment,
           wire::AccountingPage* accounting, transport::HostWindow window, Exports* exports,
           Turns turns = {});
  // Destroy it only when the driver runs nothing of this session any more, because the driver's
  // threads call back. A worker process exits without destroying it.
  ~Executor();

  // The session may use one of these NCCLs. Before `run`.
  void offer(std::vector<gpu::NcclFile> libraries);
  // Runs until the client leaves. Returns the exit status.
  int run();

  // The parts that handlers use. Each part's header says what it is for.
  gpu::Driver& driver() { return *driver_; }
  session::Service& service() { return *service_; }
  const wire::Assignment& assignment() const { return assignment_; }
  Objects& objects() { return objects_; }
  Charge& charge() { return charge_; }
  Contexts& contexts() { return contexts_; }
  Streams& streams() { return streams_; }
  GatePort& gate() { return gate_; }
  Replies& replies() { return replies_; }
  Scratch& scratch() { return scratch_; }
  Callbacks& callbacks() { return *callbacks_; }
  Waiters& waiters() { return *waiters_; }
  Output& output() { return *output_; }
  CodeStore& store() { return *store_; }
  LoadedCode& code() { return *code_; }
  Layouts& layouts() { return *layouts_; }
  Mirrors& mirrors() { return *mirrors_; }
  DeviceBlocks& blocks() { return *blocks_; }
  Direct& direct() { return *direct_; }
  VirtualMemory& virtual_memory() { return *virtual_memory_; }
  Ipc& ipc() { return *ipc_; }
  KeptMemory& kept_memory() { return *kept_memory_; }
  ContextMemory& context_memory() { return *context_memory_; }
  PageCharge& pages() { return pages_; }
  Graphs& graphs() { return *graphs_; }
  GraphSizes& graph_sizes() { return *graph_sizes_; }
  ImageObjects& image_objects() { return *image_objects_; }
  Passages& passages() { return *passages_; }
  Parking& parking() { return *parking_; }
  bool has_collectives() const;  // NCCL is open here
  // Memory of this machine that the session has. Any thread.
  HostUse& host() { return host_; }

  // The call that runs now.
  const session::Call& call() const { return *call_; }
  // The context of that call. Null: it named none.
  WorkerContext* context() { return contexts_.current(); }
  // The slot of that context; 0 if the call named none.
  uint32_t slot() const { return contexts_.current() != nullptr ? contexts_.current()->slot : 0; }
  // The driver's ordinal of a slot of this session; -1: the client made the slot up.
  CUdevice device_of(uint32_t slot) const;
  // The slot of a driver's ordinal. If several slots are on that GPU: the call's own slot. If the
  // GPU is not the session's: 0.
  uint32_t slot_of(CUdevice device) const;

  // The call may give work to `stream`.
  void touch(CUstream stream) {
    gate_.gate().leaves_legacy_stream();
    streams_.touch(contexts_.current(), stream);
  }
  // `stream` is about to be destroyed. It must not be asked any more.
  void forget_stream(CUstream stream);
  // The driver is about to end a context with all that is in it: ends all waits for it and copies
  // in it. False: the session is over before that.
  bool prepare_to_end(CUcontext context);
  // Everything in the context has ended, with the context or by a reset. Stops charging, waiting
  // for and asking any of it.
  void empty_context(WorkerContext* context);
  bool may_link(uint64_t edges);  // memory/graph_sizes.h
  // Memory of the host that the driver keeps for an object. False: the session has its part.
  bool hold_host(const void* object, uint64_t bytes);
  void release_host(const void* object);
  void remove_context(uint64_t id);

  // The client has given back what it kept (docs/decisions/0027).
  void memory_given() {
    charge_.note_keeps(false);
    client_asked_ = false;
  }

  // Results of calls, from the generated dispatcher.
  void finish(const session::Call& call, CUresult result) {
    contexts_.defer(result);
    replies_.finish(call, result);
  }
  template <typename Answer>
  void answer(const session::Call& call, CUresult result, const Answer& message) {
    // What failed before is why: a copy to memory that could not be made has only a wrong address.
    if (__builtin_expect(result != CUDA_SUCCESS, 0)) {
      const CUresult earlier = Contexts::take_deferred_of(context());
      if (earlier != CUDA_SUCCESS) result = earlier;
    }
    replies_.answer(call, result, message);
  }

  // True: a handler may run calls that follow the current one (session::Service::take_alike).
  // False: a wait must be polled between calls, or each call must be traced.
  bool may_look_ahead() const;
  // The client sent an invalid call: the session ends.
  void refuse(const session::Call& call);

 private:
  friend class Loop<Executor>;
  bool polling() const;
  void poll();
  void catch_up();
  bool catch_up_now();
  transport::Wait patience(bool polling);
  void looked();
  void idle();
  bool ordered() const;
  void obey();
  CallOutcome serve(const session::Call& call);

  void ended(Kind kind, uint64_t id, void* object);
  bool take_on_sight(const session::Call& call);
  bool serve_collective(const session::Call& call);
  bool enter_context(const session::Call& call);
  void trace(const session::Call& call);

  gpu::Driver* driver_;
  session::Service* service_;
  wire::Assignment assignment_;
  wire::SessionCounts& counts_;
  const session::Call* call_ = nullptr;
  const bool tracing_;  // TENDRIL_WORKER_TRACE
  // For how long nothing came: since the last look at kept memory, and the sleep that comes next.
  int32_t idle_ms_ = 0, slept_ms_ = 0;
  uint64_t idle_calls_ = UINT64_MAX;  // how many had come when it was last idle
  bool client_asked_ = false;         // for what it keeps, and it has not answered
  const HostBounds host_bounds_;
  HostUse host_;
  std::unordered_map<const void*, uint64_t> held_host_;  // bytes by the driver's object
  Objects objects_;
  Charge charge_;
  PageCharge pages_;
  Contexts contexts_;
  Streams streams_;
  Replies replies_;
  Scratch scratch_;
  std::unique_ptr<Callbacks> callbacks_;
  std::unique_ptr<Waiters> waiters_;
  std::unique_ptr<Output> output_;
  std::unique_ptr<CodeStore> store_;
  std::unique_ptr<LoadedCode> code_;
  std::unique_ptr<Layouts> layouts_;
  std::unique_ptr<Mirrors> mirrors_;
  std::unique_ptr<Direct> direct_;
  std::unique_ptr<DeviceBlocks> blocks_;  // ends before `direct_`, which forgets its memory
  std::unique_ptr<VirtualMemory> virtual_memory_;
  std::unique_ptr<Ipc> ipc_;
  std::unique_ptr<KeptMemory> kept_memory_;
  std::unique_ptr<ContextMemory> context_memory_;
  std::unique_ptr<Graphs> graphs_;
  std::unique_ptr<GraphSizes> graph_sizes_;
  std::unique_ptr<ImageObjects> image_objects_;
  std::unique_ptr<Passages> passages_;
  std::unique_ptr<Parking> parking_;
  GatePort gate_;
  std::unique_ptr<nccl::Executor> collectives_;  // null: there is no NCCL here
};

}  // namespace tendril::worker::cuda
