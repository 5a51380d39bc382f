// SPDX-License-Identifier: Apache-2.0
// What contexts take of a slice beyond allocations: a further context itself, local memory of its
// kernels and stacks, channels of its streams, instances of graphs
// (docs/decisions/0020-what-a-driver-takes.md). It is charged before the driver takes it. The
// primary context of each slot is charged by tendrild. With a driver whose empty context takes
// nothing, all of this is free. Executor thread.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <unordered_set>

#include "worker/cuda/executor/executor.h"

namespace tendril::worker::cuda {

inline constexpr uint64_t kStreamBytes = 560u << 10;  // of each stream; measured on an H100

class ContextMemory {
 public:
  explicit ContextMemory(Executor* executor) : w_(*executor) {}

  // Before a context other than the primary one is made. False: out of memory.
  bool take_context(uint32_t slot) { return w_.charge().take(slot, context_bytes(slot)); }
  void give_back_context(uint32_t slot) { w_.charge().give_back(slot, context_bytes(slot)); }
  // The driver made it. Its kernels may be ones that other contexts of the slot use. False: out of
  // memory.
  bool began(CUcontext context, uint32_t slot);
  // It has ended, or a primary one was reset.
  void ended(CUcontext context);

  // The limit of the stack of the call's context, before it is set. False: out of memory.
  bool set_stack(uint64_t bytes);
  // A function is about to be used on the call's slot for the first time. False: its local memory
  // does not fit.
  bool use_function(CUfunction function, bool kernel);
  // The same for launches that do not ask for a layout.
  bool may_launch(uint64_t id, CUfunction function, bool kernel);
  // Before a stream of the call's context is made. False: out of memory. Then one of the next two.
  bool take_stream();
  void began(CUstream stream);
  void refused_stream();
  void ended(CUstream stream);
  // Before a graph is instantiated in the call's context. False: out of memory. Then one of the
  // next two. A driver keeps what an instance had for the next one.
  bool take_graph(uint64_t bytes);
  void began(CUgraphExec exec, uint64_t bytes);
  void refused_graph(uint64_t bytes);
  // It takes more now. False: out of memory, and nothing has changed.
  bool grow(CUgraphExec exec, uint64_t bytes);
  void ended(CUgraphExec exec);

 private:
  struct State;
  bool add_graph(State* state, uint64_t bytes);
  struct State {
    uint32_t slot = 0;
    bool further = false;      // charged for itself
    uint64_t stack_bytes = 0;  // per thread
    uint64_t charged = 0;      // for local memory, streams and graphs
    uint64_t streams = 0, streams_most = 0;
    uint64_t graphs = 0, graphs_most = 0;  // bytes of instances
  };
  struct Slot {
    bool known = false;
    uint64_t threads = 0;      // that the GPU can hold
    uint64_t local_bytes = 0;  // the most that a used function has, per thread
  };
  uint64_t context_bytes(uint32_t slot) { return w_.charge().context_bytes(slot); }
  Slot& slot_facts(uint32_t slot);
  uint64_t cost(const State& state, uint64_t local_bytes);
  bool pay(State* state, uint64_t local_bytes);
  State* current();

  Executor& w_;
  std::unordered_map<CUcontext, State> contexts_;
  std::unordered_map<uint32_t, Slot> slots_;
  struct Instance {
    CUcontext context;
    uint64_t bytes;
  };
  std::unordered_map<CUstream, CUcontext> streams_;
  std::unordered_map<CUgraphExec, Instance> instances_;
  std::unordered_set<uint64_t> launched_;  // ids that may_launch has asked about
};

}  // namespace tendril::worker::cuda
