// SPDX-License-Identifier: Apache-2.0
// What graphs take, and whether the session may have more. A client makes many nodes with few
// bytes: it clones graphs, nests them, captures launches, instantiates. A driver takes memory of
// the host for each node, so all count as objects of the session. An instantiated graph takes
// memory of the GPU as well, which the slice pays (docs/decisions/0020-what-a-driver-takes.md).
// Executor thread.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "base/graph_cost.h"
#include "worker/cuda/executor/executor.h"

namespace tendril::worker::cuda {

class GraphSizes {
 public:
  explicit GraphSizes(Executor* executor) : w_(*executor) {}

  // Nodes of a graph, with those of graphs inside it.
  uint64_t nodes_of(CUgraph graph);
  // The same of a node's own graphs; 0 for most nodes.
  uint64_t nodes_in(CUgraphNode node);
  // May the session have so many more nodes that no id names?
  bool may_have(uint64_t nodes) const { return w_.objects().has_room(nodes); }
  // Counts them for a graph or an instance, until it ends. False: there are too many.
  bool take(const void* holder, uint64_t nodes);
  void give_back(const void* holder, uint64_t nodes);

  // From now on graphs may lie in nodes.
  void nest() { nested_ = true; }
  // The driver tells nobody later which graphs a conditional node has.
  void add_bodies(CUgraphNode node, const CUgraph* bodies, size_t count);

  // A call that adds nodes to a graph while streams capture. False: there are too many.
  bool may_capture(uint64_t nodes_most);
  void capture_ended() { captured_at_most_ = w_.streams().nodes_captured(); }

  // Before a graph is instantiated in the call's context. False: out of memory. Then one of the
  // next two.
  bool before_instance(CUgraph graph);
  void instantiated(CUgraphExec exec);
  void not_instantiated();
  // Before kernels of an instance get others, or other parameters: `largest_bytes` of them at most
  // for one kernel, or those of a graph's. False: out of memory.
  bool may_change(CUgraphExec exec, uint64_t largest_bytes);
  bool may_change(CUgraphExec exec, CUgraph graph);
  // Before a call that adds so many edges at most. False: there are too many.
  bool may_link(uint64_t edges);
  // A graph, instance or node has ended.
  void ended(const void* object);

 private:
  static constexpr int kDepthMax = 64;
  uint64_t nodes_of(CUgraph graph, int depth);
  uint64_t nodes_in(CUgraphNode node, int depth);
  base::GraphCost cost_of(CUgraph graph, int depth);
  base::GraphCost cost_in(CUgraphNode node, int depth);
  std::vector<CUgraph> graphs_in(CUgraphNode node, CUgraphNodeType type);
  std::vector<CUgraphNode> list(CUgraph graph);
  uint64_t parameter_bytes(CUgraphNode node);

  Executor& w_;
  bool nested_ = false;
  std::unordered_map<const void*, uint64_t> held_;  // nodes without a name, by graph or instance
  std::unordered_map<const void*, std::vector<CUgraph>> bodies_;  // by conditional node
  std::unordered_map<const void*, uint64_t> parameters_;          // of the functions of one graph
  uint64_t captured_at_most_ = 0;
  uint64_t edges_at_most_ = 0;
  std::unordered_map<const void*, base::GraphCost>
      instances_;                             // by instance, if they cost anything
  uint64_t next_nodes_ = 0, next_bytes_ = 0;  // of the instance that is being made
  base::GraphCost next_cost_;
};

}  // namespace tendril::worker::cuda
