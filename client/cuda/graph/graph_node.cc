// SPDX-License-Identifier: Apache-2.0
// Graph nodes that involve this process: copies (host memory gets a mirror that the node uses),
// host functions (they run here, see callback.cc), and the graph's own memory. Also the generic
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

// Memory that answers about nodes point to.
struct LentToProgram {
  base::Lock lock;
  // The driver lends these for as long as a node lives. Here they stay until the program ends:
  // handles are small and conditional nodes few. The list is for leak checkers to find.
  std::vector<CUgraph*> graphs;
  // The program may read it until it asks again.
  std::unordered_map<CUgraphNode, std::vector<CUstreamBatchMemOpParams>> operations;
};

namespace {

using wire::cuda::NodeChange;

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

CUresult resolve(const Place& place, Resolved* resolved) {
  Object* object = nullptr;
  if (place.node != nullptr) {
    TENDRIL_TRY(need_object(Kind::kNode, handle_value(place.node), &object));
    resolved->session = object->session;
    resolved->node = object->wire_id;
    resolved->change = NodeChange::kSetInNode;
    if (place.exec == nullptr) return CUDA_SUCCESS;
    TENDRIL_TRY(need_object(Kind::kExec, handle_value(place.exec), &object));
    resolved->exec = object->wire_id;
    resolved->change = NodeChange::kSetInExec;
    return CUDA_SUCCESS;
  }
  TENDRIL_TRY(need_object(Kind::kGraph, handle_value(place.graph), &object));
  if (place.out == nullptr || (place.count != 0 && place.dependencies == nullptr))
    return CUDA_ERROR_INVALID_VALUE;
  resolved->session = object->session;
  resolved->graph = object->wire_id;
  for (size_t i = 0; i < place.count; ++i) {
    TENDRIL_TRY(need_object(Kind::kNode, handle_value(place.dependencies[i]), &object));
    resolved->dependencies.push_back(object->wire_id);
  }
  return CUDA_SUCCESS;
}

// Sends the request. A node that was added gets its handle.
template <typename Request, typename Answer>
CUresult send(Context* context, const Place& place, Resolved* resolved, Request& request,
              Answer& answer) {
  if (place.node == nullptr) {
    resolved->fresh = create_object(Kind::kNode, resolved->session, nullptr);
    if (resolved->fresh == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
    resolved->node = resolved->fresh->wire_id;
  }
  request.graph = resolved->graph;
  request.node = resolved->node;
  request.dependencies = {resolved->dependencies.data(), resolved->dependencies.size()};
  const CUresult result = resolved->session->call(context, request, answer);
  if (resolved->fresh == nullptr) return result;
  if (result == CUDA_SUCCESS)
    *place.out = handle_cast<CUgraphNode>(resolved->fresh);
  else
    destroy_object(Kind::kNode, resolved->fresh);
  return result;
}

uint64_t bytes_spanned(size_t x, size_t y, size_t z, size_t pitch, size_t height,
                       const CUDA_MEMCPY3D& parameters) {
  if (parameters.WidthInBytes == 0 || parameters.Height == 0 || parameters.Depth == 0) return 0;
  if (pitch == 0) pitch = parameters.WidthInBytes + x;
  if (height == 0) height = parameters.Height + y;
  return ((z + parameters.Depth - 1) * height + y + parameters.Height - 1) * pitch + x +
         parameters.WidthInBytes;
}

// One end of a copy: host memory gets its mirror, an array the worker's name for it.
CUresult localize_end(Session* session, Context* context, CUmemorytype type, uint64_t host,
                      uint64_t device, CUarray* array, uint64_t bytes, uint32_t use) {
  Range range;
  Object* object = nullptr;
  switch (type) {
    case CU_MEMORYTYPE_HOST:
      return bytes == 0 ? CUDA_SUCCESS : mirror_for_node(session, context, host, bytes, use);
    case CU_MEMORYTYPE_UNIFIED:
      if (process()->ranges.find(device, &range) && !range.host()) return CUDA_SUCCESS;
      return bytes == 0 ? CUDA_SUCCESS : mirror_for_node(session, context, device, bytes, use);
    case CU_MEMORYTYPE_ARRAY:
      TENDRIL_TRY(need_object(Kind::kArray, handle_value(*array), &object));
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

// The shape of a plain copy between two places of device memory. The driver accepts any such copy.
// Other copies have no shape here.
ChangeShape change_of(const Session* session, const Context* context,
                      const CUDA_MEMCPY3D& parameters) {
  ChangeShape shape;
  const bool plain =
      parameters.Height == 1 && parameters.Depth == 1 &&
      (parameters.srcXInBytes | parameters.srcY | parameters.srcZ | parameters.srcLOD |
       parameters.dstXInBytes | parameters.dstY | parameters.dstZ | parameters.dstLOD) == 0;
  if (!plain ||
      !add_device_end(&shape, session, parameters.srcMemoryType, parameters.srcDevice,
                      parameters.WidthInBytes) ||
      !add_device_end(&shape, session, parameters.dstMemoryType, parameters.dstDevice,
                      parameters.WidthInBytes))
    return ChangeShape();
  shape.add(context->index);
  for (uint64_t word : {parameters.WidthInBytes, parameters.srcPitch, parameters.srcHeight,
                        parameters.dstPitch, parameters.dstHeight})
    shape.add(word);
  return shape;
}

CUresult copy_node(const Place& place, const CUDA_MEMCPY3D* shape, CUcontext ctx) {
  Resolved resolved;
  TENDRIL_TRY(resolve(place, &resolved));
  if (shape == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Context* context = current_context();
  if (ctx != nullptr) {
    context = process()->contexts.find(Kind::kContext, handle_value(ctx));
    if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  }
  if (context == nullptr || context->session != resolved.session) return CUDA_ERROR_INVALID_CONTEXT;
  CUDA_MEMCPY3D image = *shape;
  TENDRIL_TRY(localize_end(resolved.session, context, image.srcMemoryType,
                           handle_value(image.srcHost), image.srcDevice, &image.srcArray,
                           bytes_spanned(image.srcXInBytes, image.srcY, image.srcZ, image.srcPitch,
                                         image.srcHeight, image),
                           kMirrorGraphReads));
  TENDRIL_TRY(localize_end(resolved.session, context, image.dstMemoryType,
                           handle_value(image.dstHost), image.dstDevice, &image.dstArray,
                           bytes_spanned(image.dstXInBytes, image.dstY, image.dstZ, image.dstPitch,
                                         image.dstHeight, image),
                           kMirrorGraphWrites));
  const wire::Bytes encoded{reinterpret_cast<const uint8_t*>(&image), sizeof image};
  auto* exec = place.exec != nullptr ? process()->execs.find(Kind::kExec, handle_value(place.exec))
                                     : nullptr;
  const bool ours = exec != nullptr && exec->session == resolved.session;
  const ChangeShape change = ours ? change_of(resolved.session, context, image) : ChangeShape();
  if (exec != nullptr && exec->changes.taken(resolved.node, change)) {
    wire::cuda::graph_memcpy_change_request request;
    request.exec = resolved.exec;
    request.node = resolved.node;
    request.image = encoded;
    return resolved.session->enqueue(context, request);
  }
  wire::cuda::graph_memcpy_node_request request;
  wire::cuda::graph_memcpy_node_reply answer;
  request.change = resolved.change;
  request.exec = resolved.exec;
  request.image = encoded;
  const CUresult result = send(context, place, &resolved, request, answer);
  if (exec != nullptr) exec->changes.note(resolved.node, change, result == CUDA_SUCCESS);
  return result;
}

CUresult host_node(const Place& place, CUhostFn function, void* data) {
  Resolved resolved;
  TENDRIL_TRY(resolve(place, &resolved));
  if (function == nullptr) return CUDA_ERROR_INVALID_VALUE;
  wire::cuda::graph_host_node_request request;
  wire::cuda::graph_host_node_reply answer;
  request.change = resolved.change;
  request.exec = resolved.exec;
  request.token = add_host_function(resolved.session, function, data);
  if (request.token == 0) return CUDA_ERROR_OPERATING_SYSTEM;
  return send(current_context(), place, &resolved, request, answer);
}

CUresult localize_location(CUmemLocation* location) {
  if (location->type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_SUCCESS;
  const Device* device = device_of(location->id);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  location->id = static_cast<int>(device->slot);
  return CUDA_SUCCESS;
}

// The memory belongs to the graph. Its address is known at once, and means nothing outside a
// launch. Works on both versions of the struct.
template <typename Params>
CUresult alloc_node(const Place& place, Params* params) {
  Resolved resolved;
  TENDRIL_TRY(resolve(place, &resolved));
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
  wire::cuda::graph_alloc_node_request request;
  wire::cuda::graph_alloc_node_reply answer;
  request.pool = {reinterpret_cast<const uint8_t*>(&pool), sizeof pool};
  request.access = {reinterpret_cast<const uint8_t*>(access.data()),
                    access.size() * sizeof(CUmemAccessDesc)};
  request.bytes = params->bytesize;
  TENDRIL_TRY(send(current_context(), place, &resolved, request, answer));
  params->dptr = answer.address;
  register_graph_range(resolved.session, current_context(), answer.address, params->bytesize);
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

CUresult conditional_node(const Place& place, CUDA_CONDITIONAL_NODE_PARAMS* params) {
  Resolved resolved;
  Context* context = nullptr;
  TENDRIL_TRY(resolve(place, &resolved));
  TENDRIL_TRY(context_of_node(params->ctx, &context));
  if (params->size == 0) return CUDA_ERROR_INVALID_VALUE;
  wire::cuda::graph_conditional_node_request request;
  wire::cuda::graph_conditional_node_reply answer;
  request.handle = params->handle;
  request.type = static_cast<uint32_t>(params->type);
  request.size = params->size;
  TENDRIL_TRY(send(context, place, &resolved, request, answer));
  params->phGraph_out = lend_graphs(resolved.session, answer.bodies);
  return params->phGraph_out != nullptr ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

// The node's own graph, or a graph that the program gives to the node. Its handle stays valid, and
// names the node's graph.
CUresult child_node(const Place& place, const CUDA_CHILD_GRAPH_NODE_PARAMS& child) {
  if (place.exec != nullptr)
    return cuGraphExecChildGraphNodeSetParams(place.exec, place.node, child.graph);
  if (place.node != nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  if (child.ownership == CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE)
    return cuGraphAddChildGraphNode(place.out, place.graph, place.dependencies, place.count,
                                    child.graph);
  if (child.ownership != CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE) return CUDA_ERROR_INVALID_VALUE;
  Resolved resolved;
  Object* graph = nullptr;
  TENDRIL_TRY(resolve(place, &resolved));
  TENDRIL_TRY(need_object(Kind::kGraph, handle_value(child.graph), &graph));
  if (graph->session != resolved.session) return CUDA_ERROR_INVALID_VALUE;
  wire::cuda::graph_moved_child_node_request request;
  wire::cuda::graph_moved_child_node_reply answer;
  request.child = graph->wire_id;
  return send(current_context(), place, &resolved, request, answer);
}

// Works on both versions of the struct.
template <typename Params>
CUresult batch_node(const Place& place, const Params* params) {
  Resolved resolved;
  Context* context = nullptr;
  TENDRIL_TRY(resolve(place, &resolved));
  if (params == nullptr || (params->count != 0 && params->paramArray == nullptr))
    return CUDA_ERROR_INVALID_VALUE;
  TENDRIL_TRY(context_of_node(params->ctx, &context));
  wire::cuda::graph_batch_node_request request;
  wire::cuda::graph_batch_node_reply answer;
  request.change = resolved.change;
  request.exec = resolved.exec;
  request.operations = {reinterpret_cast<const uint8_t*>(params->paramArray),
                        params->count * sizeof(CUstreamBatchMemOpParams)};
  request.flags = params->flags;
  return send(context, place, &resolved, request, answer);
}

CUresult memset_node(const Place& place, const CUDA_MEMSET_NODE_PARAMS_v2& memset) {
  const CUDA_MEMSET_NODE_PARAMS params{memset.dst,         memset.pitch, memset.value,
                                       memset.elementSize, memset.width, memset.height};
  CUcontext ctx = memset.ctx != nullptr || current_context() == nullptr
                      ? memset.ctx
                      : handle_cast<CUcontext>(current_context());
  if (place.exec != nullptr)
    return cuGraphExecMemsetNodeSetParams(place.exec, place.node, &params, ctx);
  if (place.node != nullptr) return cuGraphMemsetNodeSetParams(place.node, &params);
  return cuGraphAddMemsetNode(place.out, place.graph, place.dependencies, place.count, &params,
                              ctx);
}

CUresult kernel_node(const Place& place, const CUDA_KERNEL_NODE_PARAMS_v3& kernel) {
  CUDA_KERNEL_NODE_PARAMS params{};
  params.func = kernel.func;
  params.gridDimX = kernel.gridDimX;
  params.gridDimY = kernel.gridDimY;
  params.gridDimZ = kernel.gridDimZ;
  params.blockDimX = kernel.blockDimX;
  params.blockDimY = kernel.blockDimY;
  params.blockDimZ = kernel.blockDimZ;
  params.sharedMemBytes = kernel.sharedMemBytes;
  params.kernelParams = kernel.kernelParams;
  params.extra = kernel.extra;
  params.kern = kernel.kern;
  params.ctx = kernel.ctx;
  if (place.exec != nullptr)
    return cuGraphExecKernelNodeSetParams_v2(place.exec, place.node, &params);
  if (place.node != nullptr) return cuGraphKernelNodeSetParams_v2(place.node, &params);
  return cuGraphAddKernelNode_v2(place.out, place.graph, place.dependencies, place.count, &params);
}

// The generic call, for every kind of node that also has a call of its own.
CUresult any_node(const Place& place, CUgraphNodeParams* parameters) {
  switch (parameters->type) {
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      return copy_node(place, &parameters->memcpy.copyParams, parameters->memcpy.copyCtx);
    case CU_GRAPH_NODE_TYPE_HOST:
      return host_node(place, parameters->host.fn, parameters->host.userData);
    case CU_GRAPH_NODE_TYPE_MEMSET:
      return memset_node(place, parameters->memset);
    case CU_GRAPH_NODE_TYPE_KERNEL:
      return kernel_node(place, parameters->kernel);
    case CU_GRAPH_NODE_TYPE_GRAPH:
      return child_node(place, parameters->graph);
    case CU_GRAPH_NODE_TYPE_EMPTY:
      return place.node == nullptr
                 ? cuGraphAddEmptyNode(place.out, place.graph, place.dependencies, place.count)
                 : CUDA_ERROR_INVALID_VALUE;
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
      if (place.exec != nullptr)
        return cuGraphExecEventRecordNodeSetEvent(place.exec, place.node,
                                                  parameters->eventRecord.event);
      if (place.node != nullptr)
        return cuGraphEventRecordNodeSetEvent(place.node, parameters->eventRecord.event);
      return cuGraphAddEventRecordNode(place.out, place.graph, place.dependencies, place.count,
                                       parameters->eventRecord.event);
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
      if (place.exec != nullptr)
        return cuGraphExecEventWaitNodeSetEvent(place.exec, place.node,
                                                parameters->eventWait.event);
      if (place.node != nullptr)
        return cuGraphEventWaitNodeSetEvent(place.node, parameters->eventWait.event);
      return cuGraphAddEventWaitNode(place.out, place.graph, place.dependencies, place.count,
                                     parameters->eventWait.event);
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
      return place.node == nullptr ? alloc_node(place, &parameters->alloc)
                                   : CUDA_ERROR_NOT_SUPPORTED;
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
      return place.node == nullptr
                 ? cuGraphAddMemFreeNode(place.out, place.graph, place.dependencies, place.count,
                                         parameters->free.dptr)
                 : CUDA_ERROR_NOT_SUPPORTED;
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
      return place.node == nullptr ? conditional_node(place, &parameters->conditional)
                                   : CUDA_ERROR_NOT_SUPPORTED;
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
      return batch_node(place, &parameters->memOp);
    default:
      return CUDA_ERROR_NOT_SUPPORTED;  // semaphores of other processes
  }
}

Place add(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies, size_t count) {
  Place place;
  place.out = out;
  place.graph = graph;
  place.dependencies = dependencies;
  place.count = count;
  return place;
}

Place change(CUgraphNode node, CUgraphExec exec) {
  Place place;
  place.node = node;
  place.exec = exec;
  return place;
}

// Asks the worker about a node. The reply lives until the thread's next call.
template <typename Request, typename Answer>
CUresult ask(CUgraphNode hNode, const void* out, Object** node, Answer* reply) {
  TENDRIL_TRY(need_object(Kind::kNode, handle_value(hNode), node));
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Request m;
  m.node = (*node)->wire_id;
  return (*node)->session->call(static_cast<const Context*>(nullptr), m, *reply);
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
  wire::cuda::graph_memcpy_node_get_reply reply;
  TENDRIL_TRY((ask<wire::cuda::graph_memcpy_node_get_request>(hNode, nodeParams, &node, &reply)));
  if (reply.image.count != sizeof *nodeParams) return CUDA_ERROR_UNKNOWN;
  memcpy(nodeParams, reply.image.data, sizeof *nodeParams);
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
  wire::cuda::graph_host_node_get_reply reply;
  TENDRIL_TRY((ask<wire::cuda::graph_host_node_get_request>(hNode, nodeParams, &node, &reply)));
  return host_function_of(reply.token, &nodeParams->fn, &nodeParams->userData) ? CUDA_SUCCESS
                                                                               : CUDA_ERROR_UNKNOWN;
}

CUresult cuGraphAddMemAllocNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                                const CUgraphNode* dependencies, size_t numDependencies,
                                CUDA_MEM_ALLOC_NODE_PARAMS* nodeParams) {
  return alloc_node(add(phGraphNode, hGraph, dependencies, numDependencies), nodeParams);
}

CUresult cuGraphMemAllocNodeGetParams(CUgraphNode hNode, CUDA_MEM_ALLOC_NODE_PARAMS* params_out) {
  Object* node = nullptr;
  wire::cuda::graph_alloc_node_get_reply reply;
  TENDRIL_TRY((ask<wire::cuda::graph_alloc_node_get_request>(hNode, params_out, &node, &reply)));
  if (reply.pool.count != sizeof params_out->poolProps) return CUDA_ERROR_UNKNOWN;
  memset(params_out, 0,
         sizeof *params_out);  // without the list of accesses, which is the driver's memory
  memcpy(&params_out->poolProps, reply.pool.data, sizeof params_out->poolProps);
  params_out->bytesize = reply.bytes;
  params_out->dptr = reply.address;
  CUmemLocation* location = &params_out->poolProps.location;
  for (const Device* device : node->session->devices) {
    if (location->type == CU_MEM_LOCATION_TYPE_DEVICE && reply.slot == device->slot)
      location->id = device->ordinal;
  }
  return CUDA_SUCCESS;
}

CUresult cuGraphConditionalHandleCreate(CUgraphConditionalHandle* pHandle_out, CUgraph hGraph,
                                        CUcontext ctx, unsigned int defaultLaunchValue,
                                        unsigned int flags) {
  Object* graph = nullptr;
  Context* context = nullptr;
  TENDRIL_TRY(need_object(Kind::kGraph, handle_value(hGraph), &graph));
  if (pHandle_out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  TENDRIL_TRY(context_of_node(ctx, &context));
  wire::cuda::graph_conditional_handle_request request;
  wire::cuda::graph_conditional_handle_reply reply;
  request.graph = graph->wire_id;
  request.value = defaultLaunchValue;
  request.flags = flags;
  TENDRIL_TRY(graph->session->call(context, request, reply));
  *pHandle_out = reply.handle;
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
  wire::cuda::graph_batch_node_get_reply reply;
  TENDRIL_TRY(
      (ask<wire::cuda::graph_batch_node_get_request>(hNode, nodeParams_out, &node, &reply)));
  LentToProgram& lent = process()->lent_to_program.get();
  const base::Locked held(lent.lock);
  std::vector<CUstreamBatchMemOpParams>& operations = lent.operations[hNode];
  operations.resize(reply.operations.count / sizeof(CUstreamBatchMemOpParams));
  if (!operations.empty())
    memcpy(operations.data(), reply.operations.data, operations.size() * sizeof operations[0]);
  memset(nodeParams_out, 0, sizeof *nodeParams_out);
  nodeParams_out->count = static_cast<unsigned>(operations.size());
  nodeParams_out->paramArray = operations.data();
  nodeParams_out->flags = reply.flags;
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
