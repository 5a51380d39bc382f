// SPDX-License-Identifier: Apache-2.0
// Handlers of api/cuda/graph.spec for nodes that contain something of the client's (copies, host
// functions, the graph's own memory), for user objects and for pictures of graphs. Executor thread.
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <string>

#include "api/cuda_handlers.gen.h"
#include "worker/cuda/executor/callbacks.h"
#include "worker/cuda/executor/scope.h"
#include "worker/cuda/graphs.h"
#include "worker/cuda/memory/graph_sizes.h"
#include "worker/cuda/memory/kept_memory.h"
#include "worker/cuda/memory/mirror.h"

namespace tendril::worker::cuda {

using wire::cuda::GraphMemoryAction;
using wire::cuda::NodeChange;
namespace {

// Resolves one end of a copy: `host` and `device` become places in this process, and an id becomes
// an array. Host memory must be a mirror, so that the client cannot read the worker's memory. An
// address whose kind of memory is not given may be the driver's.
template <typename Host>
void resolve_end(Executor& executor, Scope& scope, CUmemorytype type, Host** host,
                 CUdeviceptr* device, CUarray* array, uint64_t bytes) {
  const bool unified = type == CU_MEMORYTYPE_UNIFIED;
  const uint64_t at = unified ? uint64_t{*device} : reinterpret_cast<uint64_t>(*host);
  const bool in_host =
      type == CU_MEMORYTYPE_HOST || (unified && executor.mirrors().find(at) != nullptr);
  if (in_host && bytes != 0 && !executor.mirrors().name_in_graph(at, bytes))
    scope.fail(CUDA_ERROR_INVALID_VALUE);
  if (unified && bytes != 0 && is_workers_own(executor, at, bytes))
    scope.fail(CUDA_ERROR_INVALID_VALUE);
  if (type == CU_MEMORYTYPE_HOST) *host = reinterpret_cast<Host*>(executor.mirrors().place_of(at));
  if (unified) *device = executor.mirrors().place_of(at);
  if (type == CU_MEMORYTYPE_ARRAY)
    *array = scope.get<CUarray>(Kind::kArray, reinterpret_cast<uint64_t>(*array));
}

// The reverse: the end as the client knows it.
template <typename Host>
void present_end(Executor& executor, Scope& scope, CUmemorytype type, Host** host,
                 CUdeviceptr* device, CUarray* array) {
  if (type == CU_MEMORYTYPE_HOST)
    *host =
        reinterpret_cast<Host*>(executor.mirrors().address_of(reinterpret_cast<uint64_t>(*host)));
  if (type == CU_MEMORYTYPE_UNIFIED) *device = executor.mirrors().address_of(*device);
  *array = reinterpret_cast<CUarray>(
      scope.id(Kind::kArray, type == CU_MEMORYTYPE_ARRAY ? *array : nullptr));
}

bool resolve_copy(Executor& executor, Scope& scope, const wire::Bytes& image,
                  CUDA_MEMCPY3D* parameters) {
  if (!scope.image(image, parameters)) return false;
  resolve_end(executor, scope, parameters->srcMemoryType, &parameters->srcHost,
              &parameters->srcDevice, &parameters->srcArray,
              bytes_spanned(parameters->srcXInBytes, parameters->srcY, parameters->srcZ,
                            parameters->srcPitch, parameters->srcHeight, *parameters));
  resolve_end(executor, scope, parameters->dstMemoryType, &parameters->dstHost,
              &parameters->dstDevice, &parameters->dstArray,
              bytes_spanned(parameters->dstXInBytes, parameters->dstY, parameters->dstZ,
                            parameters->dstPitch, parameters->dstHeight, *parameters));
  return scope.ok();
}

// After a node was added: binds it to the id that the client chose. The scope has resolved the
// graph.
CUresult named(Scope& scope, CUresult result, uint64_t id, const CUgraphNode& node) {
  if (result == CUDA_SUCCESS) scope.bind(Kind::kNode, id, node);
  return result;
}

}  // namespace

CUresult handle(Executor& executor, const wire::cuda::graph_memcpy_node_request& request,
                wire::cuda::graph_memcpy_node_reply&) {
  Scope scope(executor);
  CUDA_MEMCPY3D parameters;
  if (executor.context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (!resolve_copy(executor, scope, request.image, &parameters)) return scope.error();
  CUcontext context = executor.context()->context;
  if (request.change == NodeChange::kAdd) {
    CUgraph graph = scope.get<CUgraph>(Kind::kGraph, request.graph);
    CUgraphNode* dependencies = scope.handles<CUgraphNode>(Kind::kNode, request.dependencies);
    CUgraphNode node = nullptr;
    scope.reserve(Kind::kNode, request.node);
    if (!scope.ok()) return scope.error();
    return named(scope,
                 executor.driver().cuGraphAddMemcpyNode(
                     &node, graph, dependencies, request.dependencies.count, &parameters, context),
                 request.node, node);
  }
  CUgraphNode node = scope.get<CUgraphNode>(Kind::kNode, request.node);
  if (request.change == NodeChange::kSetInNode)
    return scope.ok() ? executor.driver().cuGraphMemcpyNodeSetParams(node, &parameters)
                      : scope.error();
  CUgraphExec exec = scope.get<CUgraphExec>(Kind::kExec, request.exec);
  return scope.ok()
             ? executor.driver().cuGraphExecMemcpyNodeSetParams(exec, node, &parameters, context)
             : scope.error();
}

CUresult handle(Executor& executor, const wire::cuda::graph_memcpy_change_request& request) {
  wire::cuda::graph_memcpy_node_request change;
  wire::cuda::graph_memcpy_node_reply unused;
  change.change = NodeChange::kSetInExec;
  change.exec = request.exec;
  change.node = request.node;
  change.image = request.image;
  return handle(executor, change, unused);
}

CUresult handle(Executor& executor, const wire::cuda::graph_memcpy_node_get_request& request,
                wire::cuda::graph_memcpy_node_get_reply& reply) {
  Scope scope(executor);
  CUgraphNode node = scope.get<CUgraphNode>(Kind::kNode, request.node);
  CUDA_MEMCPY3D* parameters = scope.scratch<CUDA_MEMCPY3D>(1);
  if (!scope.ok()) return scope.error();
  const CUresult result = executor.driver().cuGraphMemcpyNodeGetParams(node, parameters);
  if (result != CUDA_SUCCESS) return result;
  present_end(executor, scope, parameters->srcMemoryType, &parameters->srcHost,
              &parameters->srcDevice, &parameters->srcArray);
  present_end(executor, scope, parameters->dstMemoryType, &parameters->dstHost,
              &parameters->dstDevice, &parameters->dstArray);
  reply.image = {reinterpret_cast<const uint8_t*>(parameters), sizeof *parameters};
  return CUDA_SUCCESS;
}

CUresult handle(Executor& executor, const wire::cuda::graph_host_node_request& request,
                wire::cuda::graph_host_node_reply&) {
  Scope scope(executor);
  CUgraphNode node = nullptr;
  CUgraph graph = request.change == NodeChange::kAdd
                      ? scope.get<CUgraph>(Kind::kGraph, request.graph)
                      : nullptr;
  CUgraphNode* dependencies = scope.handles<CUgraphNode>(Kind::kNode, request.dependencies);
  CUgraphExec exec = request.change == NodeChange::kSetInExec
                         ? scope.get<CUgraphExec>(Kind::kExec, request.exec)
                         : nullptr;
  if (request.change != NodeChange::kAdd)
    node = scope.get<CUgraphNode>(Kind::kNode, request.node);
  else
    scope.reserve(Kind::kNode, request.node);
  if (!scope.ok()) return scope.error();
  const CUDA_HOST_NODE_PARAMS parameters{Callbacks::run,
                                         executor.callbacks().lasting(request.token)};
  if (request.change == NodeChange::kSetInNode)
    return executor.driver().cuGraphHostNodeSetParams(node, &parameters);
  if (request.change == NodeChange::kSetInExec)
    return executor.driver().cuGraphExecHostNodeSetParams(exec, node, &parameters);
  return named(scope,
               executor.driver().cuGraphAddHostNode(&node, graph, dependencies,
                                                    request.dependencies.count, &parameters),
               request.node, node);
}

CUresult handle(Executor& executor, const wire::cuda::graph_host_node_get_request& request,
                wire::cuda::graph_host_node_get_reply& reply) {
  Scope scope(executor);
  CUgraphNode node = scope.get<CUgraphNode>(Kind::kNode, request.node);
  if (!scope.ok()) return scope.error();
  CUDA_HOST_NODE_PARAMS parameters{};
  const CUresult result = executor.driver().cuGraphHostNodeGetParams(node, &parameters);
  if (result != CUDA_SUCCESS) return result;
  if (parameters.fn != Callbacks::run || parameters.userData == nullptr) return CUDA_ERROR_UNKNOWN;
  reply.token = static_cast<const Callbacks::Request*>(parameters.userData)->token;
  return CUDA_SUCCESS;
}

CUresult handle(Executor& executor, const wire::cuda::graph_alloc_node_request& request,
                wire::cuda::graph_alloc_node_reply& reply) {
  Scope scope(executor);
  CUDA_MEM_ALLOC_NODE_PARAMS parameters{};
  CUgraph graph = scope.get<CUgraph>(Kind::kGraph, request.graph);
  CUgraphNode* dependencies = scope.handles<CUgraphNode>(Kind::kNode, request.dependencies);
  if (!scope.image(request.pool, &parameters.poolProps) ||
      request.access.count % sizeof(CUmemAccessDesc) != 0)
    return CUDA_ERROR_INVALID_VALUE;
  parameters.poolProps = scope.resolve(parameters.poolProps);
  parameters.poolProps.win32SecurityAttributes = nullptr;
  const size_t count = request.access.count / sizeof(CUmemAccessDesc);
  CUmemAccessDesc* access = scope.scratch<CUmemAccessDesc>(count);
  if (!scope.ok()) return scope.error();
  if (count != 0) std::memcpy(access, request.access.data, request.access.count);
  for (size_t i = 0; i < count; ++i) access[i] = scope.resolve(access[i]);
  parameters.accessDescs = access;
  parameters.accessDescCount = count;
  parameters.bytesize = request.bytes;
  scope.reserve(Kind::kNode, request.node);
  if (!scope.ok()) return scope.error();
  if (request.bytes > executor.charge().quota(executor.slot()))
    return CUDA_ERROR_OUT_OF_MEMORY;  // no launch could ever get so much
  executor.kept_memory().use_graphs();
  CUgraphNode node = nullptr;
  const CUresult result = executor.driver().cuGraphAddMemAllocNode(
      &node, graph, dependencies, request.dependencies.count, &parameters);
  reply.address = parameters.dptr;
  return named(scope, result, request.node, node);
}

CUresult handle(Executor& executor, const wire::cuda::graph_alloc_node_get_request& request,
                wire::cuda::graph_alloc_node_get_reply& reply) {
  Scope scope(executor);
  CUgraphNode node = scope.get<CUgraphNode>(Kind::kNode, request.node);
  CUDA_MEM_ALLOC_NODE_PARAMS* parameters = scope.scratch<CUDA_MEM_ALLOC_NODE_PARAMS>(1);
  if (!scope.ok()) return scope.error();
  const CUresult result = executor.driver().cuGraphMemAllocNodeGetParams(node, parameters);
  if (result != CUDA_SUCCESS) return result;
  for (uint32_t slot = 0; slot < executor.assignment().slice_count; ++slot) {
    if (executor.device_of(slot) == parameters->poolProps.location.id) reply.slot = slot;
  }
  parameters->poolProps.win32SecurityAttributes = nullptr;
  reply.pool = {reinterpret_cast<const uint8_t*>(&parameters->poolProps),
                sizeof parameters->poolProps};
  reply.bytes = parameters->bytesize;
  reply.address = parameters->dptr;
  return CUDA_SUCCESS;
}

CUresult handle(Executor& executor, const wire::cuda::graph_conditional_handle_request& request,
                wire::cuda::graph_conditional_handle_reply& reply) {
  Scope scope(executor);
  CUgraph graph = scope.get<CUgraph>(Kind::kGraph, request.graph);
  if (!scope.ok()) return scope.error();
  if (executor.context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (executor.driver().cuGraphConditionalHandleCreate == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  CUgraphConditionalHandle handle = 0;
  const CUresult result = executor.driver().cuGraphConditionalHandleCreate(
      &handle, graph, executor.context()->context, request.value, request.flags);
  reply.handle = handle;  // the driver's own value, because kernels get it
  if (result == CUDA_SUCCESS) executor.graphs().add_condition(handle, graph);
  return result;
}

CUresult handle(Executor& executor, const wire::cuda::graph_conditional_node_request& request,
                wire::cuda::graph_conditional_node_reply& reply) {
  Scope scope(executor);
  CUgraph graph = scope.get<CUgraph>(Kind::kGraph, request.graph);
  CUgraphNode* dependencies = scope.handles<CUgraphNode>(Kind::kNode, request.dependencies);
  scope.reserve(Kind::kNode, request.node);
  if (!scope.ok()) return scope.error();
  if (executor.context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (!executor.graphs().has_condition(request.handle)) return CUDA_ERROR_INVALID_VALUE;
  CUgraphNodeParams parameters;
  std::memset(&parameters, 0, sizeof parameters);
  parameters.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
  parameters.conditional.handle = request.handle;
  parameters.conditional.type = static_cast<CUgraphConditionalNodeType>(request.type);
  parameters.conditional.size = request.size;
  parameters.conditional.ctx = executor.context()->context;
  CUgraphNode node = nullptr;
  const CUresult added = executor.driver().cuGraphAddNode_v2(
      &node, graph, dependencies, nullptr, request.dependencies.count, &parameters);
  const CUresult result = named(scope, added, request.node, node);
  if (result == CUDA_SUCCESS && parameters.conditional.phGraph_out != nullptr) {
    executor.graph_sizes().add_bodies(node, parameters.conditional.phGraph_out, request.size);
    reply.bodies = scope.ids(Kind::kGraph, parameters.conditional.phGraph_out, request.size, node);
  }
  return result != CUDA_SUCCESS ? result : scope.error();
}

CUresult handle(Executor& executor, const wire::cuda::graph_moved_child_node_request& request,
                wire::cuda::graph_moved_child_node_reply&) {
  Scope scope(executor);
  CUgraph graph = scope.get<CUgraph>(Kind::kGraph, request.graph);
  CUgraphNode* dependencies = scope.handles<CUgraphNode>(Kind::kNode, request.dependencies);
  CUgraphNodeParams parameters;
  std::memset(&parameters, 0, sizeof parameters);
  parameters.type = CU_GRAPH_NODE_TYPE_GRAPH;
  parameters.graph.graph = scope.get<CUgraph>(Kind::kGraph, request.child);
  parameters.graph.ownership = CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE;
  scope.reserve(Kind::kNode, request.node);
  if (!scope.ok()) return scope.error();
  CUgraph child = parameters.graph.graph;
  if (executor.graphs().is_within(executor, graph, child) ||
      !executor.graphs().is_clients(executor, request.child, child))
    return CUDA_ERROR_INVALID_VALUE;
  if (executor.driver().cuGraphAddNode_v2 == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  CUgraphNode node = nullptr;
  const CUresult added = executor.driver().cuGraphAddNode_v2(
      &node, graph, dependencies, nullptr, request.dependencies.count, &parameters);
  if (added != CUDA_SUCCESS) return added;
  executor.objects().bind(Kind::kNode, request.node, node, graph);
  executor.objects().give_to(request.child, node);
  executor.graphs().moved(child, graph, node);
  executor.graph_sizes().nest();
  return CUDA_SUCCESS;
}

CUresult handle(Executor& executor, const wire::cuda::graph_batch_node_request& request,
                wire::cuda::graph_batch_node_reply&) {
  Scope scope(executor);
  CUgraph graph = request.change == NodeChange::kAdd
                      ? scope.get<CUgraph>(Kind::kGraph, request.graph)
                      : nullptr;
  CUgraphNode* dependencies = scope.handles<CUgraphNode>(Kind::kNode, request.dependencies);
  CUgraphExec exec = request.change == NodeChange::kSetInExec
                         ? scope.get<CUgraphExec>(Kind::kExec, request.exec)
                         : nullptr;
  CUgraphNode node = request.change != NodeChange::kAdd
                         ? scope.get<CUgraphNode>(Kind::kNode, request.node)
                         : nullptr;
  if (request.change == NodeChange::kAdd) scope.reserve(Kind::kNode, request.node);
  const size_t count = request.operations.count / sizeof(CUstreamBatchMemOpParams);
  auto* operations = scope.scratch<CUstreamBatchMemOpParams>(count);
  if (request.operations.count % sizeof *operations != 0) scope.fail(CUDA_ERROR_INVALID_VALUE);
  if (!scope.ok()) return scope.error();
  if (executor.context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (count != 0) std::memcpy(operations, request.operations.data, request.operations.count);
  const CUDA_BATCH_MEM_OP_NODE_PARAMS parameters{
      executor.context()->context, static_cast<unsigned>(count), operations, request.flags};
  if (request.change == NodeChange::kSetInNode)
    return executor.driver().cuGraphBatchMemOpNodeSetParams(node, &parameters);
  if (request.change == NodeChange::kSetInExec)
    return executor.driver().cuGraphExecBatchMemOpNodeSetParams(exec, node, &parameters);
  return named(scope,
               executor.driver().cuGraphAddBatchMemOpNode(&node, graph, dependencies,
                                                          request.dependencies.count, &parameters),
               request.node, node);
}

CUresult handle(Executor& executor, const wire::cuda::graph_batch_node_get_request& request,
                wire::cuda::graph_batch_node_get_reply& reply) {
  Scope scope(executor);
  CUgraphNode node = scope.get<CUgraphNode>(Kind::kNode, request.node);
  if (!scope.ok()) return scope.error();
  CUDA_BATCH_MEM_OP_NODE_PARAMS parameters{};
  const CUresult result = executor.driver().cuGraphBatchMemOpNodeGetParams(node, &parameters);
  if (result != CUDA_SUCCESS) return result;
  reply.operations = {reinterpret_cast<const uint8_t*>(parameters.paramArray),
                      parameters.count * sizeof *parameters.paramArray};
  reply.flags = parameters.flags;
  return CUDA_SUCCESS;
}

CUresult handle(Executor& executor, const wire::cuda::graph_dot_request& request,
                wire::cuda::graph_dot_reply& reply) {
  constexpr uint64_t kTextMax = 512u << 10;
  Scope scope(executor);
  CUgraph graph = scope.get<CUgraph>(Kind::kGraph, request.graph);
  if (!scope.ok()) return scope.error();
  // The driver writes to a path, and an anonymous file has one.
  const int file = memfd_create("graph", MFD_CLOEXEC);
  if (file < 0) return CUDA_ERROR_OPERATING_SYSTEM;
  const std::string path = "/proc/self/fd/" + std::to_string(file);
  CUresult result = executor.driver().cuGraphDebugDotPrint(graph, path.c_str(), request.flags);
  struct stat status;
  if (result == CUDA_SUCCESS && fstat(file, &status) != 0) result = CUDA_ERROR_OPERATING_SYSTEM;
  if (result == CUDA_SUCCESS) {
    const uint64_t bytes = static_cast<uint64_t>(status.st_size) < kTextMax
                               ? static_cast<uint64_t>(status.st_size)
                               : kTextMax;
    uint8_t* text = scope.scratch<uint8_t>(bytes);
    const ssize_t n = text != nullptr ? pread(file, text, bytes, 0) : 0;
    reply.text = {text, n > 0 ? static_cast<uint64_t>(n) : 0};
  }
  close(file);
  return result != CUDA_SUCCESS ? result : scope.error();
}

CUresult handle(Executor& executor, const wire::cuda::graph_memory_request& request,
                wire::cuda::graph_memory_reply& reply) {
  Scope scope(executor);
  const CUdevice device = scope.device(request.slot);
  if (!scope.ok()) return scope.error();
  cuuint64_t value = 0;
  const auto attribute = static_cast<CUgraphMem_attribute>(request.attribute);
  if (request.action == GraphMemoryAction::kTrim) {
    const CUresult trimmed = executor.driver().cuDeviceGraphMemTrim(device);
    if (executor.kept_memory().has_graphs()) executor.kept_memory().settle_graphs(request.slot);
    return trimmed;
  }
  const CUresult result =
      request.action == GraphMemoryAction::kReset
          ? executor.driver().cuDeviceSetGraphMemAttribute(device, attribute, &value)
          : executor.driver().cuDeviceGetGraphMemAttribute(device, attribute, &value);
  reply.value = value;
  return result;
}

CUresult handle(Executor& executor, const wire::cuda::user_object_create_request& m,
                wire::cuda::user_object_create_reply&) {
  Scope scope(executor);
  scope.reserve(Kind::kUserObject, m.object);
  if (!scope.ok()) return scope.error();
  CUuserObject object = nullptr;
  Callbacks::Request* request = executor.callbacks().lasting(m.token);
  request->object = m.object;
  const CUresult result = executor.driver().cuUserObjectCreate(
      &object, request, Callbacks::destroyed, m.references, m.flags);
  if (result != CUDA_SUCCESS) {
    const std::unique_ptr<Callbacks::Request> unused(request);
    return result;
  }
  executor.objects().bind(Kind::kUserObject, m.object, object);
  executor.graphs().add_references(m.object, nullptr, m.references);
  return CUDA_SUCCESS;
}

// The driver counts references, and destroys an object with the last. That happens on another
// thread, so the worker counts as well: it names no object that may be gone.
CUresult handle(Executor& executor, const wire::cuda::cuUserObjectRetain_request& request,
                wire::cuda::cuUserObjectRetain_reply&) {
  Scope scope(executor);
  CUuserObject object = scope.get<CUuserObject>(Kind::kUserObject, request.object);
  if (!scope.ok()) return scope.error();
  const CUresult result = executor.driver().cuUserObjectRetain(object, request.count);
  if (result == CUDA_SUCCESS)
    executor.graphs().add_references(request.object, nullptr, request.count);
  return result;
}

CUresult handle(Executor& executor, const wire::cuda::cuUserObjectRelease_request& request,
                wire::cuda::cuUserObjectRelease_reply&) {
  Scope scope(executor);
  CUuserObject object = scope.get<CUuserObject>(Kind::kUserObject, request.object);
  if (!scope.ok()) return scope.error();
  if (!executor.graphs().has_references(request.object, nullptr, request.count))
    return CUDA_ERROR_INVALID_VALUE;
  const CUresult result = executor.driver().cuUserObjectRelease(object, request.count);
  if (result == CUDA_SUCCESS &&
      executor.graphs().drop_references(request.object, nullptr, request.count))
    scope.unbind(Kind::kUserObject, request.object);
  return result;
}

CUresult handle(Executor& executor, const wire::cuda::cuGraphRetainUserObject_request& request,
                wire::cuda::cuGraphRetainUserObject_reply&) {
  Scope scope(executor);
  CUgraph graph = scope.get<CUgraph>(Kind::kGraph, request.graph);
  CUuserObject object = scope.get<CUuserObject>(Kind::kUserObject, request.object);
  if (!scope.ok()) return scope.error();
  const bool moves = (request.flags & CU_GRAPH_USER_OBJECT_MOVE) != 0;
  if (moves && !executor.graphs().has_references(request.object, nullptr, request.count))
    return CUDA_ERROR_INVALID_VALUE;
  const CUresult result =
      executor.driver().cuGraphRetainUserObject(graph, object, request.count, request.flags);
  if (result != CUDA_SUCCESS) return result;
  executor.graphs().add_references(request.object, graph, request.count);
  if (moves) executor.graphs().drop_references(request.object, nullptr, request.count);
  return CUDA_SUCCESS;
}

CUresult handle(Executor& executor, const wire::cuda::cuGraphReleaseUserObject_request& request,
                wire::cuda::cuGraphReleaseUserObject_reply&) {
  Scope scope(executor);
  CUgraph graph = scope.get<CUgraph>(Kind::kGraph, request.graph);
  CUuserObject object = scope.get<CUuserObject>(Kind::kUserObject, request.object);
  if (!scope.ok()) return scope.error();
  if (!executor.graphs().has_references(request.object, graph, request.count))
    return CUDA_ERROR_INVALID_VALUE;
  const CUresult result = executor.driver().cuGraphReleaseUserObject(graph, object, request.count);
  if (result == CUDA_SUCCESS &&
      executor.graphs().drop_references(request.object, graph, request.count))
    scope.unbind(Kind::kUserObject, request.object);
  return result;
}

}  // namespace tendril::worker::cuda
