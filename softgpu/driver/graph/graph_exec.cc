// SPDX-License-Identifier: Apache-2.0
// Instantiated graphs: a list of works in topological order that one stream operation replays.

#include <algorithm>
#include <cstring>

#include "softgpu/driver/code/module.h"
#include "softgpu/driver/entry.h"
#include "softgpu/driver/graph/conditional.h"
#include "softgpu/driver/graph/graph_params.h"
#include "softgpu/driver/graph/graph_run.h"
#include "softgpu/driver/memory/card_memory.h"

namespace tendril::softgpu {
namespace {

constexpr uint64_t kFlags =
    CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD |
    CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;

bool wants(uint64_t flags, CUgraphInstantiate_flags one) { return (flags & one) != 0; }

// Kernels may launch graphs that contain kernels, copies and memsets only.
bool device_can_launch(const std::vector<NodePtr>& nodes) {
  return std::all_of(nodes.begin(), nodes.end(), [](const NodePtr& node) {
    const CUgraphNodeType type = node->work->type();
    if (type == CU_GRAPH_NODE_TYPE_GRAPH)
      return device_can_launch(static_cast<ChildWork&>(*node->work).graph->nodes);
    return type == CU_GRAPH_NODE_TYPE_KERNEL || type == CU_GRAPH_NODE_TYPE_MEMCPY ||
           type == CU_GRAPH_NODE_TYPE_MEMSET;
  });
}

base::GraphCost cost_of(const std::vector<NodePtr>& nodes);

base::GraphCost cost_of(const Work& work) {
  base::GraphCost cost;
  if (work.type() == CU_GRAPH_NODE_TYPE_KERNEL)
    cost.parameter_bytes = static_cast<const KernelWork&>(work).params.size();
  else if (work.type() == CU_GRAPH_NODE_TYPE_GRAPH)
    cost = cost_of(static_cast<const ChildWork&>(work).graph->nodes);
  else if (work.type() == CU_GRAPH_NODE_TYPE_CONDITIONAL)
    for (const GraphPtr& body : static_cast<const ConditionalWork&>(work).bodies)
      cost.add(cost_of(body->nodes));
  return cost;
}

base::GraphCost cost_of(const std::vector<NodePtr>& nodes) {
  base::GraphCost cost;
  std::map<const GraphNode*, uint32_t> numbers;
  for (const NodePtr& node : nodes)
    numbers.emplace(node.get(), static_cast<uint32_t>(numbers.size()));
  std::vector<std::pair<uint32_t, uint32_t>> edges;
  for (const NodePtr& node : nodes) {
    for (const auto& edge : node->dependencies)
      edges.emplace_back(numbers.at(edge.from.get()), numbers.at(node.get()));
    cost.add(cost_of(*node->work));
  }
  cost.nodes += nodes.size();
  cost.branches += base::graph_branches(nodes.size(), edges);
  return cost;
}

// With costs=card an instance takes device memory.
bool take_memory(Context& context, const std::vector<NodePtr>& nodes, GraphExec* exec) {
  if (!costs_as_card()) return true;
  const uint64_t bytes = cost_of(nodes).bytes();
  if (!context.reserve_graph(bytes)) return false;
  exec->context = context.handle;
  exec->device_bytes = bytes;
  return true;
}

CUresult instantiate(CUgraphExec* out, CUgraph handle, uint64_t flags,
                     CUgraphInstantiateResult* outcome) {
  *outcome = CUDA_GRAPH_INSTANTIATE_ERROR;
  SOFT_CONTEXT(context);
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  GraphPtr graph = graphs().get(handle);
  if (!graph) return CUDA_ERROR_INVALID_VALUE;
  if ((flags & ~kFlags) != 0) return CUDA_ERROR_INVALID_VALUE;
  const bool from_kernels = wants(flags, CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH);
  if (from_kernels && wants(flags, CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH))
    return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard guard(capture_lock());
  std::vector<NodePtr> order;
  if (!graph->sorted(&order)) {
    *outcome = CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE;
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (from_kernels && !device_can_launch(order)) {
    *outcome = CUDA_GRAPH_INSTANTIATE_NODE_OPERATION_NOT_SUPPORTED;
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  bool unused = false;
  std::vector<std::shared_ptr<Condition>> conditions = conditions_of(*graph, &unused);
  if (unused) {
    *outcome = CUDA_GRAPH_INSTANTIATE_CONDITIONAL_HANDLE_UNUSED;
    return CUDA_ERROR_INVALID_VALUE;
  }
  auto made = std::make_shared<GraphExec>();
  if (!take_memory(*context, order, made.get())) return CUDA_ERROR_OUT_OF_MEMORY;
  made->flags = flags;
  made->uploaded = wants(flags, CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD);
  for (const NodePtr& node : order) {
    GraphExec::Item item;
    item.original = node->handle;
    item.type = node->work->type();
    item.work = node->work->clone();
    for (const auto& edge : node->dependencies) item.dependencies.push_back(edge.from->handle);
    made->items.push_back(std::move(item));
  }
  made->conditions = std::move(conditions);
  made->user_objects = graph->user_objects;
  made->handle = graph_execs().add(made);
  *out = made->handle;
  *outcome = CUDA_GRAPH_INSTANTIATE_SUCCESS;
  return CUDA_SUCCESS;
}

CUresult instantiate(CUgraphExec* out, CUgraph handle, uint64_t flags) {
  CUgraphInstantiateResult outcome;
  return instantiate(out, handle, flags, &outcome);
}

// A node of a child graph.
CUresult replace_deeper(GraphExec& exec, CUgraphNode node, CUgraphNodeType type,
                        const WorkPtr& work) {
  for (GraphExec::Item& item : exec.items) {
    if (item.type != CU_GRAPH_NODE_TYPE_GRAPH) continue;
    WorkPtr changed = static_cast<const ChildWork&>(*item.work).with(node, type, work);
    if (!changed) continue;
    item.work = std::move(changed);
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

template <typename Make>
CUresult replace(CUgraphExec exec_handle, CUgraphNode node, CUgraphNodeType type, Make make) {
  auto exec = graph_execs().get(exec_handle);
  if (!exec) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard guard(capture_lock());
  GraphExec::Item* item = exec->find(node);
  if (item != nullptr && item->type != type) return CUDA_ERROR_INVALID_VALUE;
  WorkPtr work;
  if (CUresult bad = make(&work)) return bad;
  if (item == nullptr) return replace_deeper(*exec, node, type, work);
  if (type == CU_GRAPH_NODE_TYPE_KERNEL)
    static_cast<KernelWork&>(*work).cooperative = static_cast<KernelWork&>(*item->work).cooperative;
  item->work = std::move(work);
  return CUDA_SUCCESS;
}

// Whether the nodes of `order` depend on each other as the items of the instance do. Positions
// stand for nodes.
bool same_edges(const GraphExec& exec, const std::vector<NodePtr>& order) {
  std::map<CUgraphNode, size_t> exec_at, graph_at;
  for (size_t i = 0; i < order.size(); ++i) {
    exec_at[exec.items[i].original] = i;
    graph_at[order[i]->handle] = i;
  }
  for (size_t i = 0; i < order.size(); ++i) {
    std::set<size_t> ours, theirs;
    for (CUgraphNode from : exec.items[i].dependencies) ours.insert(exec_at[from]);
    for (const auto& edge : order[i]->dependencies) theirs.insert(graph_at[edge.from->handle]);
    if (ours != theirs) return false;
  }
  return true;
}

}  // namespace

GraphExec::~GraphExec() {
  const ContextPtr owner = device_bytes != 0 ? contexts().get(context) : nullptr;
  if (owner != nullptr) owner->release_graph(device_bytes);
}

SOFT(cuGraphInstantiateWithFlags)
(CUgraphExec* phGraphExec, CUgraph hGraph, unsigned long long flags) {
  return instantiate(phGraphExec, hGraph, flags);
}

SOFT(cuGraphInstantiate_v2)
(CUgraphExec* phGraphExec, CUgraph hGraph, CUgraphNode* phErrorNode, char* logBuffer,
 size_t bufferSize) {
  if (phErrorNode != nullptr) *phErrorNode = nullptr;
  if (logBuffer != nullptr && bufferSize != 0) *logBuffer = '\0';
  return instantiate(phGraphExec, hGraph, 0);
}

SOFT(cuGraphInstantiate)
(CUgraphExec* exec, CUgraph graph, CUgraphNode* node, char* log, size_t bytes) {
  return soft_cuGraphInstantiate_v2(exec, graph, node, log, bytes);
}

SOFT(cuGraphInstantiateWithParams)
(CUgraphExec* phGraphExec, CUgraph hGraph, CUDA_GRAPH_INSTANTIATE_PARAMS* params) {
  if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  params->hErrNode_out = nullptr;
  return instantiate(phGraphExec, hGraph, params->flags, &params->result_out);
}

SOFT(cuGraphExecDestroy)(CUgraphExec hGraphExec) {
  return graph_execs().remove(hGraphExec) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

SOFT(cuGraphExecGetFlags)(CUgraphExec hGraphExec, cuuint64_t* flags) {
  auto exec = graph_execs().get(hGraphExec);
  if (!exec || flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *flags = exec->flags;
  return CUDA_SUCCESS;
}

SOFT(cuGraphLaunch)(CUgraphExec hGraph, CUstream hStream) {
  auto exec = graph_execs().get(hGraph);
  if (!exec) return CUDA_ERROR_INVALID_VALUE;
  StreamPtr stream;
  ContextPtr context;
  if (CUresult bad = find_stream(hStream, &stream, &context)) return bad;
  auto launch = std::make_shared<const GraphLaunch>(snapshot_of(*exec));
  std::vector<int> devices;
  if (CUresult bad = launch_graph_memory(*exec, stream.get(), &devices)) return bad;
  exec->uploaded = true;
  auto all = std::make_shared<CallWork>();
  all->call = [launch, devices, order = stream.get()](Context& context) {
    GraphRun::run(context, *launch);
    graph_memory_ended(order, devices);
    return CUDA_SUCCESS;
  };
  SubmitOptions options;
  options.allow_capture = false;
  const CUresult result = submit_work(hStream, std::move(all), options);
  if (result != CUDA_SUCCESS) graph_memory_ended(stream.get(), devices);
  return result;
}

SOFT(cuGraphUpload)(CUgraphExec hGraph, CUstream hStream) {
  StreamPtr stream;
  ContextPtr context;
  auto exec = graph_execs().get(hGraph);
  if (!exec) return CUDA_ERROR_INVALID_VALUE;
  if (CUresult bad = find_stream(hStream, &stream, &context)) return bad;
  exec->uploaded = true;
  return CUDA_SUCCESS;
}

SOFT(cuGraphExecKernelNodeSetParams_v2)
(CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS* p) {
  if (p == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return replace(exec, node, CU_GRAPH_NODE_TYPE_KERNEL,
                 [&](WorkPtr* out) { return kernel_work(*p, out); });
}

SOFT(cuGraphExecKernelNodeSetParams)
(CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1* p) {
  CUDA_KERNEL_NODE_PARAMS wide = {};
  if (p == nullptr) return CUDA_ERROR_INVALID_VALUE;
  memcpy(&wide, p, sizeof *p);
  return soft_cuGraphExecKernelNodeSetParams_v2(exec, node, &wide);
}

SOFT(cuGraphExecMemcpyNodeSetParams)
(CUgraphExec exec, CUgraphNode node, const CUDA_MEMCPY3D* p, CUcontext ctx) {
  if (p == nullptr || !contexts().get(ctx)) return CUDA_ERROR_INVALID_VALUE;
  return replace(exec, node, CU_GRAPH_NODE_TYPE_MEMCPY,
                 [&](WorkPtr* out) { return copy_work(*p, out); });
}

SOFT(cuGraphExecMemsetNodeSetParams)
(CUgraphExec exec, CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS* p, CUcontext ctx) {
  if (p == nullptr || !contexts().get(ctx)) return CUDA_ERROR_INVALID_VALUE;
  return replace(exec, node, CU_GRAPH_NODE_TYPE_MEMSET,
                 [&](WorkPtr* out) { return memset_work(*p, out); });
}

SOFT(cuGraphExecHostNodeSetParams)
(CUgraphExec exec, CUgraphNode node, const CUDA_HOST_NODE_PARAMS* p) {
  if (p == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return replace(exec, node, CU_GRAPH_NODE_TYPE_HOST,
                 [&](WorkPtr* out) { return host_work(*p, out); });
}

SOFT(cuGraphExecChildGraphNodeSetParams)(CUgraphExec exec, CUgraphNode node, CUgraph childGraph) {
  return replace(exec, node, CU_GRAPH_NODE_TYPE_GRAPH,
                 [&](WorkPtr* out) { return child_work(childGraph, out); });
}

SOFT(cuGraphExecEventRecordNodeSetEvent)(CUgraphExec exec, CUgraphNode node, CUevent event) {
  return replace(exec, node, CU_GRAPH_NODE_TYPE_EVENT_RECORD,
                 [&](WorkPtr* out) { return event_work(event, true, out); });
}

SOFT(cuGraphExecEventWaitNodeSetEvent)(CUgraphExec exec, CUgraphNode node, CUevent event) {
  return replace(exec, node, CU_GRAPH_NODE_TYPE_WAIT_EVENT,
                 [&](WorkPtr* out) { return event_work(event, false, out); });
}

SOFT(cuGraphExecBatchMemOpNodeSetParams)
(CUgraphExec exec, CUgraphNode node, const CUDA_BATCH_MEM_OP_NODE_PARAMS* p) {
  if (p == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return replace(exec, node, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP,
                 [&](WorkPtr* out) { return mem_op_work(*p, out); });
}

SOFT(cuGraphExecNodeSetParams)(CUgraphExec exec, CUgraphNode node, CUgraphNodeParams* p) {
  if (p == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return replace(exec, node, p->type, [&](WorkPtr* out) { return work_from(p, out); });
}

SOFT(cuGraphNodeSetEnabled)(CUgraphExec hGraphExec, CUgraphNode hNode, unsigned int isEnabled) {
  auto exec = graph_execs().get(hGraphExec);
  if (!exec) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard guard(capture_lock());
  GraphExec::Item* item = exec->find(hNode);
  if (item == nullptr || item->type > CU_GRAPH_NODE_TYPE_MEMSET) return CUDA_ERROR_INVALID_VALUE;
  item->enabled = isEnabled != 0;
  return CUDA_SUCCESS;
}

SOFT(cuGraphNodeGetEnabled)(CUgraphExec hGraphExec, CUgraphNode hNode, unsigned int* isEnabled) {
  auto exec = graph_execs().get(hGraphExec);
  if (!exec || isEnabled == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard guard(capture_lock());
  GraphExec::Item* item = exec->find(hNode);
  if (item == nullptr || item->type > CU_GRAPH_NODE_TYPE_MEMSET) return CUDA_ERROR_INVALID_VALUE;
  *isEnabled = item->enabled;
  return CUDA_SUCCESS;
}

SOFT(cuGraphExecUpdate_v2)
(CUgraphExec hGraphExec, CUgraph hGraph, CUgraphExecUpdateResultInfo* info) {
  auto exec = graph_execs().get(hGraphExec);
  GraphPtr graph = graphs().get(hGraph);
  if (!exec || !graph || info == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard guard(capture_lock());
  *info = {};
  std::vector<NodePtr> order;
  if (!graph->sorted(&order) || order.size() != exec->items.size() || !same_edges(*exec, order)) {
    info->result = CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
    return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
  }
  for (size_t i = 0; i < order.size(); ++i) {
    if (order[i]->work->type() == exec->items[i].type) continue;
    info->result = CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
    info->errorNode = order[i]->handle;
    return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
  }
  for (size_t i = 0; i < order.size(); ++i) exec->items[i].work = order[i]->work->clone();
  bool unused = false;  // and does no harm
  exec->conditions = conditions_of(*graph, &unused);
  exec->user_objects = graph->user_objects;
  return CUDA_SUCCESS;
}

SOFT(cuGraphExecUpdate)
(CUgraphExec exec, CUgraph graph, CUgraphNode* hErrorNode_out,
 CUgraphExecUpdateResult* updateResult_out) {
  CUgraphExecUpdateResultInfo info = {};
  CUresult result = soft_cuGraphExecUpdate_v2(exec, graph, &info);
  if (hErrorNode_out != nullptr) *hErrorNode_out = info.errorNode;
  if (updateResult_out != nullptr) *updateResult_out = info.result;
  return result;
}

}  // namespace tendril::softgpu
