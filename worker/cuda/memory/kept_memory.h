// SPDX-License-Identifier: Apache-2.0
// Memory that a driver keeps is charged to the slice. For a pool or a graph's allocation nodes, a
// driver takes memory in pieces. It keeps what the program frees, until it trims or synchronises.
// So an allocation or launch passes if what it may need, beyond what is held already, fits the
// quota. After it, the slice is charged what the driver says that it holds. When a slice runs
// short, what pools keep goes back first. What graphs keep stays until the program trims it.
// Executor thread.
#pragma once

#include <cstdint>
#include <map>
#include <unordered_map>
#include <utility>

#include "worker/cuda/executor/executor.h"

namespace tendril::worker::cuda {

class KeptMemory {
 public:
  explicit KeptMemory(Executor* executor);

  // Until the first allocation node there is nothing to do for any graph.
  bool has_graphs() const { return has_graphs_; }
  void use_graphs() { has_graphs_ = true; }
  // Notes how much the allocation nodes of `exec`, made from `graph`, may take. True: it has such
  // nodes, or frees memory of others.
  bool instantiated(CUgraphExec exec, CUgraph graph);
  // False: the launch could pass the quota.
  bool before_launch(CUgraphExec exec);
  // Charges a slot with what the driver holds for graphs of its device now.
  void settle_graphs(uint32_t slot);

  // An allocation that the slice has no room for, or that took more than there was, is
  // CUDA_ERROR_OUT_OF_MEMORY.
  CUresult allocate(CUmemoryPool pool, uint64_t bytes, CUstream stream, CUdeviceptr* address);
  // The memory at an address is the pool's again.
  void freed(CUdeviceptr address);
  // Before the driver destroys a pool: what is still in use of it is charged by itself.
  void destroying(CUmemoryPool pool);
  // Charges every pool's slot with what the pool holds now.
  void settle_pools();
  // A driver gives up what is free when somebody synchronises, and tells nobody: after a free the
  // executor looks a few times when it has nothing else to do. -1: there is nothing to look at.
  int look_again_ms() const {
    return looks_left_ == 0 || pools_.empty() ? -1 : kFirstLookMs << (kLooks - looks_left_);
  }
  void look_again();
  // Sets a limit of the call's context. What kernels' heap and printf have beyond the default is
  // charged.
  CUresult set_limit(CUlimit limit, uint64_t value);
  // The primary context of a slot is reset: its pools hold nothing.
  void forget_slot(uint32_t slot);

 private:
  struct Pool {
    uint32_t slot;
    uint64_t charged = 0;
  };
  struct Block {
    CUmemoryPool pool;
    uint64_t bytes;
  };
  struct Limit {
    uint64_t by_default = 0;
    uint64_t charged = 0;  // the key in the charge
  };
  bool settle(CUmemoryPool handle, Pool* pool);
  void give_up(uint32_t slot);

  static constexpr int kLooks = 8, kFirstLookMs = 20;
  Executor& w_;
  int looks_left_ = 0;
  bool has_graphs_ = false;
  std::unordered_map<CUgraphExec, uint64_t> needs_;
  std::unordered_map<CUmemoryPool, Pool> pools_;
  std::unordered_map<CUdeviceptr, Block> blocks_;
  std::map<std::pair<const WorkerContext*, CUlimit>, Limit> limits_;
};

}  // namespace tendril::worker::cuda
