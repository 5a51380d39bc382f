// SPDX-License-Identifier: Apache-2.0
// The graph structure. The calls are in graph_calls.cc (structure), graph_nodes.cc (parameters) and
// graph_exec.cc (instances).

#include "softgpu/driver/graph/graph.h"

#include <algorithm>

namespace tendril::softgpu {

GraphTable& graphs() {
  static auto& table = *new GraphTable;
  return table;
}
NodeTable& graph_nodes() {
  static auto& table = *new NodeTable;
  return table;
}
ExecTable& graph_execs() {
  static auto& table = *new ExecTable;
  return table;
}

GraphPtr make_graph() {
  auto made = std::make_shared<Graph>();
  made->handle = graphs().mint();
  graphs().put(made->handle, made);
  return made;
}

Graph::~Graph() {
  for (const NodePtr& node : nodes) {
    graph_nodes().remove(node->handle);
    node->dependencies.clear();
  }
}

NodePtr Graph::add(WorkPtr work, const std::vector<NodePtr>& dependencies) {
  auto node = std::make_shared<GraphNode>();
  node->work = std::move(work);
  node->graph = weak_from_this();
  for (const NodePtr& from : dependencies) node->dependencies.push_back({from, {}});
  node->handle = graph_nodes().add(node);
  nodes.push_back(node);
  return node;
}

bool Graph::sorted(std::vector<NodePtr>* out) const {
  std::map<const GraphNode*, size_t> missing;
  std::map<const GraphNode*, std::vector<NodePtr>> dependents;
  std::vector<NodePtr> ready;
  for (const NodePtr& node : nodes) {
    missing[node.get()] = node->dependencies.size();
    for (const auto& edge : node->dependencies) dependents[edge.from.get()].push_back(node);
    if (node->dependencies.empty()) ready.push_back(node);
  }
  out->clear();
  for (size_t at = 0; at < ready.size(); ++at) {
    NodePtr node = ready[at];
    out->push_back(node);
    for (const NodePtr& next : dependents[node.get()])
      if (--missing[next.get()] == 0) ready.push_back(next);
  }
  return out->size() == nodes.size();
}

GraphPtr Graph::clone(std::map<CUgraphNode, CUgraphNode>* mapping) const {
  GraphPtr copy = make_graph();
  std::map<const GraphNode*, NodePtr> made;
  for (const NodePtr& node : nodes) {
    NodePtr twin = copy->add(node->work->clone(), {});
    twin->original = node->handle;
    twin->attributes = node->attributes;
    made[node.get()] = twin;
    if (mapping != nullptr) (*mapping)[node->handle] = twin->handle;
  }
  copy->conditions = conditions;
  copy->user_objects = user_objects;
  for (const NodePtr& node : nodes)
    for (const auto& edge : node->dependencies)
      made[node.get()]->dependencies.push_back({made[edge.from.get()], edge.data});
  return copy;
}

CUresult ChildWork::run(Context& context) {
  std::vector<WorkPtr> works;
  {
    std::lock_guard guard(capture_lock());
    std::vector<NodePtr> order;
    graph->sorted(&order);
    for (const NodePtr& node : order) works.push_back(node->work);
  }
  for (const WorkPtr& work : works) run_work(context, *work);
  return CUDA_SUCCESS;
}

WorkPtr ChildWork::clone() const {
  auto copy = std::make_shared<ChildWork>();
  copy->graph = graph->clone();
  copy->graph->owned = true;
  return copy;
}

WorkPtr ChildWork::with(CUgraphNode original, CUgraphNodeType type, const WorkPtr& other) const {
  auto copy = std::make_shared<ChildWork>();
  copy->graph = graph->clone();
  copy->graph->owned = true;
  bool found = false;
  for (size_t i = 0; i < graph->nodes.size(); ++i) {
    const GraphNode& ours = *graph->nodes[i];
    GraphNode& twin = *copy->graph->nodes[i];
    twin.original = ours.original;
    if (ours.original == original && ours.work->type() == type) {
      twin.work = other;
      found = true;
    } else if (ours.work->type() == CU_GRAPH_NODE_TYPE_GRAPH) {
      WorkPtr deeper = static_cast<const ChildWork&>(*ours.work).with(original, type, other);
      if (!deeper) continue;
      twin.work = std::move(deeper);
      found = true;
    }
  }
  return found ? copy : nullptr;
}

GraphExec::Item* GraphExec::find(CUgraphNode node) {
  auto found = std::find_if(items.begin(), items.end(),
                            [&](const Item& item) { return item.original == node; });
  return found == items.end() ? nullptr : &*found;
}

CUresult find_nodes(const CUgraphNode* handles, size_t count, const Graph* graph,
                    std::vector<NodePtr>* out) {
  out->clear();
  if (count != 0 && handles == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (graph != nullptr && count > graph->nodes.size()) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count; ++i) {
    check_live(handles[i]);
    NodePtr node = graph_nodes().get(handles[i]);
    if (!node || (graph != nullptr && node->graph.lock().get() != graph))
      return CUDA_ERROR_INVALID_VALUE;
    out->push_back(std::move(node));
  }
  return CUDA_SUCCESS;
}

}  // namespace tendril::softgpu
