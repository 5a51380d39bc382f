// SPDX-License-Identifier: Apache-2.0
// Handlers of the `op` lines of api/cuda/graph.spec.
#include <cstring>

#include "api/cuda_handlers.gen.h"
#include "worker/cuda/executor/scope.h"
#include "worker/cuda/executor/waits.h"
#include "worker/cuda/function.h"
#include "worker/cuda/memory/kept_memory.h"

namespace tendril::worker::cuda {

using wire::cuda::GraphListKind;
using wire::cuda::NodeChange;
namespace {

constexpr size_t kNodesMax = 1u << 20;

wire::Bytes data_of(const CUgraphEdgeData* data, size_t count) {
  return {reinterpret_cast<const uint8_t*>(data), count * sizeof *data};
}

CUresult list_edges(Executor& w, Scope& s, CUgraph graph, wire::cuda::graph_list_reply& r) {
  size_t count = 0;
  CUresult result = w.driver().cuGraphGetEdges_v2(graph, nullptr, nullptr, nullptr, &count);
  if (result != CUDA_SUCCESS || count > kNodesMax) return result;
  CUgraphNode* from = s.scratch<CUgraphNode>(count);
  CUgraphNode* to = s.scratch<CUgraphNode>(count);
  CUgraphEdgeData* data = s.scratch<CUgraphEdgeData>(count);
  if (!s.ok()) return s.error();
  if (count != 0) result = w.driver().cuGraphGetEdges_v2(graph, from, to, data, &count);
  r.from = s.ids(Kind::kNode, from, count);
  r.to = s.ids(Kind::kNode, to, count);
  r.edges = data_of(data, count);
  return result;
}

// Dependencies or dependents of a node, with their edges.
template <typename Ask>
CUresult list_neighbours(Scope& s, wire::cuda::graph_list_reply& r, Ask ask) {
  size_t count = 0;
  CUresult result = ask(nullptr, nullptr, &count);
  if (result != CUDA_SUCCESS || count > kNodesMax) return result;
  CUgraphNode* nodes = s.scratch<CUgraphNode>(count);
  CUgraphEdgeData* data = s.scratch<CUgraphEdgeData>(count);
  if (!s.ok()) return s.error();
  if (count != 0) result = ask(nodes, data, &count);
  r.from = s.ids(Kind::kNode, nodes, count);
  r.edges = data_of(data, count);
  return result;
}

// Asks for a count, then for the nodes.
template <typename Ask>
CUresult list_nodes(Scope& s, wire::cuda::graph_list_reply& r, Ask ask) {
  size_t count = 0;
  CUresult result = ask(nullptr, &count);
  if (result != CUDA_SUCCESS || count > kNodesMax) return result;
  CUgraphNode* nodes = s.scratch<CUgraphNode>(count);
  if (!s.ok()) return s.error();
  if (count != 0) result = ask(nodes, &count);
  r.from = s.ids(Kind::kNode, nodes, count);
  return result;
}

}  // namespace

CUresult handle(Executor& w, const wire::cuda::graph_launch_request& m) {
  Scope s(w);
  CUgraphExec exec = s.get<CUgraphExec>(Kind::kExec, m.exec);
  CUstream stream = s.stream(m.stream);
  if (!s.ok()) return s.error();
  if (!w.gate().may_work(w.context(), stream, m.exec, 1)) return CUDA_ERROR_UNKNOWN;
  KeptMemory& memory = w.kept_memory();
  if (!memory.has_graphs()) return w.driver().cuGraphLaunch(exec, stream);
  w.waiters().synchronise_owed();  // what streams have freed makes room
  if (!memory.before_launch(exec)) return CUDA_ERROR_OUT_OF_MEMORY;
  const CUresult result = w.driver().cuGraphLaunch(exec, stream);
  memory.settle_graphs(w.slot());
  return result;
}

CUresult handle(Executor& w, const wire::cuda::graph_list_request& m,
                wire::cuda::graph_list_reply& r) {
  Scope s(w);
  gpu::Driver& d = w.driver();
  const bool of_node =
      m.kind == GraphListKind::kDependencies || m.kind == GraphListKind::kDependents;
  if (!of_node) {
    CUgraph graph = s.get<CUgraph>(Kind::kGraph, m.object);
    if (!s.ok()) return s.error();
    if (m.kind == GraphListKind::kEdges) return list_edges(w, s, graph, r);
    return list_nodes(s, r, [&](CUgraphNode* nodes, size_t* count) {
      return m.kind == GraphListKind::kNodes ? d.cuGraphGetNodes(graph, nodes, count)
                                             : d.cuGraphGetRootNodes(graph, nodes, count);
    });
  }
  CUgraphNode node = s.get<CUgraphNode>(Kind::kNode, m.object);
  if (!s.ok()) return s.error();
  return list_neighbours(s, r, [&](CUgraphNode* nodes, CUgraphEdgeData* data, size_t* count) {
    return m.kind == GraphListKind::kDependencies
               ? d.cuGraphNodeGetDependencies_v2(node, nodes, data, count)
               : d.cuGraphNodeGetDependentNodes_v2(node, nodes, data, count);
  });
}

CUresult handle(Executor& w, const wire::cuda::graph_instantiate_request& m,
                wire::cuda::graph_instantiate_reply& r) {
  Scope s(w);
  CUgraph graph = s.get<CUgraph>(Kind::kGraph, m.graph);
  CUstream upload = s.stream(m.upload);
  if (!s.ok()) return s.error();
  if (w.context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  CUgraphExec exec = nullptr;
  CUDA_GRAPH_INSTANTIATE_PARAMS params;
  std::memset(&params, 0, sizeof params);
  params.flags = m.flags;
  params.hUploadStream = upload;
  const CUresult result = m.with_params != 0
                              ? w.driver().cuGraphInstantiateWithParams(&exec, graph, &params)
                              : w.driver().cuGraphInstantiateWithFlags(&exec, graph, m.flags);
  r.outcome = static_cast<uint32_t>(params.result_out);
  r.node = s.id(Kind::kNode, params.hErrNode_out);
  w.replies().reply_with_body_anyway();
  if (result != CUDA_SUCCESS) return result;
  if (!w.objects().bind(Kind::kExec, m.exec, exec)) {
    w.driver().cuGraphExecDestroy(exec);
    return CUDA_ERROR_INVALID_HANDLE;
  }
  r.has_memory = w.kept_memory().instantiated(exec, graph);
  if ((m.flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) != 0)
    r.device_handle = reinterpret_cast<uint64_t>(exec);
  return CUDA_SUCCESS;
}

CUresult handle(Executor& w, const wire::cuda::graph_kernel_node_request& m,
                wire::cuda::graph_kernel_node_reply&) {
  Scope s(w);
  bool kernel = false;
  CUfunction f = find_function(w, m.function, &kernel);
  if (f == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  CUresult error = CUDA_SUCCESS;
  const Layout* layout = w.layouts().find(w, m.function, f, kernel, &error);
  if (layout == nullptr) return error;
  if (m.params.count < layout->bytes) return CUDA_ERROR_INVALID_VALUE;
  void** pointers = s.scratch<void*>(layout->offsets.size() + 1);
  if (!s.ok()) return s.error();
  for (size_t i = 0; i < layout->offsets.size(); ++i)
    pointers[i] = const_cast<uint8_t*>(m.params.data) + layout->offsets[i];
  CUDA_KERNEL_NODE_PARAMS p;
  std::memset(&p, 0, sizeof p);
  if (kernel)
    p.kern = reinterpret_cast<CUkernel>(f);
  else
    p.func = f;
  if (kernel && w.context() != nullptr) p.ctx = w.context()->context;
  p.gridDimX = m.shape.grid[0];
  p.gridDimY = m.shape.grid[1];
  p.gridDimZ = m.shape.grid[2];
  p.blockDimX = m.shape.block[0];
  p.blockDimY = m.shape.block[1];
  p.blockDimZ = m.shape.block[2];
  p.sharedMemBytes = m.shape.shared_bytes;
  p.kernelParams = pointers;
  if (m.change == NodeChange::kAdd) {
    CUgraph graph = s.get<CUgraph>(Kind::kGraph, m.graph);
    CUgraphNode* dependencies = s.handles<CUgraphNode>(Kind::kNode, m.dependencies);
    if (!s.ok()) return s.error();
    CUgraphNode node = nullptr;
    const CUresult result =
        w.driver().cuGraphAddKernelNode_v2(&node, graph, dependencies, m.dependencies.count, &p);
    if (result == CUDA_SUCCESS && !w.objects().bind(Kind::kNode, m.node, node))
      return CUDA_ERROR_INVALID_HANDLE;
    return result;
  }
  CUgraphNode node = s.get<CUgraphNode>(Kind::kNode, m.node);
  if (m.change == NodeChange::kSetInNode)
    return s.ok() ? w.driver().cuGraphKernelNodeSetParams_v2(node, &p) : s.error();
  CUgraphExec exec = s.get<CUgraphExec>(Kind::kExec, m.exec);
  return s.ok() ? w.driver().cuGraphExecKernelNodeSetParams_v2(exec, node, &p) : s.error();
}

CUresult handle(Executor& w, const wire::cuda::graph_kernel_change_request& m) {
  wire::cuda::graph_kernel_node_request change;
  wire::cuda::graph_kernel_node_reply unused;
  change.change = NodeChange::kSetInExec;
  change.exec = m.exec;
  change.node = m.node;
  change.function = m.function;
  change.shape = m.shape;
  change.params = m.params;
  return handle(w, change, unused);
}

CUresult handle(Executor& w, const wire::cuda::graph_kernel_node_get_request& m,
                wire::cuda::graph_kernel_node_get_reply& r) {
  Scope s(w);
  CUgraphNode node = s.get<CUgraphNode>(Kind::kNode, m.node);
  if (!s.ok()) return s.error();
  CUDA_KERNEL_NODE_PARAMS p;
  std::memset(&p, 0, sizeof p);
  const CUresult result = w.driver().cuGraphKernelNodeGetParams_v2(node, &p);
  if (result != CUDA_SUCCESS) return result;
  // The driver may tell a function of its own that it made from the client's kernel.
  const bool unknown = p.func == nullptr || !w.objects().knows(Kind::kFunction, p.func);
  const bool kernel = unknown && p.kern != nullptr;
  if (!kernel && p.func == nullptr) return CUDA_ERROR_UNKNOWN;
  CUfunction f = kernel ? reinterpret_cast<CUfunction>(p.kern) : p.func;
  r.function = w.objects().id_of(kernel ? Kind::kKernel : Kind::kFunction, f);
  if (p.ctx != nullptr && w.objects().knows(Kind::kContext, p.ctx))
    r.context = w.objects().id_of(Kind::kContext, p.ctx);
  CUresult error = CUDA_SUCCESS;
  const Layout* layout = w.layouts().find(w, r.function, f, kernel, &error);
  if (layout == nullptr) return error;
  uint8_t* values = s.scratch<uint8_t>(layout->bytes);
  if (!s.ok()) return s.error();
  for (size_t i = 0; i < layout->offsets.size() && p.kernelParams != nullptr; ++i) {
    std::memcpy(values + layout->offsets[i], p.kernelParams[i], layout->sizes[i]);
  }
  r.shape = {{p.gridDimX, p.gridDimY, p.gridDimZ},
             {p.blockDimX, p.blockDimY, p.blockDimZ},
             p.sharedMemBytes,
             0};
  r.params = {values, layout->bytes};
  return CUDA_SUCCESS;
}

CUresult handle(Executor& w, const wire::cuda::graph_update_request& m,
                wire::cuda::graph_update_reply& r) {
  Scope s(w);
  CUgraphExec exec = s.get<CUgraphExec>(Kind::kExec, m.exec);
  CUgraph graph = s.get<CUgraph>(Kind::kGraph, m.graph);
  if (!s.ok()) return s.error();
  CUgraphExecUpdateResultInfo info;
  std::memset(&info, 0, sizeof info);
  const CUresult result = w.driver().cuGraphExecUpdate_v2(exec, graph, &info);
  r.outcome = static_cast<uint32_t>(info.result);
  r.node = s.id(Kind::kNode, info.errorNode);
  r.from = s.id(Kind::kNode, info.errorFromNode);
  w.replies().reply_with_body_anyway();
  return result;
}

}  // namespace tendril::worker::cuda
