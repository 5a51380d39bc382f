// SPDX-License-Identifier: Apache-2.0
// Handlers of api/cuda/graph.spec for nodes with something of the client inside (copies, host
// functions, the graph's own memory), user objects and pictures. Executor thread.
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <string>

#include "api/cuda_handlers.gen.h"
#include "worker/cuda/executor/callbacks.h"
#include "worker/cuda/executor/scope.h"
#include "worker/cuda/memory/kept_memory.h"
#include "worker/cuda/memory/mirror.h"

namespace tendril::worker::cuda {

using wire::cuda::GraphMemoryAction;
using wire::cuda::NodeChange;
namespace {

// One end of a copy: `host` and `device` become places in this process, an id an array. Host memory
// must be a mirror: the client does not get to read the worker. An address without a kind may be
// the driver's.
template <typename Host>
void resolve_end(Executor& w, Scope& s, CUmemorytype type, Host** host, CUdeviceptr* device,
                 CUarray* array, uint64_t bytes) {
  const bool unified = type == CU_MEMORYTYPE_UNIFIED;
  const uint64_t at = unified ? uint64_t{*device} : reinterpret_cast<uint64_t>(*host);
  const bool in_host = type == CU_MEMORYTYPE_HOST || (unified && w.mirrors().find(at) != nullptr);
  if (in_host && bytes != 0 && !w.mirrors().name_in_graph(at, bytes))
    s.fail(CUDA_ERROR_INVALID_VALUE);
  if (unified && bytes != 0 && is_workers_own(w, at, bytes)) s.fail(CUDA_ERROR_INVALID_VALUE);
  if (type == CU_MEMORYTYPE_HOST) *host = reinterpret_cast<Host*>(w.mirrors().place_of(at));
  if (unified) *device = w.mirrors().place_of(at);
  if (type == CU_MEMORYTYPE_ARRAY)
    *array = s.get<CUarray>(Kind::kArray, reinterpret_cast<uint64_t>(*array));
}

// The same end as the client knows it.
template <typename Host>
void present_end(Executor& w, Scope& s, CUmemorytype type, Host** host, CUdeviceptr* device,
                 CUarray* array) {
  if (type == CU_MEMORYTYPE_HOST)
    *host = reinterpret_cast<Host*>(w.mirrors().address_of(reinterpret_cast<uint64_t>(*host)));
  if (type == CU_MEMORYTYPE_UNIFIED) *device = w.mirrors().address_of(*device);
  *array =
      reinterpret_cast<CUarray>(s.id(Kind::kArray, type == CU_MEMORYTYPE_ARRAY ? *array : nullptr));
}

bool resolve_copy(Executor& w, Scope& s, const wire::Bytes& image, CUDA_MEMCPY3D* p) {
  if (!s.image(image, p)) return false;
  resolve_end(w, s, p->srcMemoryType, &p->srcHost, &p->srcDevice, &p->srcArray,
              bytes_spanned(p->srcXInBytes, p->srcY, p->srcZ, p->srcPitch, p->srcHeight, *p));
  resolve_end(w, s, p->dstMemoryType, &p->dstHost, &p->dstDevice, &p->dstArray,
              bytes_spanned(p->dstXInBytes, p->dstY, p->dstZ, p->dstPitch, p->dstHeight, *p));
  return s.ok();
}

// After a node was added: it gets the client's name.
CUresult named(Executor& w, CUresult result, uint64_t id, const CUgraphNode& node) {
  if (result == CUDA_SUCCESS && !w.objects().bind(Kind::kNode, id, node))
    return CUDA_ERROR_INVALID_HANDLE;
  return result;
}

}  // namespace

CUresult handle(Executor& w, const wire::cuda::graph_memcpy_node_request& m,
                wire::cuda::graph_memcpy_node_reply&) {
  Scope s(w);
  CUDA_MEMCPY3D p;
  if (w.context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (!resolve_copy(w, s, m.image, &p)) return s.error();
  CUcontext context = w.context()->context;
  if (m.change == NodeChange::kAdd) {
    CUgraph graph = s.get<CUgraph>(Kind::kGraph, m.graph);
    CUgraphNode* dependencies = s.handles<CUgraphNode>(Kind::kNode, m.dependencies);
    CUgraphNode node = nullptr;
    if (!s.ok()) return s.error();
    return named(w,
                 w.driver().cuGraphAddMemcpyNode(&node, graph, dependencies, m.dependencies.count,
                                                 &p, context),
                 m.node, node);
  }
  CUgraphNode node = s.get<CUgraphNode>(Kind::kNode, m.node);
  if (m.change == NodeChange::kSetInNode)
    return s.ok() ? w.driver().cuGraphMemcpyNodeSetParams(node, &p) : s.error();
  CUgraphExec exec = s.get<CUgraphExec>(Kind::kExec, m.exec);
  return s.ok() ? w.driver().cuGraphExecMemcpyNodeSetParams(exec, node, &p, context) : s.error();
}

CUresult handle(Executor& w, const wire::cuda::graph_memcpy_change_request& m) {
  wire::cuda::graph_memcpy_node_request change;
  wire::cuda::graph_memcpy_node_reply unused;
  change.change = NodeChange::kSetInExec;
  change.exec = m.exec;
  change.node = m.node;
  change.image = m.image;
  return handle(w, change, unused);
}

CUresult handle(Executor& w, const wire::cuda::graph_memcpy_node_get_request& m,
                wire::cuda::graph_memcpy_node_get_reply& r) {
  Scope s(w);
  CUgraphNode node = s.get<CUgraphNode>(Kind::kNode, m.node);
  CUDA_MEMCPY3D* p = s.scratch<CUDA_MEMCPY3D>(1);
  if (!s.ok()) return s.error();
  const CUresult result = w.driver().cuGraphMemcpyNodeGetParams(node, p);
  if (result != CUDA_SUCCESS) return result;
  present_end(w, s, p->srcMemoryType, &p->srcHost, &p->srcDevice, &p->srcArray);
  present_end(w, s, p->dstMemoryType, &p->dstHost, &p->dstDevice, &p->dstArray);
  r.image = {reinterpret_cast<const uint8_t*>(p), sizeof *p};
  return CUDA_SUCCESS;
}

CUresult handle(Executor& w, const wire::cuda::graph_host_node_request& m,
                wire::cuda::graph_host_node_reply&) {
  Scope s(w);
  CUgraphNode node = nullptr;
  CUgraph graph = m.change == NodeChange::kAdd ? s.get<CUgraph>(Kind::kGraph, m.graph) : nullptr;
  CUgraphNode* dependencies = s.handles<CUgraphNode>(Kind::kNode, m.dependencies);
  CUgraphExec exec =
      m.change == NodeChange::kSetInExec ? s.get<CUgraphExec>(Kind::kExec, m.exec) : nullptr;
  if (m.change != NodeChange::kAdd) node = s.get<CUgraphNode>(Kind::kNode, m.node);
  if (!s.ok()) return s.error();
  const CUDA_HOST_NODE_PARAMS p{Callbacks::run, w.callbacks().lasting(m.token)};
  if (m.change == NodeChange::kSetInNode) return w.driver().cuGraphHostNodeSetParams(node, &p);
  if (m.change == NodeChange::kSetInExec)
    return w.driver().cuGraphExecHostNodeSetParams(exec, node, &p);
  return named(w,
               w.driver().cuGraphAddHostNode(&node, graph, dependencies, m.dependencies.count, &p),
               m.node, node);
}

CUresult handle(Executor& w, const wire::cuda::graph_host_node_get_request& m,
                wire::cuda::graph_host_node_get_reply& r) {
  Scope s(w);
  CUgraphNode node = s.get<CUgraphNode>(Kind::kNode, m.node);
  if (!s.ok()) return s.error();
  CUDA_HOST_NODE_PARAMS p{};
  const CUresult result = w.driver().cuGraphHostNodeGetParams(node, &p);
  if (result != CUDA_SUCCESS) return result;
  if (p.fn != Callbacks::run || p.userData == nullptr) return CUDA_ERROR_UNKNOWN;
  r.token = static_cast<const Callbacks::Request*>(p.userData)->token;
  return CUDA_SUCCESS;
}

CUresult handle(Executor& w, const wire::cuda::graph_alloc_node_request& m,
                wire::cuda::graph_alloc_node_reply& r) {
  Scope s(w);
  CUDA_MEM_ALLOC_NODE_PARAMS p{};
  CUgraph graph = s.get<CUgraph>(Kind::kGraph, m.graph);
  CUgraphNode* dependencies = s.handles<CUgraphNode>(Kind::kNode, m.dependencies);
  if (!s.image(m.pool, &p.poolProps) || m.access.count % sizeof(CUmemAccessDesc) != 0)
    return CUDA_ERROR_INVALID_VALUE;
  p.poolProps = s.resolve(p.poolProps);
  p.poolProps.win32SecurityAttributes = nullptr;
  const size_t count = m.access.count / sizeof(CUmemAccessDesc);
  CUmemAccessDesc* access = s.scratch<CUmemAccessDesc>(count);
  if (!s.ok()) return s.error();
  if (count != 0) std::memcpy(access, m.access.data, m.access.count);
  for (size_t i = 0; i < count; ++i) access[i] = s.resolve(access[i]);
  p.accessDescs = access;
  p.accessDescCount = count;
  p.bytesize = m.bytes;
  if (!s.ok()) return s.error();
  if (m.bytes > w.charge().quota(w.slot()))
    return CUDA_ERROR_OUT_OF_MEMORY;  // no launch could ever have it
  w.kept_memory().use_graphs();
  CUgraphNode node = nullptr;
  const CUresult result =
      w.driver().cuGraphAddMemAllocNode(&node, graph, dependencies, m.dependencies.count, &p);
  r.address = p.dptr;
  return named(w, result, m.node, node);
}

CUresult handle(Executor& w, const wire::cuda::graph_alloc_node_get_request& m,
                wire::cuda::graph_alloc_node_get_reply& r) {
  Scope s(w);
  CUgraphNode node = s.get<CUgraphNode>(Kind::kNode, m.node);
  CUDA_MEM_ALLOC_NODE_PARAMS* p = s.scratch<CUDA_MEM_ALLOC_NODE_PARAMS>(1);
  if (!s.ok()) return s.error();
  const CUresult result = w.driver().cuGraphMemAllocNodeGetParams(node, p);
  if (result != CUDA_SUCCESS) return result;
  for (uint32_t slot = 0; slot < w.assignment().slice_count; ++slot) {
    if (w.device_of(slot) == p->poolProps.location.id) r.slot = slot;
  }
  p->poolProps.win32SecurityAttributes = nullptr;
  r.pool = {reinterpret_cast<const uint8_t*>(&p->poolProps), sizeof p->poolProps};
  r.bytes = p->bytesize;
  r.address = p->dptr;
  return CUDA_SUCCESS;
}

CUresult handle(Executor& w, const wire::cuda::graph_conditional_handle_request& m,
                wire::cuda::graph_conditional_handle_reply& r) {
  Scope s(w);
  CUgraph graph = s.get<CUgraph>(Kind::kGraph, m.graph);
  if (!s.ok()) return s.error();
  if (w.context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (w.driver().cuGraphConditionalHandleCreate == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  CUgraphConditionalHandle handle = 0;
  const CUresult result = w.driver().cuGraphConditionalHandleCreate(
      &handle, graph, w.context()->context, m.value, m.flags);
  r.handle = handle;  // kernels are given it: the driver's own value
  return result;
}

CUresult handle(Executor& w, const wire::cuda::graph_conditional_node_request& m,
                wire::cuda::graph_conditional_node_reply& r) {
  Scope s(w);
  CUgraph graph = s.get<CUgraph>(Kind::kGraph, m.graph);
  CUgraphNode* dependencies = s.handles<CUgraphNode>(Kind::kNode, m.dependencies);
  if (!s.ok()) return s.error();
  if (w.context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  CUgraphNodeParams p;
  std::memset(&p, 0, sizeof p);
  p.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
  p.conditional.handle = m.handle;
  p.conditional.type = static_cast<CUgraphConditionalNodeType>(m.type);
  p.conditional.size = m.size;
  p.conditional.ctx = w.context()->context;
  CUgraphNode node = nullptr;
  const CUresult added =
      w.driver().cuGraphAddNode_v2(&node, graph, dependencies, nullptr, m.dependencies.count, &p);
  const CUresult result = named(w, added, m.node, node);
  if (result == CUDA_SUCCESS && p.conditional.phGraph_out != nullptr)
    r.bodies = s.ids(Kind::kGraph, p.conditional.phGraph_out, m.size);
  return result != CUDA_SUCCESS ? result : s.error();
}

CUresult handle(Executor& w, const wire::cuda::graph_moved_child_node_request& m,
                wire::cuda::graph_moved_child_node_reply&) {
  Scope s(w);
  CUgraph graph = s.get<CUgraph>(Kind::kGraph, m.graph);
  CUgraphNode* dependencies = s.handles<CUgraphNode>(Kind::kNode, m.dependencies);
  CUgraphNodeParams p;
  std::memset(&p, 0, sizeof p);
  p.type = CU_GRAPH_NODE_TYPE_GRAPH;
  p.graph.graph = s.get<CUgraph>(Kind::kGraph, m.child);
  p.graph.ownership = CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE;
  if (!s.ok()) return s.error();
  if (w.driver().cuGraphAddNode_v2 == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  CUgraphNode node = nullptr;
  const CUresult added =
      w.driver().cuGraphAddNode_v2(&node, graph, dependencies, nullptr, m.dependencies.count, &p);
  return named(w, added, m.node, node);
}

CUresult handle(Executor& w, const wire::cuda::graph_batch_node_request& m,
                wire::cuda::graph_batch_node_reply&) {
  Scope s(w);
  CUgraph graph = m.change == NodeChange::kAdd ? s.get<CUgraph>(Kind::kGraph, m.graph) : nullptr;
  CUgraphNode* dependencies = s.handles<CUgraphNode>(Kind::kNode, m.dependencies);
  CUgraphExec exec =
      m.change == NodeChange::kSetInExec ? s.get<CUgraphExec>(Kind::kExec, m.exec) : nullptr;
  CUgraphNode node =
      m.change != NodeChange::kAdd ? s.get<CUgraphNode>(Kind::kNode, m.node) : nullptr;
  const size_t count = m.operations.count / sizeof(CUstreamBatchMemOpParams);
  auto* operations = s.scratch<CUstreamBatchMemOpParams>(count);
  if (m.operations.count % sizeof *operations != 0) s.fail(CUDA_ERROR_INVALID_VALUE);
  if (!s.ok()) return s.error();
  if (w.context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (count != 0) std::memcpy(operations, m.operations.data, m.operations.count);
  const CUDA_BATCH_MEM_OP_NODE_PARAMS p{w.context()->context, static_cast<unsigned>(count),
                                        operations, m.flags};
  if (m.change == NodeChange::kSetInNode)
    return w.driver().cuGraphBatchMemOpNodeSetParams(node, &p);
  if (m.change == NodeChange::kSetInExec)
    return w.driver().cuGraphExecBatchMemOpNodeSetParams(exec, node, &p);
  return named(
      w, w.driver().cuGraphAddBatchMemOpNode(&node, graph, dependencies, m.dependencies.count, &p),
      m.node, node);
}

CUresult handle(Executor& w, const wire::cuda::graph_batch_node_get_request& m,
                wire::cuda::graph_batch_node_get_reply& r) {
  Scope s(w);
  CUgraphNode node = s.get<CUgraphNode>(Kind::kNode, m.node);
  if (!s.ok()) return s.error();
  CUDA_BATCH_MEM_OP_NODE_PARAMS p{};
  const CUresult result = w.driver().cuGraphBatchMemOpNodeGetParams(node, &p);
  if (result != CUDA_SUCCESS) return result;
  r.operations = {reinterpret_cast<const uint8_t*>(p.paramArray), p.count * sizeof *p.paramArray};
  r.flags = p.flags;
  return CUDA_SUCCESS;
}

CUresult handle(Executor& w, const wire::cuda::graph_dot_request& m,
                wire::cuda::graph_dot_reply& r) {
  constexpr uint64_t kTextMax = 512u << 10;
  Scope s(w);
  CUgraph graph = s.get<CUgraph>(Kind::kGraph, m.graph);
  if (!s.ok()) return s.error();
  // The driver writes to a path: an anonymous file has one.
  const int file = memfd_create("graph", MFD_CLOEXEC);
  if (file < 0) return CUDA_ERROR_OPERATING_SYSTEM;
  const std::string path = "/proc/self/fd/" + std::to_string(file);
  CUresult result = w.driver().cuGraphDebugDotPrint(graph, path.c_str(), m.flags);
  struct stat status;
  if (result == CUDA_SUCCESS && fstat(file, &status) != 0) result = CUDA_ERROR_OPERATING_SYSTEM;
  if (result == CUDA_SUCCESS) {
    const uint64_t bytes = static_cast<uint64_t>(status.st_size) < kTextMax
                               ? static_cast<uint64_t>(status.st_size)
                               : kTextMax;
    uint8_t* text = s.scratch<uint8_t>(bytes);
    const ssize_t n = text != nullptr ? pread(file, text, bytes, 0) : 0;
    r.text = {text, n > 0 ? static_cast<uint64_t>(n) : 0};
  }
  close(file);
  return result != CUDA_SUCCESS ? result : s.error();
}

CUresult handle(Executor& w, const wire::cuda::graph_memory_request& m,
                wire::cuda::graph_memory_reply& r) {
  Scope s(w);
  const CUdevice device = s.device(m.slot);
  if (!s.ok()) return s.error();
  cuuint64_t value = 0;
  const auto attribute = static_cast<CUgraphMem_attribute>(m.attribute);
  if (m.action == GraphMemoryAction::kTrim) {
    const CUresult trimmed = w.driver().cuDeviceGraphMemTrim(device);
    if (w.kept_memory().has_graphs()) w.kept_memory().settle_graphs(m.slot);
    return trimmed;
  }
  const CUresult result = m.action == GraphMemoryAction::kReset
                              ? w.driver().cuDeviceSetGraphMemAttribute(device, attribute, &value)
                              : w.driver().cuDeviceGetGraphMemAttribute(device, attribute, &value);
  r.value = value;
  return result;
}

CUresult handle(Executor& w, const wire::cuda::user_object_create_request& m,
                wire::cuda::user_object_create_reply&) {
  CUuserObject object = nullptr;
  Callbacks::Request* request = w.callbacks().lasting(m.token);
  request->object = m.object;
  const CUresult result =
      w.driver().cuUserObjectCreate(&object, request, Callbacks::destroyed, m.references, m.flags);
  if (result != CUDA_SUCCESS) return result;
  if (w.objects().bind(Kind::kUserObject, m.object, object)) return CUDA_SUCCESS;
  request->token = 0;  // never heard of: its destructor is not the client's
  w.driver().cuUserObjectRelease(object, m.references);
  return CUDA_ERROR_INVALID_HANDLE;
}

}  // namespace tendril::worker::cuda
