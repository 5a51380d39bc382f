// SPDX-License-Identifier: Apache-2.0
// See graph_sizes.h.
#include "worker/cuda/memory/graph_sizes.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "worker/cuda/memory/context_memory.h"

namespace tendril::worker::cuda {
namespace {

constexpr uint64_t kParameterBytesMost = 32'764;  // of a kernel (CUDA 12.1)

CUgraphNodeType type_of(gpu::Driver& driver, CUgraphNode node) {
  CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
  return driver.cuGraphNodeGetType(node, &type) == CUDA_SUCCESS ? type : CU_GRAPH_NODE_TYPE_EMPTY;
}

// Dependencies as pairs of positions in `nodes`.
std::vector<std::pair<uint32_t, uint32_t>> edges_of(gpu::Driver& driver, CUgraph graph,
                                                    const std::vector<CUgraphNode>& nodes) {
  size_t count = edges_in(driver, graph);
  std::vector<CUgraphNode> from(count), to(count);
  std::vector<CUgraphEdgeData> data(count);
  if (count == 0 ||
      driver.cuGraphGetEdges_v2(graph, from.data(), to.data(), data.data(), &count) != CUDA_SUCCESS)
    return {};
  std::unordered_map<CUgraphNode, uint32_t> positions;
  for (const CUgraphNode node : nodes)
    positions.emplace(node, static_cast<uint32_t>(positions.size()));
  std::vector<std::pair<uint32_t, uint32_t>> edges;
  for (size_t i = 0; i < count; ++i) {
    const auto first = positions.find(from[i]), second = positions.find(to[i]);
    if (first != positions.end() && second != positions.end())
      edges.emplace_back(first->second, second->second);
  }
  return edges;
}

}  // namespace

std::vector<CUgraphNode> GraphSizes::list(CUgraph graph) {
  size_t count = 0;
  if (w_.driver().cuGraphGetNodes(graph, nullptr, &count) != CUDA_SUCCESS) count = 0;
  std::vector<CUgraphNode> nodes(count);
  if (count != 0 && w_.driver().cuGraphGetNodes(graph, nodes.data(), &count) != CUDA_SUCCESS)
    count = 0;
  nodes.resize(count);
  return nodes;
}

std::vector<CUgraph> GraphSizes::graphs_in(CUgraphNode node, CUgraphNodeType type) {
  CUgraph child = nullptr;
  if (type == CU_GRAPH_NODE_TYPE_GRAPH &&
      w_.driver().cuGraphChildGraphNodeGetGraph(node, &child) == CUDA_SUCCESS)
    return {child};
  const auto bodies = bodies_.find(node);
  return type == CU_GRAPH_NODE_TYPE_CONDITIONAL && bodies != bodies_.end() ? bodies->second
                                                                           : std::vector<CUgraph>();
}

uint64_t GraphSizes::nodes_of(CUgraph graph) { return nodes_of(graph, kDepthMax); }
uint64_t GraphSizes::nodes_in(CUgraphNode node) { return nodes_in(node, kDepthMax); }

uint64_t GraphSizes::nodes_of(CUgraph graph, int depth) {
  uint64_t count = graph_size(w_.driver(), graph);
  if (!nested_) return count;
  for (const CUgraphNode node : list(graph)) count += nodes_in(node, depth);
  return count;
}

uint64_t GraphSizes::nodes_in(CUgraphNode node, int depth) {
  uint64_t count = 0;
  if (!nested_ || depth == 0) return 0;
  for (const CUgraph graph : graphs_in(node, type_of(w_.driver(), node)))
    count += nodes_of(graph, depth - 1);
  return count;
}

bool GraphSizes::take(const void* holder, uint64_t nodes) {
  if (!w_.objects().add_nameless(nodes)) return false;
  if (nodes != 0) held_[holder] += nodes;
  return true;
}

void GraphSizes::give_back(const void* holder, uint64_t nodes) {
  const auto held = held_.find(holder);
  if (held == held_.end()) return;
  const uint64_t back = nodes < held->second ? nodes : held->second;
  w_.objects().drop_nameless(back);
  held->second -= back;
  if (held->second == 0) held_.erase(held);
}

void GraphSizes::add_bodies(CUgraphNode node, const CUgraph* bodies, size_t count) {
  nest();
  bodies_[node].assign(bodies, bodies + count);
}

// What a call adds at most is known at once, what streams have captured only when the driver is
// asked. So it is asked when the sum of the former reaches the limit.
bool GraphSizes::may_capture(uint64_t nodes_most) {
  if (may_have(captured_at_most_ + nodes_most)) {
    captured_at_most_ += nodes_most;
    return true;
  }
  captured_at_most_ = w_.streams().nodes_captured();
  if (!may_have(captured_at_most_ + nodes_most)) return false;
  captured_at_most_ += nodes_most;
  return true;
}

uint64_t GraphSizes::parameter_bytes(CUgraphNode node) {
  gpu::Driver& driver = w_.driver();
  CUDA_KERNEL_NODE_PARAMS node_parameters{};
  if (driver.cuGraphKernelNodeGetParams_v2(node, &node_parameters) != CUDA_SUCCESS) return 0;
  // The code may have been unloaded since, or the driver has made a function of the kernel.
  const bool in_module = w_.objects().knows(Kind::kFunction, node_parameters.func);
  const CUfunction function = in_module ? node_parameters.func : nullptr;
  const CUkernel kernel = node_parameters.kern;
  if (!in_module && !w_.objects().knows(Kind::kKernel, kernel)) return kParameterBytesMost;
  const void* const key = function != nullptr ? static_cast<const void*>(function) : kernel;
  const auto known = parameters_.find(key);
  if (known != parameters_.end()) return known->second;
  uint64_t bytes = 0;
  for (size_t i = 0;; ++i) {
    size_t offset = 0, size = 0;
    const CUresult result = function != nullptr
                                ? driver.cuFuncGetParamInfo(function, i, &offset, &size)
                                : driver.cuKernelGetParamInfo(kernel, i, &offset, &size);
    if (result != CUDA_SUCCESS) break;
    bytes = offset + size;
  }
  parameters_[key] = bytes;
  return bytes;
}

base::GraphCost GraphSizes::cost_in(CUgraphNode node, int depth) {
  base::GraphCost cost;
  const CUgraphNodeType type = type_of(w_.driver(), node);
  if (type == CU_GRAPH_NODE_TYPE_KERNEL) cost.add_kernel(parameter_bytes(node));
  if (!nested_ || depth == 0) return cost;
  for (const CUgraph graph : graphs_in(node, type)) cost.add(cost_of(graph, depth - 1));
  return cost;
}

base::GraphCost GraphSizes::cost_of(CUgraph graph, int depth) {
  base::GraphCost cost;
  const std::vector<CUgraphNode> nodes = list(graph);
  for (const CUgraphNode node : nodes) cost.add(cost_in(node, depth));
  cost.nodes += nodes.size();
  cost.branches += base::graph_branches(nodes.size(), edges_of(w_.driver(), graph, nodes));
  return cost;
}

bool GraphSizes::before_instance(CUgraph graph) {
  next_bytes_ = 0;
  next_nodes_ = nodes_of(graph);
  if (!may_have(next_nodes_)) return false;
  if (w_.charge().context_bytes(w_.slot()) == 0) return true;  // this driver's graphs cost nothing
  parameters_.clear();  // functions may have ended since the last time
  next_cost_ = cost_of(graph, kDepthMax);
  next_bytes_ = next_cost_.bytes();
  return w_.context_memory().take_graph(next_bytes_);
}

void GraphSizes::instantiated(CUgraphExec exec) {
  take(exec, next_nodes_);
  if (next_bytes_ == 0) return;
  w_.context_memory().began(exec, next_bytes_);
  instances_[exec] = next_cost_;
}

void GraphSizes::not_instantiated() { w_.context_memory().refused_graph(next_bytes_); }

bool GraphSizes::may_change(CUgraphExec exec, uint64_t largest_bytes) {
  const auto found = instances_.find(exec);
  if (found == instances_.end()) return true;
  base::GraphCost cost = found->second;
  cost.largest_bytes = std::max(cost.largest_bytes, largest_bytes);
  if (!w_.context_memory().grow(exec, cost.bytes_once_changed())) return false;
  found->second = cost;
  return true;
}

bool GraphSizes::may_change(CUgraphExec exec, CUgraph graph) {
  if (instances_.count(exec) == 0) return true;
  parameters_.clear();
  return may_change(exec, cost_of(graph, kDepthMax).largest_bytes);
}

// As with captures: the driver is asked when the sum of what was asked for reaches the limit.
bool GraphSizes::may_link(uint64_t edges) {
  const uint64_t most = w_.objects().most() * kEdgesOfObject;
  if (edges_at_most_ + edges > most) {
    std::unordered_set<void*> graphs;  // one may have several ids
    w_.objects().for_each(Kind::kGraph, [&](uint64_t, void* graph) { graphs.insert(graph); });
    edges_at_most_ = 0;
    for (void* graph : graphs) edges_at_most_ += edges_in(w_.driver(), static_cast<CUgraph>(graph));
  }
  if (edges_at_most_ + edges > most) return false;
  edges_at_most_ += edges;
  return true;
}

void GraphSizes::ended(const void* object) {
  give_back(object, UINT64_MAX);
  instances_.erase(object);
  bodies_.erase(object);
}

}  // namespace tendril::worker::cuda
