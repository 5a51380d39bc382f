// SPDX-License-Identifier: Apache-2.0
// Bodies of graphs that cannot be generated: kernel nodes (parameters by layout), lists of nodes,
// variants of instantiation, updates.
#include <string.h>

#include "client/common/log.h"
#include "client/cuda/code/function.h"
#include "client/cuda/copy/copy.h"
#include "client/cuda/memory/memory.h"
#include "client/cuda/memory/mirror.h"
#include "client/cuda/stream/capture.h"

namespace tendril::client::cuda {

// What cuGraphKernelNodeGetParams points at. Kept for each node until the program asks again.
struct KernelNodeParams {
  struct Kept {
    std::vector<uint8_t> values;
    std::vector<void*> pointers;
  };
  base::Lock lock;
  std::unordered_map<CUgraphNode, Kept> of;
};

namespace {

CUgraphNode node_handle(Session* session, uint64_t wire_id) {
  Object* node = wire_id != 0 ? known_object(Kind::kNode, session, nullptr, wire_id) : nullptr;
  return node != nullptr ? handle_cast<CUgraphNode>(node) : nullptr;
}

using wire::cuda::GraphListKind;
using wire::cuda::NodeChange;

// Count, then fill: with null arrays only the count is answered. With arrays, at most *count
// entries are written, and the rest are null.
CUresult list(GraphListKind list_kind, Kind kind, uint64_t handle, CUgraphNode* from,
              CUgraphNode* to, CUgraphEdgeData* edges, size_t* count) {
  Object* object = nullptr;
  TENDRIL_TRY(need_object(kind, handle, &object));
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  wire::cuda::graph_list_request request;
  wire::cuda::graph_list_reply reply;
  request.kind = list_kind;
  request.object = object->wire_id;
  TENDRIL_TRY(object->session->call(static_cast<const Context*>(nullptr), request, reply));
  if (from == nullptr && to == nullptr) {
    *count = reply.from.count;
    return CUDA_SUCCESS;
  }
  const size_t room = *count, have = reply.from.count;
  for (size_t i = 0; edges == nullptr && i < reply.edges.count; ++i)
    if (reply.edges.data[i] != 0)
      return CUDA_ERROR_LOSSY_QUERY;  // edges say more than the caller asks for
  for (size_t i = 0; i < room; ++i) {
    if (from != nullptr) from[i] = i < have ? node_handle(object->session, reply.from[i]) : nullptr;
    if (to != nullptr)
      to[i] = i < have && i < reply.to.count ? node_handle(object->session, reply.to[i]) : nullptr;
    if (edges != nullptr) memset(&edges[i], 0, sizeof edges[i]);
    if (edges != nullptr && (i + 1) * sizeof *edges <= reply.edges.count)
      memcpy(&edges[i], reply.edges.data + i * sizeof *edges, sizeof *edges);
  }
  *count = room < have ? room : have;
  return room < have && list_kind == GraphListKind::kEdges ? CUDA_ERROR_INVALID_VALUE
                                                           : CUDA_SUCCESS;
}

// Kernel node parameters of all ABI versions, as one.
struct KernelNode {
  CUfunction function;
  CUcontext context;  // null: the current one
  wire::cuda::LaunchShape shape;
  void** params;
  void** extra;
};

template <typename Params>
KernelNode kernel_node(CUfunction function, CUcontext context, const Params& p) {
  return {function,
          context,
          {{p.gridDimX, p.gridDimY, p.gridDimZ},
           {p.blockDimX, p.blockDimY, p.blockDimZ},
           p.sharedMemBytes,
           0},
          p.kernelParams,
          p.extra};
}
KernelNode kernel_node(const CUDA_KERNEL_NODE_PARAMS_v1& parameters) {
  return kernel_node(parameters.func, nullptr, parameters);
}
KernelNode kernel_node(const CUDA_KERNEL_NODE_PARAMS& parameters) {
  if (parameters.func != nullptr) return kernel_node(parameters.func, nullptr, parameters);
  return kernel_node(reinterpret_cast<CUfunction>(parameters.kern), parameters.ctx,
                     parameters);  // a context is named for kernels only
}

// Where a node runs. A function has a context of its own, which need not be the current one. A
// kernel runs in the context that is named, or in the current one.
CUresult context_of_node(const Function* function, CUcontext named, Context** out) {
  TENDRIL_TRY(require_context(out));
  if (function->context == nullptr && named == nullptr) return CUDA_SUCCESS;
  Context* other = function->context != nullptr
                       ? function->context
                       : process()->contexts.find(Kind::kContext, handle_value(named));
  return other != nullptr ? use_context(other, out) : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult pack(Context* context, const KernelNode& node, Function* function,
              std::vector<uint8_t>* packed) {
  if (node.extra != nullptr && node.params != nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUresult error = CUDA_SUCCESS;
  const FunctionInfo* info = function_info(context, function, &error);
  if (info == nullptr) return error;
  packed->assign(info->param_bytes, 0);
  if (node.extra != nullptr) {
    const void* buffer = nullptr;
    size_t bytes = 0;
    // Neither less nor more, not even what the alignment of the whole buffer would add: measured on
    // an H200.
    if (!extra_buffer(node.extra, &buffer, &bytes) || bytes != packed->size())
      return CUDA_ERROR_INVALID_VALUE;
    memcpy(packed->data(), buffer, packed->size());
    return CUDA_SUCCESS;
  }
  if (!info->offsets.empty() && node.params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < info->offsets.size(); ++i) {
    if (node.params[i] == nullptr) return CUDA_ERROR_INVALID_VALUE;
    memcpy(packed->data() + info->offsets[i], node.params[i], info->sizes[i]);
  }
  map_pinned(context, packed->data(), packed->size());
  return CUDA_SUCCESS;
}

// A node's kernel as the worker knows it.
struct ResolvedKernel {
  Context* context = nullptr;
  uint64_t function = 0;
  std::vector<uint8_t> values;
};

CUresult resolve_kernel(const Session* session, const KernelNode& node, ResolvedKernel* out) {
  Function* function = process() != nullptr ? find_function(node.function) : nullptr;
  if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  TENDRIL_TRY(context_of_node(function, node.context, &out->context));
  if (out->context->session != session)
    return CUDA_ERROR_INVALID_CONTEXT;  // a graph cannot reach another server
  TENDRIL_TRY(pack(out->context, node, function, &out->values));
  CUresult error = CUDA_SUCCESS;
  out->function = function_wire_id(function, out->context->session, &error);
  return out->function != 0 ? CUDA_SUCCESS : error;
}

CUresult send_kernel_node(wire::cuda::graph_kernel_node_request& request, const KernelNode& node,
                          const ResolvedKernel& kernel) {
  request.function = kernel.function;
  request.shape = node.shape;
  request.params = {kernel.values.data(), kernel.values.size()};
  wire::cuda::graph_kernel_node_reply reply;
  return kernel.context->session->call(kernel.context, request, reply);
}

CUresult add_kernel_node(CUgraphNode* out, CUgraph hGraph, const CUgraphNode* dependencies,
                         size_t count, const KernelNode& k) {
  Object* graph = nullptr;
  TENDRIL_TRY(need_object(Kind::kGraph, handle_value(hGraph), &graph));
  if (out == nullptr || (count != 0 && dependencies == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  std::vector<uint64_t> ids;
  for (size_t i = 0; i < count; ++i) {
    Object* node = nullptr;
    TENDRIL_TRY(need_object(Kind::kNode, handle_value(dependencies[i]), &node));
    ids.push_back(node->wire_id);
  }
  ResolvedKernel kernel;
  TENDRIL_TRY(resolve_kernel(graph->session, k, &kernel));
  Object* node = create_object(Kind::kNode, graph->session, nullptr);
  if (node == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  wire::cuda::graph_kernel_node_request request;
  request.change = NodeChange::kAdd;
  request.graph = graph->wire_id;
  request.node = node->wire_id;
  request.dependencies = {ids.data(), ids.size()};
  const CUresult result = send_kernel_node(request, k, kernel);
  if (result != CUDA_SUCCESS) {
    destroy_object(Kind::kNode, node);
    return result;
  }
  *out = handle_cast<CUgraphNode>(node);
  return CUDA_SUCCESS;
}

CUresult set_kernel_node(CUgraphNode hNode, const KernelNode& k) {
  Object* node = nullptr;
  TENDRIL_TRY(need_object(Kind::kNode, handle_value(hNode), &node));
  ResolvedKernel kernel;
  TENDRIL_TRY(resolve_kernel(node->session, k, &kernel));
  wire::cuda::graph_kernel_node_request request;
  request.change = NodeChange::kSetInNode;
  request.node = node->wire_id;
  return send_kernel_node(request, k, kernel);
}

CUresult change_kernel(CUgraphExec hExec, CUgraphNode hNode, const KernelNode& k) {
  Object *node = nullptr, *found = nullptr;
  TENDRIL_TRY(need_object(Kind::kNode, handle_value(hNode), &node));
  TENDRIL_TRY(need_object(Kind::kExec, handle_value(hExec), &found));
  auto* exec = static_cast<Exec*>(found);
  ResolvedKernel kernel;
  TENDRIL_TRY(resolve_kernel(node->session, k, &kernel));
  ChangeShape shape;  // everything but the values of its parameters
  shape.add(kernel.function);
  shape.add(kernel.context->index);
  for (uint32_t length : k.shape.grid) shape.add(length);
  for (uint32_t length : k.shape.block) shape.add(length);
  shape.add(k.shape.shared_bytes);
  if (exec->session == node->session && exec->changes.taken(node->wire_id, shape)) {
    wire::cuda::graph_kernel_change_request request;
    request.exec = exec->wire_id;
    request.node = node->wire_id;
    request.function = kernel.function;
    request.shape = k.shape;
    request.params = {kernel.values.data(), kernel.values.size()};
    return exec->session->enqueue(kernel.context, request);
  }
  wire::cuda::graph_kernel_node_request request;
  request.change = NodeChange::kSetInExec;
  request.node = node->wire_id;
  request.exec = exec->wire_id;
  const CUresult result = send_kernel_node(request, k, kernel);
  exec->changes.note(node->wire_id, shape, result == CUDA_SUCCESS);
  return result;
}

// The runtime looks its function up by these handles, whichever of them it gave. So a function that
// belongs to a kernel is answered as both.
void tell_function(CUfunction function, CUkernel, CUcontext, CUDA_KERNEL_NODE_PARAMS_v1* out) {
  out->func = function;
}
void tell_function(CUfunction function, CUkernel kernel, CUcontext context,
                   CUDA_KERNEL_NODE_PARAMS* out) {
  out->func = function;
  out->kern = kernel;
  out->ctx = context;
}

template <typename Params>
CUresult get_kernel_node(CUgraphNode hNode, Params* out) {
  Object* node = nullptr;
  TENDRIL_TRY(need_object(Kind::kNode, handle_value(hNode), &node));
  Context* context = nullptr;
  TENDRIL_TRY(require_context(&context));
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  wire::cuda::graph_kernel_node_get_request request;
  wire::cuda::graph_kernel_node_get_reply reply;
  request.node = node->wire_id;
  TENDRIL_TRY(node->session->call(context, request, reply));
  auto* function = static_cast<Function*>(
      known_object(api::cuda::id_kind(reply.function), node->session, nullptr, reply.function));
  auto* at = static_cast<Context*>(reply.context != 0 ? find_object(Kind::kContext, reply.context)
                                                      : nullptr);
  if (function == nullptr) return CUDA_ERROR_UNKNOWN;
  memset(out, 0, sizeof *out);
  out->gridDimX = reply.shape.grid[0];
  out->gridDimY = reply.shape.grid[1];
  out->gridDimZ = reply.shape.grid[2];
  out->blockDimX = reply.shape.block[0];
  out->blockDimY = reply.shape.block[1];
  out->blockDimZ = reply.shape.block[2];
  out->sharedMemBytes = reply.shape.shared_bytes;
  const std::vector<uint8_t> values(reply.params.begin(),
                                    reply.params.end());  // `reply` is valid until the next call
  Function* kernel = function->kernel;
  if (api::cuda::id_kind(function->wire_id) == Kind::kKernel) {
    kernel = function;
    TENDRIL_TRY(kernel_function(
        kernel, at != nullptr && at->session == context->session ? at : context, &function));
  }
  tell_function(handle_cast<CUfunction>(function),
                kernel != nullptr ? handle_cast<CUkernel>(kernel) : nullptr,
                at != nullptr ? handle_cast<CUcontext>(at) : nullptr, out);
  CUresult error = CUDA_SUCCESS;
  const FunctionInfo* info =
      function_info(function->context != nullptr ? function->context : context, function, &error);
  if (info == nullptr) return error;
  if (values.size() < info->param_bytes) return CUDA_ERROR_UNKNOWN;
  KernelNodeParams& params = process()->kernel_node_params.get();
  const base::Locked held(params.lock);
  KernelNodeParams::Kept& kept = params.of[hNode];
  kept.values = values;
  kept.pointers.clear();
  for (uint32_t offset : info->offsets) kept.pointers.push_back(kept.values.data() + offset);
  out->kernelParams = kept.pointers.empty() ? nullptr : kept.pointers.data();
  return CUDA_SUCCESS;
}

// Kernels may launch the graph, so the program must know it by the driver's handle. If a graph of
// another server has the same one, it is refused: a later call would not say which of the two it
// means.
CUresult adopt_device_handle(Exec* exec, uint64_t handle) {
  if (process()->execs.rename(exec, handle)) return CUDA_SUCCESS;
  log(LogLevel::kWarning,
      "%s: a graph that kernels may launch got the handle of one on another server; use such "
      "graphs on one server only",
      exec->session->endpoint.c_str());
  wire::cuda::cuGraphExecDestroy_request request;
  wire::cuda::cuGraphExecDestroy_reply reply;
  request.hGraphExec = exec->wire_id;
  exec->session->call(exec->context, request, reply);
  return CUDA_ERROR_NOT_SUPPORTED;
}

// Any context of the graph's server will do, since nodes have contexts of their own. Programs make
// graphs of several GPUs ready one after the other, and a context of another server is current.
CUresult context_on_server(const Session* session, Context** context) {
  if ((*context)->session == session) return CUDA_SUCCESS;
  Context* other = nullptr;
  process()->contexts.for_each([&](Context* one) {
    if (other == nullptr && one->session == session && one->active.load() != 0) other = one;
  });
  return other != nullptr ? use_context(other, context) : CUDA_ERROR_INVALID_CONTEXT;
}

// `params` null: only flags were given.
CUresult instantiate(CUgraphExec* out, CUgraph hGraph, uint64_t flags,
                     CUDA_GRAPH_INSTANTIATE_PARAMS* params) {
  Context* context = nullptr;
  Stream* upload = nullptr;
  Object* graph = nullptr;
  TENDRIL_TRY(require_context(&context));
  TENDRIL_TRY(need_object(Kind::kGraph, handle_value(hGraph), &graph));
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  TENDRIL_TRY(context_on_server(graph->session, &context));
  if (params != nullptr) TENDRIL_TRY(require_stream(context, params->hUploadStream, &upload));
  if (upload != nullptr && upload->context->session != graph->session)
    return CUDA_ERROR_INVALID_CONTEXT;
  auto* exec = static_cast<Exec*>(create_object(Kind::kExec, graph->session, context));
  if (exec == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  wire::cuda::graph_instantiate_request request;
  wire::cuda::graph_instantiate_reply reply;
  request.graph = graph->wire_id;
  request.exec = exec->wire_id;
  request.flags = flags;
  request.with_params = params != nullptr;
  request.upload = stream_wire_id(upload);
  CUresult result = context->session->call(context, request, reply);
  if (params != nullptr) {
    params->result_out = static_cast<CUgraphInstantiateResult>(reply.outcome);
    params->hErrNode_out = node_handle(graph->session, reply.node);
  }
  exec->has_memory = reply.has_memory != 0;
  exec->changes.clear();
  if (result == CUDA_SUCCESS && (flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) != 0)
    result = adopt_device_handle(exec, reply.device_handle);
  if (result == CUDA_SUCCESS)
    *out = handle_cast<CUgraphExec>(exec);
  else
    destroy_object(Kind::kExec, exec);
  return result;
}

CUresult instantiate_with_log(CUgraphExec* exec, CUgraph graph, CUgraphNode* error_node, char* log,
                              size_t bytes) {
  if (log != nullptr && bytes != 0) log[0] = 0;
  CUDA_GRAPH_INSTANTIATE_PARAMS params;
  memset(&params, 0, sizeof params);
  const CUresult result = instantiate(exec, graph, 0, &params);
  if (error_node != nullptr) *error_node = params.hErrNode_out;
  return result;
}

}  // namespace

CUresult cuGraphLaunch(CUgraphExec hGraph, CUstream hStream) {
  Context* context = nullptr;
  Stream* stream = nullptr;
  TENDRIL_TRY(require_context(&context));
  const Exec* exec = process()->execs.find(Kind::kExec, handle_value(hGraph));
  if (exec == nullptr) return no_object(Kind::kExec);
  TENDRIL_TRY(require_stream(context, hStream, &stream));
  if (stream != nullptr) context = stream->context;
  if (exec->session != context->session) return CUDA_ERROR_INVALID_CONTEXT;
  TENDRIL_TRY(check_work(context, stream));
  make_room(context, stream, kGraphUnits);
  mirror_before_graph(context->session, context);
  remember_graph_writes(context, stream);
  wire::cuda::graph_launch_request request;
  request.exec = exec->wire_id;
  request.stream = stream_wire_id(stream);
  if (exec->has_memory) {
    context->session->send_frees();
    context->session->give_up_kept();
  }
  TENDRIL_TRY(context->session->enqueue(context, request));
  return exec->has_memory ? outcome_so_far(context) : CUDA_SUCCESS;
}

CUresult cuGraphInstantiate(CUgraphExec* phGraphExec, CUgraph hGraph, CUgraphNode* phErrorNode,
                            char* logBuffer, size_t bufferSize) {
  return instantiate_with_log(phGraphExec, hGraph, phErrorNode, logBuffer, bufferSize);
}
CUresult cuGraphInstantiate_v2(CUgraphExec* phGraphExec, CUgraph hGraph, CUgraphNode* phErrorNode,
                               char* logBuffer, size_t bufferSize) {
  return instantiate_with_log(phGraphExec, hGraph, phErrorNode, logBuffer, bufferSize);
}

CUresult cuGraphInstantiateWithParams(CUgraphExec* phGraphExec, CUgraph hGraph,
                                      CUDA_GRAPH_INSTANTIATE_PARAMS* params) {
  if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return instantiate(phGraphExec, hGraph, params->flags, params);
}
CUresult cuGraphInstantiateWithFlags(CUgraphExec* phGraphExec, CUgraph hGraph,
                                     unsigned long long flags) {
  return instantiate(phGraphExec, hGraph, flags, nullptr);
}

CUresult cuGraphGetNodes(CUgraph hGraph, CUgraphNode* nodes, size_t* numNodes) {
  return list(GraphListKind::kNodes, Kind::kGraph, handle_value(hGraph), nodes, nullptr, nullptr,
              numNodes);
}
CUresult cuGraphGetRootNodes(CUgraph hGraph, CUgraphNode* rootNodes, size_t* numRootNodes) {
  return list(GraphListKind::kRoots, Kind::kGraph, handle_value(hGraph), rootNodes, nullptr,
              nullptr, numRootNodes);
}
CUresult cuGraphGetEdges(CUgraph hGraph, CUgraphNode* from, CUgraphNode* to, size_t* numEdges) {
  return list(GraphListKind::kEdges, Kind::kGraph, handle_value(hGraph), from, to, nullptr,
              numEdges);
}
CUresult cuGraphGetEdges_v2(CUgraph hGraph, CUgraphNode* from, CUgraphNode* to,
                            CUgraphEdgeData* edgeData, size_t* numEdges) {
  return list(GraphListKind::kEdges, Kind::kGraph, handle_value(hGraph), from, to, edgeData,
              numEdges);
}
CUresult cuGraphNodeGetDependencies(CUgraphNode hNode, CUgraphNode* dependencies,
                                    size_t* numDependencies) {
  return list(GraphListKind::kDependencies, Kind::kNode, handle_value(hNode), dependencies, nullptr,
              nullptr, numDependencies);
}
CUresult cuGraphNodeGetDependencies_v2(CUgraphNode hNode, CUgraphNode* dependencies,
                                       CUgraphEdgeData* edgeData, size_t* numDependencies) {
  return list(GraphListKind::kDependencies, Kind::kNode, handle_value(hNode), dependencies, nullptr,
              edgeData, numDependencies);
}
CUresult cuGraphNodeGetDependentNodes(CUgraphNode hNode, CUgraphNode* dependentNodes,
                                      size_t* numDependentNodes) {
  return list(GraphListKind::kDependents, Kind::kNode, handle_value(hNode), dependentNodes, nullptr,
              nullptr, numDependentNodes);
}
CUresult cuGraphNodeGetDependentNodes_v2(CUgraphNode hNode, CUgraphNode* dependentNodes,
                                         CUgraphEdgeData* edgeData, size_t* numDependentNodes) {
  return list(GraphListKind::kDependents, Kind::kNode, handle_value(hNode), dependentNodes, nullptr,
              edgeData, numDependentNodes);
}

CUresult cuGraphAddKernelNode_v2(CUgraphNode* phGraphNode, CUgraph hGraph,
                                 const CUgraphNode* dependencies, size_t numDependencies,
                                 const CUDA_KERNEL_NODE_PARAMS* nodeParams) {
  if (nodeParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return add_kernel_node(phGraphNode, hGraph, dependencies, numDependencies,
                         kernel_node(*nodeParams));
}
CUresult cuGraphAddKernelNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                              const CUgraphNode* dependencies, size_t numDependencies,
                              const CUDA_KERNEL_NODE_PARAMS_v1* nodeParams) {
  if (nodeParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return add_kernel_node(phGraphNode, hGraph, dependencies, numDependencies,
                         kernel_node(*nodeParams));
}
CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode hNode, CUDA_KERNEL_NODE_PARAMS* nodeParams) {
  return get_kernel_node(hNode, nodeParams);
}
CUresult cuGraphKernelNodeGetParams(CUgraphNode hNode, CUDA_KERNEL_NODE_PARAMS_v1* nodeParams) {
  return get_kernel_node(hNode, nodeParams);
}

CUresult cuGraphKernelNodeSetParams_v2(CUgraphNode hNode,
                                       const CUDA_KERNEL_NODE_PARAMS* nodeParams) {
  if (nodeParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return set_kernel_node(hNode, kernel_node(*nodeParams));
}
CUresult cuGraphKernelNodeSetParams(CUgraphNode hNode,
                                    const CUDA_KERNEL_NODE_PARAMS_v1* nodeParams) {
  if (nodeParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return set_kernel_node(hNode, kernel_node(*nodeParams));
}
CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec hGraphExec, CUgraphNode hNode,
                                           const CUDA_KERNEL_NODE_PARAMS* nodeParams) {
  if (nodeParams == nullptr || hGraphExec == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return change_kernel(hGraphExec, hNode, kernel_node(*nodeParams));
}
CUresult cuGraphExecKernelNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                        const CUDA_KERNEL_NODE_PARAMS_v1* nodeParams) {
  if (nodeParams == nullptr || hGraphExec == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return change_kernel(hGraphExec, hNode, kernel_node(*nodeParams));
}

CUresult cuGraphExecUpdate_v2(CUgraphExec hGraphExec, CUgraph hGraph,
                              CUgraphExecUpdateResultInfo* resultInfo) {
  Object *exec = nullptr, *graph = nullptr;
  TENDRIL_TRY(need_object(Kind::kExec, handle_value(hGraphExec), &exec));
  TENDRIL_TRY(need_object(Kind::kGraph, handle_value(hGraph), &graph));
  if (resultInfo == nullptr) return CUDA_ERROR_INVALID_VALUE;
  wire::cuda::graph_update_request request;
  wire::cuda::graph_update_reply reply;
  request.exec = exec->wire_id;
  request.graph = graph->wire_id;
  const CUresult result = exec->session->call(static_cast<const Context*>(nullptr), request, reply);
  static_cast<Exec*>(exec)->changes.clear();
  resultInfo->result = static_cast<CUgraphExecUpdateResult>(reply.outcome);
  resultInfo->errorNode = node_handle(exec->session, reply.node);
  resultInfo->errorFromNode = node_handle(exec->session, reply.from);
  return result;
}

CUresult cuGraphExecUpdate(CUgraphExec hGraphExec, CUgraph hGraph, CUgraphNode* hErrorNode_out,
                           CUgraphExecUpdateResult* updateResult_out) {
  CUgraphExecUpdateResultInfo info;
  memset(&info, 0, sizeof info);
  const CUresult result = cuGraphExecUpdate_v2(hGraphExec, hGraph, &info);
  if (hErrorNode_out != nullptr) *hErrorNode_out = info.errorNode;
  if (updateResult_out != nullptr) *updateResult_out = info.result;
  return result;
}

}  // namespace tendril::client::cuda
