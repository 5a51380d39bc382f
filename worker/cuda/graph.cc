// SPDX-License-Identifier: Apache-2.0
// Handlers of the `op` lines of api/cuda/graph.spec.
#include <cstring>

#include "api/cuda_handlers.gen.h"
#include "worker/cuda/executor/scope.h"
#include "worker/cuda/executor/waits.h"
#include "worker/cuda/function.h"
#include "worker/cuda/graphs.h"
#include "worker/cuda/memory/graph_sizes.h"
#include "worker/cuda/memory/kept_memory.h"

namespace tendril::worker::cuda {

using wire::cuda::GraphListKind;
using wire::cuda::NodeChange;
namespace {

constexpr size_t kNodesMax = 1u << 20;

wire::Bytes data_of(const CUgraphEdgeData* data, size_t count) {
  return {reinterpret_cast<const uint8_t*>(data), count * sizeof *data};
}

// The graph of a node. Null: the node's id is of another kind.
CUgraph graph_of(Executor& executor, uint64_t node) {
  return static_cast<CUgraph>(const_cast<void*>(executor.objects().owner(node)));
}

bool is_captured_into(Executor& executor, CUgraph graph) {
  return executor.streams().captures_into(graph) || executor.graphs().captures_into(graph);
}

CUresult list_edges(Executor& executor, Scope& scope, CUgraph graph,
                    wire::cuda::graph_list_reply& reply) {
  size_t count = 0;
  CUresult result = executor.driver().cuGraphGetEdges_v2(graph, nullptr, nullptr, nullptr, &count);
  if (result != CUDA_SUCCESS || count > kNodesMax) return result;
  CUgraphNode* from = scope.scratch<CUgraphNode>(count);
  CUgraphNode* to = scope.scratch<CUgraphNode>(count);
  CUgraphEdgeData* data = scope.scratch<CUgraphEdgeData>(count);
  if (!scope.ok()) return scope.error();
  if (count != 0) result = executor.driver().cuGraphGetEdges_v2(graph, from, to, data, &count);
  reply.from = scope.ids(Kind::kNode, from, count);
  reply.to = scope.ids(Kind::kNode, to, count);
  reply.edges = data_of(data, count);
  return result;
}

// Dependencies or dependents of a node, with their edges.
template <typename Ask>
CUresult list_neighbours(Scope& scope, CUgraph graph, wire::cuda::graph_list_reply& reply,
                         Ask ask) {
  size_t count = 0;
  CUresult result = ask(nullptr, nullptr, &count);
  if (result != CUDA_SUCCESS || count > kNodesMax) return result;
  CUgraphNode* nodes = scope.scratch<CUgraphNode>(count);
  CUgraphEdgeData* data = scope.scratch<CUgraphEdgeData>(count);
  if (!scope.ok()) return scope.error();
  if (count != 0) result = ask(nodes, data, &count);
  reply.from = scope.ids(Kind::kNode, nodes, count, graph);
  reply.edges = data_of(data, count);
  return result;
}

// Asks for a count, then for the nodes.
template <typename Ask>
CUresult list_nodes(Scope& scope, wire::cuda::graph_list_reply& reply, Ask ask) {
  size_t count = 0;
  CUresult result = ask(nullptr, &count);
  if (result != CUDA_SUCCESS || count > kNodesMax) return result;
  CUgraphNode* nodes = scope.scratch<CUgraphNode>(count);
  if (!scope.ok()) return scope.error();
  if (count != 0) result = ask(nodes, &count);
  reply.from = scope.ids(Kind::kNode, nodes, count);
  return result;
}

}  // namespace

CUresult handle(Executor& executor, const wire::cuda::graph_launch_request& request) {
  Scope scope(executor);
  CUgraphExec exec = scope.get<CUgraphExec>(Kind::kExec, request.exec);
  CUstream stream = scope.stream(request.stream);
  if (!scope.ok()) return scope.error();
  if (!executor.gate().may_work(executor.context(), stream, request.exec, 1))
    return CUDA_ERROR_UNKNOWN;
  KeptMemory& memory = executor.kept_memory();
  if (!memory.has_graphs()) return executor.driver().cuGraphLaunch(exec, stream);
  executor.waiters().synchronise_owed();  // what streams have freed may make room
  if (!memory.before_launch(exec, request.stream)) return CUDA_ERROR_OUT_OF_MEMORY;
  const CUresult result = executor.driver().cuGraphLaunch(exec, stream);
  memory.settle_graphs(executor.slot());
  return result;
}

CUresult handle(Executor& executor, const wire::cuda::graph_list_request& request,
                wire::cuda::graph_list_reply& reply) {
  Scope scope(executor);
  gpu::Driver& driver = executor.driver();
  const bool of_node =
      request.kind == GraphListKind::kDependencies || request.kind == GraphListKind::kDependents;
  if (!of_node) {
    CUgraph graph = scope.get<CUgraph>(Kind::kGraph, request.object);
    if (!scope.ok()) return scope.error();
    if (request.kind == GraphListKind::kEdges) return list_edges(executor, scope, graph, reply);
    return list_nodes(scope, reply, [&](CUgraphNode* nodes, size_t* count) {
      return request.kind == GraphListKind::kNodes
                 ? driver.cuGraphGetNodes(graph, nodes, count)
                 : driver.cuGraphGetRootNodes(graph, nodes, count);
    });
  }
  CUgraphNode node = scope.get<CUgraphNode>(Kind::kNode, request.object);
  if (!scope.ok()) return scope.error();
  return list_neighbours(
      scope, graph_of(executor, request.object), reply,
      [&](CUgraphNode* nodes, CUgraphEdgeData* data, size_t* count) {
        return request.kind == GraphListKind::kDependencies
                   ? driver.cuGraphNodeGetDependencies_v2(node, nodes, data, count)
                   : driver.cuGraphNodeGetDependentNodes_v2(node, nodes, data, count);
      });
}

CUresult handle(Executor& executor, const wire::cuda::graph_instantiate_request& request,
                wire::cuda::graph_instantiate_reply& reply) {
  Scope scope(executor);
  CUgraph graph = scope.get<CUgraph>(Kind::kGraph, request.graph);
  CUstream upload = scope.stream(request.upload);
  scope.reserve(Kind::kExec, request.exec);
  if (!scope.ok()) return scope.error();
  if (executor.context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  GraphSizes& sizes = executor.graph_sizes();
  if (!sizes.before_instance(graph)) {
    reply.outcome = static_cast<uint32_t>(CUDA_GRAPH_INSTANTIATE_ERROR);
    executor.replies().reply_with_body_anyway();
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  CUgraphExec exec = nullptr;
  CUDA_GRAPH_INSTANTIATE_PARAMS params;
  std::memset(&params, 0, sizeof params);
  params.flags = request.flags;
  params.hUploadStream = upload;
  const CUresult result =
      request.with_params != 0
          ? executor.driver().cuGraphInstantiateWithParams(&exec, graph, &params)
          : executor.driver().cuGraphInstantiateWithFlags(&exec, graph, request.flags);
  reply.outcome = static_cast<uint32_t>(params.result_out);
  reply.node = scope.id(Kind::kNode, params.hErrNode_out);
  executor.replies().reply_with_body_anyway();
  if (result != CUDA_SUCCESS || !executor.objects().bind(Kind::kExec, request.exec, exec)) {
    sizes.not_instantiated();
    if (result != CUDA_SUCCESS) return result;
    executor.driver().cuGraphExecDestroy(exec);
    return CUDA_ERROR_INVALID_HANDLE;
  }
  sizes.instantiated(exec);
  reply.has_memory = executor.kept_memory().instantiated(exec, graph);
  if ((request.flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) != 0)
    reply.device_handle = reinterpret_cast<uint64_t>(exec);
  return CUDA_SUCCESS;
}

CUresult handle(Executor& executor, const wire::cuda::graph_kernel_node_request& request,
                wire::cuda::graph_kernel_node_reply&) {
  Scope scope(executor);
  bool kernel = false;
  CUfunction function = find_function(executor, request.function, &kernel);
  if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  CUresult error = CUDA_SUCCESS;
  const Layout* layout =
      executor.layouts().find(executor, request.function, function, kernel, &error);
  if (layout == nullptr) return error;
  if (request.params.count < layout->bytes) return CUDA_ERROR_INVALID_VALUE;
  void** pointers = scope.scratch<void*>(layout->offsets.size() + 1);
  if (!scope.ok()) return scope.error();
  for (size_t i = 0; i < layout->offsets.size(); ++i)
    pointers[i] = const_cast<uint8_t*>(request.params.data) + layout->offsets[i];
  CUDA_KERNEL_NODE_PARAMS parameters;
  std::memset(&parameters, 0, sizeof parameters);
  if (kernel)
    parameters.kern = reinterpret_cast<CUkernel>(function);
  else
    parameters.func = function;
  if (kernel && executor.context() != nullptr) parameters.ctx = executor.context()->context;
  parameters.gridDimX = request.shape.grid[0];
  parameters.gridDimY = request.shape.grid[1];
  parameters.gridDimZ = request.shape.grid[2];
  parameters.blockDimX = request.shape.block[0];
  parameters.blockDimY = request.shape.block[1];
  parameters.blockDimZ = request.shape.block[2];
  parameters.sharedMemBytes = request.shape.shared_bytes;
  parameters.kernelParams = pointers;
  if (request.change == NodeChange::kAdd) {
    CUgraph graph = scope.get<CUgraph>(Kind::kGraph, request.graph);
    CUgraphNode* dependencies = scope.handles<CUgraphNode>(Kind::kNode, request.dependencies);
    scope.reserve(Kind::kNode, request.node);
    if (!scope.ok()) return scope.error();
    CUgraphNode node = nullptr;
    const CUresult result = executor.driver().cuGraphAddKernelNode_v2(
        &node, graph, dependencies, request.dependencies.count, &parameters);
    if (result == CUDA_SUCCESS) scope.bind(Kind::kNode, request.node, node);
    return result;
  }
  CUgraphNode node = scope.get<CUgraphNode>(Kind::kNode, request.node);
  if (request.change == NodeChange::kSetInNode)
    return scope.ok() ? executor.driver().cuGraphKernelNodeSetParams_v2(node, &parameters)
                      : scope.error();
  CUgraphExec exec = scope.get<CUgraphExec>(Kind::kExec, request.exec);
  if (!scope.ok()) return scope.error();
  if (!executor.graph_sizes().may_change(exec, layout->bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  return executor.driver().cuGraphExecKernelNodeSetParams_v2(exec, node, &parameters);
}

CUresult handle(Executor& executor, const wire::cuda::graph_kernel_change_request& request) {
  wire::cuda::graph_kernel_node_request change;
  wire::cuda::graph_kernel_node_reply unused;
  change.change = NodeChange::kSetInExec;
  change.exec = request.exec;
  change.node = request.node;
  change.function = request.function;
  change.shape = request.shape;
  change.params = request.params;
  return handle(executor, change, unused);
}

CUresult handle(Executor& executor, const wire::cuda::graph_kernel_node_get_request& request,
                wire::cuda::graph_kernel_node_get_reply& reply) {
  Scope scope(executor);
  CUgraphNode node = scope.get<CUgraphNode>(Kind::kNode, request.node);
  if (!scope.ok()) return scope.error();
  CUDA_KERNEL_NODE_PARAMS parameters;
  std::memset(&parameters, 0, sizeof parameters);
  const CUresult result = executor.driver().cuGraphKernelNodeGetParams_v2(node, &parameters);
  if (result != CUDA_SUCCESS) return result;
  // The driver may return a function of its own, which it made from the client's kernel.
  const bool unknown =
      parameters.func == nullptr || !executor.objects().knows(Kind::kFunction, parameters.func);
  const bool kernel = unknown && parameters.kern != nullptr;
  if (!kernel && parameters.func == nullptr) return CUDA_ERROR_UNKNOWN;
  CUfunction function = kernel ? reinterpret_cast<CUfunction>(parameters.kern) : parameters.func;
  // Its code may have been unloaded since.
  reply.function = executor.objects().known_id(kernel ? Kind::kKernel : Kind::kFunction, function);
  if (reply.function == 0) return CUDA_ERROR_INVALID_HANDLE;
  if (parameters.ctx != nullptr && executor.objects().knows(Kind::kContext, parameters.ctx))
    reply.context = executor.objects().id_of(Kind::kContext, parameters.ctx);
  CUresult error = CUDA_SUCCESS;
  const Layout* layout =
      executor.layouts().find(executor, reply.function, function, kernel, &error);
  if (layout == nullptr) return error;
  uint8_t* values = scope.scratch<uint8_t>(layout->bytes);
  if (!scope.ok()) return scope.error();
  for (size_t i = 0; i < layout->offsets.size() && parameters.kernelParams != nullptr; ++i) {
    std::memcpy(values + layout->offsets[i], parameters.kernelParams[i], layout->sizes[i]);
  }
  reply.shape = {{parameters.gridDimX, parameters.gridDimY, parameters.gridDimZ},
                 {parameters.blockDimX, parameters.blockDimY, parameters.blockDimZ},
                 parameters.sharedMemBytes,
                 0};
  reply.params = {values, layout->bytes};
  return CUDA_SUCCESS;
}

CUresult handle(Executor& executor, const wire::cuda::graph_update_request& request,
                wire::cuda::graph_update_reply& reply) {
  Scope scope(executor);
  CUgraphExec exec = scope.get<CUgraphExec>(Kind::kExec, request.exec);
  CUgraph graph = scope.get<CUgraph>(Kind::kGraph, request.graph);
  if (!scope.ok()) return scope.error();
  if (!executor.graph_sizes().may_change(exec, graph)) return CUDA_ERROR_OUT_OF_MEMORY;
  CUgraphExecUpdateResultInfo info;
  std::memset(&info, 0, sizeof info);
  const CUresult result = executor.driver().cuGraphExecUpdate_v2(exec, graph, &info);
  reply.outcome = static_cast<uint32_t>(info.result);
  reply.node = scope.id(Kind::kNode, info.errorNode);
  reply.from = scope.id(Kind::kNode, info.errorFromNode, nullptr);
  executor.replies().reply_with_body_anyway();
  return result;
}

CUresult handle(Executor& executor,
                const wire::cuda::cuGraphExecChildGraphNodeSetParams_request& request,
                wire::cuda::cuGraphExecChildGraphNodeSetParams_reply&) {
  Scope scope(executor);
  CUgraphExec exec = scope.get<CUgraphExec>(Kind::kExec, request.hGraphExec);
  CUgraphNode node = scope.get<CUgraphNode>(Kind::kNode, request.hNode);
  CUgraph child = scope.get<CUgraph>(Kind::kGraph, request.childGraph);
  if (!scope.ok()) return scope.error();
  if (!executor.graph_sizes().may_change(exec, child)) return CUDA_ERROR_OUT_OF_MEMORY;
  return executor.driver().cuGraphExecChildGraphNodeSetParams(exec, node, child);
}

// A graph that belongs to a node ends with the node. A graph into which a stream captures is still
// in use, and so is one with such a graph inside of it.
CUresult handle(Executor& executor, const wire::cuda::cuGraphDestroy_request& request,
                wire::cuda::cuGraphDestroy_reply&) {
  Scope scope(executor);
  CUgraph graph = scope.get<CUgraph>(Kind::kGraph, request.hGraph);
  if (!scope.ok()) return scope.error();
  if (!executor.graphs().is_clients(executor, request.hGraph, graph))
    return CUDA_ERROR_INVALID_VALUE;
  const CUresult result = executor.driver().cuGraphDestroy(graph);
  if (result == CUDA_SUCCESS) scope.unbind(Kind::kGraph, request.hGraph);
  return result;
}

CUresult handle(Executor& executor, const wire::cuda::cuGraphDestroyNode_request& request,
                wire::cuda::cuGraphDestroyNode_reply&) {
  Scope scope(executor);
  CUgraphNode node = scope.get<CUgraphNode>(Kind::kNode, request.hNode);
  if (!scope.ok()) return scope.error();
  if (is_captured_into(executor, graph_of(executor, request.hNode)) ||
      executor.graphs().captures_below(executor, node))
    return CUDA_ERROR_INVALID_VALUE;
  const CUgraph graph = graph_of(executor, request.hNode);
  const uint64_t inside = executor.graph_sizes().nodes_in(node);
  const CUresult result = executor.driver().cuGraphDestroyNode(node);
  if (result != CUDA_SUCCESS) return result;
  executor.graph_sizes().give_back(graph, inside);
  scope.unbind(Kind::kNode, request.hNode);
  return CUDA_SUCCESS;
}

// The copy's nodes have no names.
CUresult handle(Executor& executor, const wire::cuda::cuGraphClone_request& request,
                wire::cuda::cuGraphClone_reply&) {
  Scope scope(executor);
  CUgraph original = scope.get<CUgraph>(Kind::kGraph, request.originalGraph);
  scope.reserve(Kind::kGraph, request.phGraphClone);
  if (!scope.ok()) return scope.error();
  GraphSizes& sizes = executor.graph_sizes();
  const uint64_t nodes = sizes.nodes_of(original);
  if (!sizes.may_have(nodes)) return CUDA_ERROR_OUT_OF_MEMORY;
  CUgraph clone = nullptr;
  const CUresult result = executor.driver().cuGraphClone(&clone, original);
  if (result != CUDA_SUCCESS) return result;
  scope.bind(Kind::kGraph, request.phGraphClone, clone);
  sizes.take(clone, nodes);
  return CUDA_SUCCESS;
}

// The node has a copy of the child graph, whose nodes have no names.
CUresult handle(Executor& executor, const wire::cuda::cuGraphAddChildGraphNode_request& request,
                wire::cuda::cuGraphAddChildGraphNode_reply&) {
  Scope scope(executor);
  scope.length(request.dependencies.count, request.numDependencies, true);
  scope.reserve(Kind::kNode, request.phGraphNode);
  CUgraph graph = scope.get<CUgraph>(Kind::kGraph, request.hGraph);
  CUgraphNode* dependencies = scope.handles<CUgraphNode>(Kind::kNode, request.dependencies);
  CUgraph child = scope.get<CUgraph>(Kind::kGraph, request.childGraph);
  if (!scope.ok()) return scope.error();
  GraphSizes& sizes = executor.graph_sizes();
  const uint64_t nodes = sizes.nodes_of(child);
  if (!sizes.may_have(nodes)) return CUDA_ERROR_OUT_OF_MEMORY;
  CUgraphNode node = nullptr;
  const CUresult result = executor.driver().cuGraphAddChildGraphNode(
      &node, graph, dependencies, request.numDependencies, child);
  if (result != CUDA_SUCCESS) return result;
  sizes.nest();
  sizes.take(graph, nodes);
  scope.bind(Kind::kNode, request.phGraphNode, node);
  return CUDA_SUCCESS;
}

}  // namespace tendril::worker::cuda
