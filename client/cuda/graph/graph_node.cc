// SPDX-License-Identifier: Apache-2.0
// Graph nodes that involve this process: copies (host memory gets a mirror that the node uses),
// host functions (they run here, see callback.cc), memory of the graph's own. And the generic
// calls, which take any kind of node.
#include <string.h>

#include <new>
#include <unordered_map>
#include <vector>

#include "client/cuda/bodies.h"
#include "client/cuda/memory/memory.h"
#include "client/cuda/memory/mirror.h"
#include "client/cuda/stream/callback.h"

namespace tendril::client::cuda {

// What answers about nodes point at.
struct LentToProgram {
  base::Lock lock;
  // The driver lends these for as long as a node lives. Here they stay until the program ends:
  // handles are small and conditional nodes few. The list is for leak checkers to find.
  std::vector<CUgraph*> graphs;
  // The program's to read until it asks again.
  std::unordered_map<CUgraphNode, std::vector<CUstreamBatchMemOpParams>> operations;
};

namespace {

using wire::cuda::NodeChange;

CUresult need(Kind kind, uint64_t handle, Object** out) {
  if (process() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  *out = find_object(kind, handle);
  return *out != nullptr ? CUDA_SUCCESS : no_object(kind);
}

// A node to add, or to change in its graph (no exec) or in an executable graph.
struct Place {
  CUgraphNode* out = nullptr;  // kAdd
  CUgraph graph = nullptr;
  const CUgraphNode* dependencies = nullptr;
  size_t count = 0;
  CUgraphExec exec = nullptr;
  CUgraphNode node = nullptr;
};

struct Resolved {
  Session* session = nullptr;
  Object* fresh = nullptr;  // the record of the node being added
  NodeChange change = NodeChange::kAdd;
  uint64_t graph = 0, node = 0, exec = 0;
  std::vector<uint64_t> dependencies;
};

CUresult resolve(const Place& p, Resolved* r) {
  Object* object = nullptr;
  if (p.node != nullptr) {
    TENDRIL_TRY(need(Kind::kNode, handle_value(p.node), &object));
    r->session = object->session;
    r->node = object->wire_id;
    r->change = NodeChange::kSetInNode;
    if (p.exec == nullptr) return CUDA_SUCCESS;
    TENDRIL_TRY(need(Kind::kExec, handle_value(p.exec), &object));
    r->exec = object->wire_id;
    r->change = NodeChange::kSetInExec;
    return CUDA_SUCCESS;
  }
  TENDRIL_TRY(need(Kind::kGraph, handle_value(p.graph), &object));
  if (p.out == nullptr || (p.count != 0 && p.dependencies == nullptr))
    return CUDA_ERROR_INVALID_VALUE;
  r->session = object->session;
  r->graph = object->wire_id;
  for (size_t i = 0; i < p.count; ++i) {
    TENDRIL_TRY(need(Kind::kNode, handle_value(p.dependencies[i]), &object));
    r->dependencies.push_back(object->wire_id);
  }
  return CUDA_SUCCESS;
}

// Sends the request. A node that was added gets its handle.
template <typename Request, typename Answer>
CUresult send(Context* c, const Place& p, Resolved* r, Request& m, Answer& answer) {
  if (p.node == nullptr) {
    r->fresh = create_object(Kind::kNode, r->session, nullptr);
    if (r->fresh == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
    r->node = r->fresh->wire_id;
  }
  m.graph = r->graph;
  m.node = r->node;
  m.dependencies = {r->dependencies.data(), r->dependencies.size()};
  const CUresult result = r->session->call(c, m, answer);
  if (r->fresh == nullptr) return result;
  if (result == CUDA_SUCCESS)
    *p.out = handle_cast<CUgraphNode>(r->fresh);
  else
    destroy_object(Kind::kNode, r->fresh);
  return result;
}

uint64_t bytes_spanned(size_t x, size_t y, size_t z, size_t pitch, size_t height,
                       const CUDA_MEMCPY3D& s) {
  if (s.WidthInBytes == 0 || s.Height == 0 || s.Depth == 0) return 0;
  if (pitch == 0) pitch = s.WidthInBytes + x;
  if (height == 0) height = s.Height + y;
  return ((z + s.Depth - 1) * height + y + s.Height - 1) * pitch + x + s.WidthInBytes;
}

// One end of a copy: host memory gets its mirror, an array the worker's name for it.
CUresult localize_end(Session* session, Context* c, CUmemorytype type, uint64_t host,
                      uint64_t device, CUarray* array, uint64_t bytes, uint32_t use) {
  Range range;
  Object* object = nullptr;
  switch (type) {
    case CU_MEMORYTYPE_HOST:
      return bytes == 0 ? CUDA_SUCCESS : mirror_for_node(session, c, host, bytes, use);
    case CU_MEMORYTYPE_UNIFIED:
      if (process()->ranges.find(device, &range) && !range.host()) return CUDA_SUCCESS;
      return bytes == 0 ? CUDA_SUCCESS : mirror_for_node(session, c, device, bytes, use);
    case CU_MEMORYTYPE_ARRAY:
      TENDRIL_TRY(need(Kind::kArray, handle_value(*array), &object));
      *array = reinterpret_cast<CUarray>(object->wire_id);
      return CUDA_SUCCESS;
    case CU_MEMORYTYPE_DEVICE:
      return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

bool add_device_end(ChangeShape* shape, const Session* session, CUmemorytype type, uint64_t address,
                    uint64_t bytes) {
  Range range;
  const bool known = (type == CU_MEMORYTYPE_DEVICE || type == CU_MEMORYTYPE_UNIFIED) &&
                     process()->ranges.find(address, &range) && range.device() &&
                     range.session == session && bytes <= range.bytes - (address - range.base);
  shape->add(static_cast<uint64_t>(type));
  shape->add(reinterpret_cast<uint64_t>(range.context));
  return known;
}

// A plain copy between two places of device memory: the driver takes any of them. Other copies have
// no shape here.
ChangeShape change_of(const Session* session, const Context* c, const CUDA_MEMCPY3D& p) {
  ChangeShape shape;
  const bool plain = p.Height == 1 && p.Depth == 1 &&
                     (p.srcXInBytes | p.srcY | p.srcZ | p.srcLOD | p.dstXInBytes | p.dstY | p.dstZ |
                      p.dstLOD) == 0;
  if (!plain || !add_device_end(&shape, session, p.srcMemoryType, p.srcDevice, p.WidthInBytes) ||
      !add_device_end(&shape, session, p.dstMemoryType, p.dstDevice, p.WidthInBytes))
    return ChangeShape();
  shape.add(c->index);
  for (uint64_t word : {p.WidthInBytes, p.srcPitch, p.srcHeight, p.dstPitch, p.dstHeight})
    shape.add(word);
  return shape;
}

CUresult copy_node(const Place& p, const CUDA_MEMCPY3D* shape, CUcontext ctx) {
  Resolved r;
  TENDRIL_TRY(resolve(p, &r));
  if (shape == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Context* c = current_context();
  if (ctx != nullptr) {
    c = process()->contexts.find(Kind::kContext, handle_value(ctx));
    if (c == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  }
  if (c == nullptr || c->session != r.session) return CUDA_ERROR_INVALID_CONTEXT;
  CUDA_MEMCPY3D image = *shape;
  TENDRIL_TRY(localize_end(r.session, c, image.srcMemoryType, handle_value(image.srcHost),
                           image.srcDevice, &image.srcArray,
                           bytes_spanned(image.srcXInBytes, image.srcY, image.srcZ, image.srcPitch,
                                         image.srcHeight, image),
                           kMirrorGraphReads));
  TENDRIL_TRY(localize_end(r.session, c, image.dstMemoryType, handle_value(image.dstHost),
                           image.dstDevice, &image.dstArray,
                           bytes_spanned(image.dstXInBytes, image.dstY, image.dstZ, image.dstPitch,
                                         image.dstHeight, image),
                           kMirrorGraphWrites));
  const wire::Bytes encoded{reinterpret_cast<const uint8_t*>(&image), sizeof image};
  auto* exec =
      p.exec != nullptr ? process()->execs.find(Kind::kExec, handle_value(p.exec)) : nullptr;
  const bool ours = exec != nullptr && exec->session == r.session;
  const ChangeShape change = ours ? change_of(r.session, c, image) : ChangeShape();
  if (exec != nullptr && exec->changes.taken(r.node, change)) {
    wire::cuda::graph_memcpy_change_request m;
    m.exec = r.exec;
    m.node = r.node;
    m.image = encoded;
    return r.session->enqueue(c, m);
  }
  wire::cuda::graph_memcpy_node_request m;
  wire::cuda::graph_memcpy_node_reply answer;
  m.change = r.change;
  m.exec = r.exec;
  m.image = encoded;
  const CUresult result = send(c, p, &r, m, answer);
  if (exec != nullptr) exec->changes.note(r.node, change, result == CUDA_SUCCESS);
  return result;
}

CUresult host_node(const Place& p, CUhostFn function, void* data) {
  Resolved r;
  TENDRIL_TRY(resolve(p, &r));
  if (function == nullptr) return CUDA_ERROR_INVALID_VALUE;
  wire::cuda::graph_host_node_request m;
  wire::cuda::graph_host_node_reply answer;
  m.change = r.change;
  m.exec = r.exec;
  m.token = add_host_function(r.session, function, data);
  if (m.token == 0) return CUDA_ERROR_OPERATING_SYSTEM;
  return send(current_context(), p, &r, m, answer);
}

CUresult localize_location(CUmemLocation* location) {
  if (location->type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_SUCCESS;
  const Device* d = device_of(location->id);
  if (d == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  location->id = static_cast<int>(d->slot);
  return CUDA_SUCCESS;
}

// The memory is the graph's: its address is known at once and means nothing outside of a launch.
// Works on both versions of the struct.
template <typename Params>
CUresult alloc_node(const Place& p, Params* params) {
  Resolved r;
  TENDRIL_TRY(resolve(p, &r));
  if (params == nullptr || params->bytesize == 0) return CUDA_ERROR_INVALID_VALUE;
  if (params->accessDescCount != 0 && params->accessDescs == nullptr)
    return CUDA_ERROR_INVALID_VALUE;
  CUmemPoolProps pool = params->poolProps;
  TENDRIL_TRY(localize_location(&pool.location));
  std::vector<CUmemAccessDesc> access;
  for (size_t i = 0; i < params->accessDescCount; ++i) {
    access.push_back(params->accessDescs[i]);
    TENDRIL_TRY(localize_location(&access.back().location));
  }
  wire::cuda::graph_alloc_node_request m;
  wire::cuda::graph_alloc_node_reply answer;
  m.pool = {reinterpret_cast<const uint8_t*>(&pool), sizeof pool};
  m.access = {reinterpret_cast<const uint8_t*>(access.data()),
              access.size() * sizeof(CUmemAccessDesc)};
  m.bytes = params->bytesize;
  TENDRIL_TRY(send(current_context(), p, &r, m, answer));
  params->dptr = answer.address;
  register_graph_range(r.session, current_context(), answer.address, params->bytesize);
  return CUDA_SUCCESS;
}

CUgraph* lend_graphs(Session* session, const wire::Array<uint64_t>& ids) {
  CUgraph* graphs = new (std::nothrow) CUgraph[ids.count];
  {
    LentToProgram& lent = process()->lent_to_program.get();
    const base::Locked held(lent.lock);
    lent.graphs.push_back(graphs);
  }
  for (uint64_t i = 0; graphs != nullptr && i < ids.count; ++i) {
    Object* body = known_object(Kind::kGraph, session, nullptr, ids[i]);
    graphs[i] = body != nullptr ? handle_cast<CUgraph>(body) : nullptr;
  }
  return graphs;
}

// The context that a node's parameters name, or the current one.
CUresult context_of_node(CUcontext named, Context** out) {
  *out = named != nullptr ? process()->contexts.find(Kind::kContext, handle_value(named))
                          : current_context();
  return *out != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult conditional_node(const Place& p, CUDA_CONDITIONAL_NODE_PARAMS* params) {
  Resolved r;
  Context* c = nullptr;
  TENDRIL_TRY(resolve(p, &r));
  TENDRIL_TRY(context_of_node(params->ctx, &c));
  if (params->size == 0) return CUDA_ERROR_INVALID_VALUE;
  wire::cuda::graph_conditional_node_request m;
  wire::cuda::graph_conditional_node_reply answer;
  m.handle = params->handle;
  m.type = static_cast<uint32_t>(params->type);
  m.size = params->size;
  TENDRIL_TRY(send(c, p, &r, m, answer));
  params->phGraph_out = lend_graphs(r.session, answer.bodies);
  return params->phGraph_out != nullptr ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

// A graph of the node's own, or one that the program gives away. Its handle goes on naming it, as
// the node's.
CUresult child_node(const Place& p, const CUDA_CHILD_GRAPH_NODE_PARAMS& child) {
  if (p.exec != nullptr) return cuGraphExecChildGraphNodeSetParams(p.exec, p.node, child.graph);
  if (p.node != nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  if (child.ownership == CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE)
    return cuGraphAddChildGraphNode(p.out, p.graph, p.dependencies, p.count, child.graph);
  if (child.ownership != CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE) return CUDA_ERROR_INVALID_VALUE;
  Resolved r;
  Object* graph = nullptr;
  TENDRIL_TRY(resolve(p, &r));
  TENDRIL_TRY(need(Kind::kGraph, handle_value(child.graph), &graph));
  if (graph->session != r.session) return CUDA_ERROR_INVALID_VALUE;
  wire::cuda::graph_moved_child_node_request m;
  wire::cuda::graph_moved_child_node_reply answer;
  m.child = graph->wire_id;
  return send(current_context(), p, &r, m, answer);
}

// Works on both versions of the struct.
template <typename Params>
CUresult batch_node(const Place& p, const Params* params) {
  Resolved r;
  Context* c = nullptr;
  TENDRIL_TRY(resolve(p, &r));
  if (params == nullptr || (params->count != 0 && params->paramArray == nullptr))
    return CUDA_ERROR_INVALID_VALUE;
  TENDRIL_TRY(context_of_node(params->ctx, &c));
  wire::cuda::graph_batch_node_request m;
  wire::cuda::graph_batch_node_reply answer;
  m.change = r.change;
  m.exec = r.exec;
  m.operations = {reinterpret_cast<const uint8_t*>(params->paramArray),
                  params->count * sizeof(CUstreamBatchMemOpParams)};
  m.flags = params->flags;
  return send(c, p, &r, m, answer);
}

// The generic call, for every kind of node that also has a call of its own.
CUresult any_node(const Place& p, CUgraphNodeParams* n) {
  switch (n->type) {
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      return copy_node(p, &n->memcpy.copyParams, n->memcpy.copyCtx);
    case CU_GRAPH_NODE_TYPE_HOST:
      return host_node(p, n->host.fn, n->host.userData);
    case CU_GRAPH_NODE_TYPE_MEMSET: {
      const CUDA_MEMSET_NODE_PARAMS params{n->memset.dst,   n->memset.pitch,
                                           n->memset.value, n->memset.elementSize,
                                           n->memset.width, n->memset.height};
      CUcontext ctx = n->memset.ctx != nullptr || current_context() == nullptr
                          ? n->memset.ctx
                          : handle_cast<CUcontext>(current_context());
      if (p.exec != nullptr) return cuGraphExecMemsetNodeSetParams(p.exec, p.node, &params, ctx);
      if (p.node != nullptr) return cuGraphMemsetNodeSetParams(p.node, &params);
      return cuGraphAddMemsetNode(p.out, p.graph, p.dependencies, p.count, &params, ctx);
    }
    case CU_GRAPH_NODE_TYPE_KERNEL: {
      CUDA_KERNEL_NODE_PARAMS params{};
      params.func = n->kernel.func;
      params.gridDimX = n->kernel.gridDimX;
      params.gridDimY = n->kernel.gridDimY;
      params.gridDimZ = n->kernel.gridDimZ;
      params.blockDimX = n->kernel.blockDimX;
      params.blockDimY = n->kernel.blockDimY;
      params.blockDimZ = n->kernel.blockDimZ;
      params.sharedMemBytes = n->kernel.sharedMemBytes;
      params.kernelParams = n->kernel.kernelParams;
      params.extra = n->kernel.extra;
      params.kern = n->kernel.kern;
      params.ctx = n->kernel.ctx;
      if (p.exec != nullptr) return cuGraphExecKernelNodeSetParams_v2(p.exec, p.node, &params);
      if (p.node != nullptr) return cuGraphKernelNodeSetParams_v2(p.node, &params);
      return cuGraphAddKernelNode_v2(p.out, p.graph, p.dependencies, p.count, &params);
    }
    case CU_GRAPH_NODE_TYPE_GRAPH:
      return child_node(p, n->graph);
    case CU_GRAPH_NODE_TYPE_EMPTY:
      return p.node == nullptr ? cuGraphAddEmptyNode(p.out, p.graph, p.dependencies, p.count)
                               : CUDA_ERROR_INVALID_VALUE;
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
      if (p.exec != nullptr)
        return cuGraphExecEventRecordNodeSetEvent(p.exec, p.node, n->eventRecord.event);
      if (p.node != nullptr) return cuGraphEventRecordNodeSetEvent(p.node, n->eventRecord.event);
      return cuGraphAddEventRecordNode(p.out, p.graph, p.dependencies, p.count,
                                       n->eventRecord.event);
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
      if (p.exec != nullptr)
        return cuGraphExecEventWaitNodeSetEvent(p.exec, p.node, n->eventWait.event);
      if (p.node != nullptr) return cuGraphEventWaitNodeSetEvent(p.node, n->eventWait.event);
      return cuGraphAddEventWaitNode(p.out, p.graph, p.dependencies, p.count, n->eventWait.event);
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
      return p.node == nullptr ? alloc_node(p, &n->alloc) : CUDA_ERROR_NOT_SUPPORTED;
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
      return p.node == nullptr
                 ? cuGraphAddMemFreeNode(p.out, p.graph, p.dependencies, p.count, n->free.dptr)
                 : CUDA_ERROR_NOT_SUPPORTED;
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
      return p.node == nullptr ? conditional_node(p, &n->conditional) : CUDA_ERROR_NOT_SUPPORTED;
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
      return batch_node(p, &n->memOp);
    default:
      return CUDA_ERROR_NOT_SUPPORTED;  // semaphores of other processes
  }
}

Place add(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies, size_t count) {
  Place p;
  p.out = out;
  p.graph = graph;
  p.dependencies = dependencies;
  p.count = count;
  return p;
}

Place change(CUgraphNode node, CUgraphExec exec) {
  Place p;
  p.node = node;
  p.exec = exec;
  return p;
}

// Asks the worker about a node. The reply lives until the thread's next call.
template <typename Request, typename Answer>
CUresult ask(CUgraphNode hNode, const void* out, Object** node, Answer* r) {
  TENDRIL_TRY(need(Kind::kNode, handle_value(hNode), node));
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Request m;
  m.node = (*node)->wire_id;
  return (*node)->session->call(static_cast<const Context*>(nullptr), m, *r);
}

CUarray array_handle(Session* session, CUarray id) {
  const uint64_t wire_id = reinterpret_cast<uint64_t>(id);
  Object* array = wire_id != 0 ? known_object(Kind::kArray, session, nullptr, wire_id) : nullptr;
  return array != nullptr ? handle_cast<CUarray>(array) : nullptr;
}

}  // namespace

CUresult cuGraphAddMemcpyNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                              const CUgraphNode* dependencies, size_t numDependencies,
                              const CUDA_MEMCPY3D* copyParams, CUcontext ctx) {
  return copy_node(add(phGraphNode, hGraph, dependencies, numDependencies), copyParams, ctx);
}
CUresult cuGraphMemcpyNodeSetParams(CUgraphNode hNode, const CUDA_MEMCPY3D* nodeParams) {
  if (hNode == nullptr) return no_object(Kind::kNode);
  return copy_node(change(hNode, nullptr), nodeParams, nullptr);
}
CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                        const CUDA_MEMCPY3D* copyParams, CUcontext ctx) {
  if (hGraphExec == nullptr || hNode == nullptr) return no_object(Kind::kNode);
  return copy_node(change(hNode, hGraphExec), copyParams, ctx);
}

CUresult cuGraphMemcpyNodeGetParams(CUgraphNode hNode, CUDA_MEMCPY3D* nodeParams) {
  Object* node = nullptr;
  wire::cuda::graph_memcpy_node_get_reply r;
  TENDRIL_TRY((ask<wire::cuda::graph_memcpy_node_get_request>(hNode, nodeParams, &node, &r)));
  if (r.image.count != sizeof *nodeParams) return CUDA_ERROR_UNKNOWN;
  memcpy(nodeParams, r.image.data, sizeof *nodeParams);
  nodeParams->srcArray = array_handle(node->session, nodeParams->srcArray);
  nodeParams->dstArray = array_handle(node->session, nodeParams->dstArray);
  return CUDA_SUCCESS;
}

CUresult cuGraphAddHostNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                            const CUgraphNode* dependencies, size_t numDependencies,
                            const CUDA_HOST_NODE_PARAMS* nodeParams) {
  if (nodeParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return host_node(add(phGraphNode, hGraph, dependencies, numDependencies), nodeParams->fn,
                   nodeParams->userData);
}
CUresult cuGraphHostNodeSetParams(CUgraphNode hNode, const CUDA_HOST_NODE_PARAMS* nodeParams) {
  if (hNode == nullptr) return no_object(Kind::kNode);
  if (nodeParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return host_node(change(hNode, nullptr), nodeParams->fn, nodeParams->userData);
}
CUresult cuGraphExecHostNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                      const CUDA_HOST_NODE_PARAMS* nodeParams) {
  if (hGraphExec == nullptr || hNode == nullptr) return no_object(Kind::kNode);
  if (nodeParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return host_node(change(hNode, hGraphExec), nodeParams->fn, nodeParams->userData);
}

CUresult cuGraphHostNodeGetParams(CUgraphNode hNode, CUDA_HOST_NODE_PARAMS* nodeParams) {
  Object* node = nullptr;
  wire::cuda::graph_host_node_get_reply r;
  TENDRIL_TRY((ask<wire::cuda::graph_host_node_get_request>(hNode, nodeParams, &node, &r)));
  return host_function_of(r.token, &nodeParams->fn, &nodeParams->userData) ? CUDA_SUCCESS
                                                                           : CUDA_ERROR_UNKNOWN;
}

CUresult cuGraphAddMemAllocNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                                const CUgraphNode* dependencies, size_t numDependencies,
                                CUDA_MEM_ALLOC_NODE_PARAMS* nodeParams) {
  return alloc_node(add(phGraphNode, hGraph, dependencies, numDependencies), nodeParams);
}

CUresult cuGraphMemAllocNodeGetParams(CUgraphNode hNode, CUDA_MEM_ALLOC_NODE_PARAMS* params_out) {
  Object* node = nullptr;
  wire::cuda::graph_alloc_node_get_reply r;
  TENDRIL_TRY((ask<wire::cuda::graph_alloc_node_get_request>(hNode, params_out, &node, &r)));
  if (r.pool.count != sizeof params_out->poolProps) return CUDA_ERROR_UNKNOWN;
  memset(params_out, 0,
         sizeof *params_out);  // without the list of accesses, which is the driver's memory
  memcpy(&params_out->poolProps, r.pool.data, sizeof params_out->poolProps);
  params_out->bytesize = r.bytes;
  params_out->dptr = r.address;
  CUmemLocation* location = &params_out->poolProps.location;
  for (const Device* d : node->session->devices) {
    if (location->type == CU_MEM_LOCATION_TYPE_DEVICE && r.slot == d->slot)
      location->id = d->ordinal;
  }
  return CUDA_SUCCESS;
}

CUresult cuGraphConditionalHandleCreate(CUgraphConditionalHandle* pHandle_out, CUgraph hGraph,
                                        CUcontext ctx, unsigned int defaultLaunchValue,
                                        unsigned int flags) {
  Object* graph = nullptr;
  Context* c = nullptr;
  TENDRIL_TRY(need(Kind::kGraph, handle_value(hGraph), &graph));
  if (pHandle_out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  TENDRIL_TRY(context_of_node(ctx, &c));
  wire::cuda::graph_conditional_handle_request m;
  wire::cuda::graph_conditional_handle_reply r;
  m.graph = graph->wire_id;
  m.value = defaultLaunchValue;
  m.flags = flags;
  TENDRIL_TRY(graph->session->call(c, m, r));
  *pHandle_out = r.handle;
  return CUDA_SUCCESS;
}

CUresult cuGraphAddBatchMemOpNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                                  const CUgraphNode* dependencies, size_t numDependencies,
                                  const CUDA_BATCH_MEM_OP_NODE_PARAMS* nodeParams) {
  return batch_node(add(phGraphNode, hGraph, dependencies, numDependencies), nodeParams);
}
CUresult cuGraphBatchMemOpNodeSetParams(CUgraphNode hNode,
                                        const CUDA_BATCH_MEM_OP_NODE_PARAMS* nodeParams) {
  if (hNode == nullptr) return no_object(Kind::kNode);
  return batch_node(change(hNode, nullptr), nodeParams);
}
CUresult cuGraphExecBatchMemOpNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                            const CUDA_BATCH_MEM_OP_NODE_PARAMS* nodeParams) {
  if (hGraphExec == nullptr || hNode == nullptr) return no_object(Kind::kNode);
  return batch_node(change(hNode, hGraphExec), nodeParams);
}

CUresult cuGraphBatchMemOpNodeGetParams(CUgraphNode hNode,
                                        CUDA_BATCH_MEM_OP_NODE_PARAMS* nodeParams_out) {
  Object* node = nullptr;
  wire::cuda::graph_batch_node_get_reply r;
  TENDRIL_TRY((ask<wire::cuda::graph_batch_node_get_request>(hNode, nodeParams_out, &node, &r)));
  LentToProgram& lent = process()->lent_to_program.get();
  const base::Locked held(lent.lock);
  std::vector<CUstreamBatchMemOpParams>& operations = lent.operations[hNode];
  operations.resize(r.operations.count / sizeof(CUstreamBatchMemOpParams));
  if (!operations.empty())
    memcpy(operations.data(), r.operations.data, operations.size() * sizeof operations[0]);
  memset(nodeParams_out, 0, sizeof *nodeParams_out);
  nodeParams_out->count = static_cast<unsigned>(operations.size());
  nodeParams_out->paramArray = operations.data();
  nodeParams_out->flags = r.flags;
  return CUDA_SUCCESS;
}

CUresult cuGraphAddNode_v2(CUgraphNode* phGraphNode, CUgraph hGraph,
                           const CUgraphNode* dependencies, const CUgraphEdgeData* dependencyData,
                           size_t numDependencies, CUgraphNodeParams* nodeParams) {
  if (process() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (nodeParams == nullptr || phGraphNode == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (dependencyData == nullptr)
    return any_node(add(phGraphNode, hGraph, dependencies, numDependencies), nodeParams);
  // Edges with data are added after the node.
  TENDRIL_TRY(any_node(add(phGraphNode, hGraph, nullptr, 0), nodeParams));
  const std::vector<CUgraphNode> to(numDependencies, *phGraphNode);
  const CUresult result =
      cuGraphAddDependencies_v2(hGraph, dependencies, to.data(), dependencyData, numDependencies);
  if (result != CUDA_SUCCESS) cuGraphDestroyNode(*phGraphNode);
  return result;
}

CUresult cuGraphAddNode(CUgraphNode* phGraphNode, CUgraph hGraph, const CUgraphNode* dependencies,
                        size_t numDependencies, CUgraphNodeParams* nodeParams) {
  return cuGraphAddNode_v2(phGraphNode, hGraph, dependencies, nullptr, numDependencies, nodeParams);
}

CUresult cuGraphNodeSetParams(CUgraphNode hNode, CUgraphNodeParams* nodeParams) {
  if (process() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (hNode == nullptr) return no_object(Kind::kNode);
  return nodeParams != nullptr ? any_node(change(hNode, nullptr), nodeParams)
                               : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphExecNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                  CUgraphNodeParams* nodeParams) {
  if (process() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (hGraphExec == nullptr || hNode == nullptr) return no_object(Kind::kNode);
  return nodeParams != nullptr ? any_node(change(hNode, hGraphExec), nodeParams)
                               : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace tendril::client::cuda
