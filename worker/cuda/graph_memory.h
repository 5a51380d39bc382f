// SPDX-License-Identifier: Apache-2.0
// What graphs' own memory costs the slice. A driver takes memory for allocation nodes when a graph is launched, keeps it for
// later launches and gives it back when it is trimmed. So a launch is let through when what it may need beyond the memory
// held already still fits the quota, and after it the slice is charged what the driver holds. Executor thread.
#pragma once

#include <cstdint>
#include <unordered_map>

#include "worker/cuda/executor.h"

namespace tendril::worker::cuda {

class GraphMemory {
 public:
  // Until the first allocation node there is nothing to do for any graph.
  bool used() const { return used_; }
  void use() { used_ = true; }
  // Notes how much the allocation nodes of `exec`, made from `graph`, may take. True: it has such nodes, or frees memory of
  // others.
  bool instantiated(gpu::Driver& driver, CUgraphExec exec, CUgraph graph);
  // False: the launch could pass the quota.
  bool before_launch(Executor& w, CUgraphExec exec);
  // Charges a slot with what the driver holds for graphs of its device now.
  void settle(Executor& w, uint32_t slot);

 private:
  bool used_ = false;
  std::unordered_map<CUgraphExec, uint64_t> needs_;
};

}  // namespace tendril::worker::cuda
