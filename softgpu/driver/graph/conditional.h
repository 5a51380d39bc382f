// SPDX-License-Identifier: Apache-2.0
// Conditional nodes. A handle stands for a value that kernels of the graph set
// (cudaGraphSetConditional). When the graph reaches the node, the value decides which body runs.
// Any thread.
#pragma once

#include <atomic>

#include "softgpu/driver/graph/graph.h"

namespace tendril::softgpu {

struct Condition {
  CUgraphConditionalHandle handle = 0;
  unsigned initial = 0;
  bool assign_initial = false;  // at each launch
  std::atomic<bool> has_node{false};
  std::atomic<unsigned> value{0};
};

// The device function of the same name. A handle that does not exist changes nothing.
void set_condition(uint64_t handle, unsigned value);

struct ConditionalWork : Work {
  std::shared_ptr<Condition> condition;
  CUgraphConditionalNodeType kind = CU_GRAPH_COND_TYPE_IF;
  std::vector<GraphPtr> bodies;  // its own copies, which the table of handles also knows
  std::vector<CUgraph> handles;  // handles of the bodies, which the program may use
  ~ConditionalWork() override;
  CUgraphNodeType type() const override { return CU_GRAPH_NODE_TYPE_CONDITIONAL; }
  CUresult run(Context& context) override;
  WorkPtr clone() const override;
};

// Sets every condition of a graph and of the bodies in it to the value with which a launch starts.
void start_conditions(const std::vector<std::shared_ptr<Condition>>& conditions);
// The conditions of a graph and of what it contains. `unused` is set if one has no node.
std::vector<std::shared_ptr<Condition>> conditions_of(const Graph& graph, bool* unused);

}  // namespace tendril::softgpu
