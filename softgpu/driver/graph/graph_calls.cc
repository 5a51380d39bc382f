// SPDX-License-Identifier: Apache-2.0
// Building and inspecting graphs.

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <utility>

#include "softgpu/driver/entry.h"
#include "softgpu/driver/graph/graph.h"
#include "softgpu/driver/graph/graph_params.h"

namespace tendril::softgpu {
namespace {

using UserObjectTable = HandleTable<CUuserObject, UserObject, HandleKind::kUserObject>;
UserObjectTable& user_objects() {
  static auto& table = *new UserObjectTable;
  return table;
}

// Drops references. The last one runs the destructor on a pool thread, where CUDA calls are
// refused.
void drop_references(CUuserObject handle, const std::shared_ptr<UserObject>& object,
                     unsigned count) {
  if (object->references.fetch_sub(count) > count) return;
  user_objects().remove(handle);
  run_on_pool([destroy = std::exchange(object->destroy, nullptr), data = object->data] {
    in_host_function() = true;
    if (destroy != nullptr) destroy(data);
    in_host_function() = false;
  });
}

}  // namespace

UserReferences::UserReferences(const UserReferences& other) : held_(other.held_) {
  for (const auto& [handle, held] : held_) held.object->references.fetch_add(held.count);
}

UserReferences& UserReferences::operator=(UserReferences other) {
  std::swap(held_, other.held_);
  return *this;
}

UserReferences::~UserReferences() {
  for (const auto& [handle, held] : held_) drop_references(handle, held.object, held.count);
}

void UserReferences::take(CUuserObject handle, std::shared_ptr<UserObject> object, unsigned count) {
  Held& held = held_[handle];
  held.object = std::move(object);
  held.count += count;
}

bool UserReferences::drop(CUuserObject handle, unsigned count) {
  auto held = held_.find(handle);
  if (held == held_.end() || held->second.count < count) return false;
  drop_references(handle, held->second.object, count);
  if ((held->second.count -= count) == 0) held_.erase(held);
  return true;
}

namespace {

template <typename Make>
CUresult add_node(CUgraphNode* out, CUgraph handle, const CUgraphNode* dependencies, size_t count,
                  Make make) {
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  GraphPtr graph = graphs().get(handle);
  if (!graph) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard guard(capture_lock());
  std::vector<NodePtr> from;
  if (CUresult bad = find_nodes(dependencies, count, graph.get(), &from)) return bad;
  WorkPtr work;
  if (CUresult bad = make(&work)) return bad;
  *out = graph->add(std::move(work), from)->handle;
  return CUDA_SUCCESS;
}

// The usual convention for lists: a null array asks for the count, and a longer array is filled up
// with null.
CUresult give_list(const std::vector<CUgraphNode>& list, CUgraphNode* out, size_t* count) {
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (out != nullptr) {
    for (size_t i = 0; i < *count; ++i) out[i] = i < list.size() ? list[i] : nullptr;
    *count = std::min(*count, list.size());
  } else {
    *count = list.size();
  }
  return CUDA_SUCCESS;
}

// The data of edges beside such a list. A null array asks for none.
void give_data(const std::vector<CUgraphEdgeData>& data, CUgraphEdgeData* out, size_t count) {
  if (out == nullptr) return;
  for (size_t i = 0; i < count; ++i) out[i] = i < data.size() ? data[i] : CUgraphEdgeData{};
}

CUresult edit_edges(CUgraph handle, const CUgraphNode* from, const CUgraphNode* to,
                    const CUgraphEdgeData* data, size_t count, bool add) {
  GraphPtr graph = graphs().get(handle);
  if (!graph || (count != 0 && (from == nullptr || to == nullptr))) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard guard(capture_lock());
  for (size_t i = 0; i < count; ++i) {
    std::vector<NodePtr> ends;
    CUgraphNode pair[] = {from[i], to[i]};
    if (graph->nodes.size() < 2 || from[i] == to[i]) return CUDA_ERROR_INVALID_VALUE;
    if (CUresult bad = find_nodes(pair, 2, graph.get(), &ends)) return bad;
    auto& edges = ends[1]->dependencies;
    auto found = std::find_if(edges.begin(), edges.end(),
                              [&](const auto& edge) { return edge.from == ends[0]; });
    if ((found != edges.end()) == add) return CUDA_ERROR_INVALID_VALUE;
    if (add) {
      edges.push_back({ends[0], data != nullptr ? data[i] : CUgraphEdgeData{}});
    } else {
      edges.erase(found);
    }
  }
  return CUDA_SUCCESS;
}

CUresult node_of(CUgraphNode handle, NodePtr* out) {
  *out = graph_nodes().get(handle);
  return *out ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace

SOFT(cuGraphCreate)(CUgraph* phGraph, unsigned int flags) {
  if (phGraph == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  *phGraph = make_graph()->handle;
  return CUDA_SUCCESS;
}

SOFT(cuGraphDestroy)(CUgraph hGraph) {
  GraphPtr graph = graphs().get(hGraph);
  if (!graph || graph->owned) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard guard(capture_lock());
  graphs().remove(hGraph);
  graph->user_objects = {};  // also where a lookup still keeps the graph for a moment
  return CUDA_SUCCESS;
}

SOFT(cuGraphClone)(CUgraph* phGraphClone, CUgraph originalGraph) {
  GraphPtr graph = graphs().get(originalGraph);
  if (!graph || phGraphClone == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard guard(capture_lock());
  *phGraphClone = graph->clone()->handle;
  return CUDA_SUCCESS;
}

SOFT(cuGraphNodeFindInClone)(CUgraphNode* phNode, CUgraphNode hOriginalNode, CUgraph hClonedGraph) {
  GraphPtr graph = graphs().get(hClonedGraph);
  if (!graph || phNode == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard guard(capture_lock());
  for (const NodePtr& node : graph->nodes) {
    if (node->original != hOriginalNode) continue;
    *phNode = node->handle;
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

SOFT(cuGraphAddKernelNode_v2)
(CUgraphNode* node, CUgraph graph, const CUgraphNode* deps, size_t count,
 const CUDA_KERNEL_NODE_PARAMS* p) {
  if (p == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return add_node(node, graph, deps, count, [&](WorkPtr* out) { return kernel_work(*p, out); });
}

SOFT(cuGraphAddKernelNode)
(CUgraphNode* node, CUgraph graph, const CUgraphNode* deps, size_t count,
 const CUDA_KERNEL_NODE_PARAMS_v1* p) {
  if (p == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUDA_KERNEL_NODE_PARAMS wide = {};
  memcpy(&wide, p, sizeof *p);  // the old structure is the beginning of the new one
  return soft_cuGraphAddKernelNode_v2(node, graph, deps, count, &wide);
}

SOFT(cuGraphAddMemcpyNode)
(CUgraphNode* node, CUgraph graph, const CUgraphNode* deps, size_t count, const CUDA_MEMCPY3D* p,
 CUcontext ctx) {
  if (p == nullptr || !contexts().get(ctx)) return CUDA_ERROR_INVALID_VALUE;
  return add_node(node, graph, deps, count, [&](WorkPtr* out) { return copy_work(*p, out); });
}

SOFT(cuGraphAddMemsetNode)
(CUgraphNode* node, CUgraph graph, const CUgraphNode* deps, size_t count,
 const CUDA_MEMSET_NODE_PARAMS* p, CUcontext ctx) {
  if (p == nullptr || !contexts().get(ctx)) return CUDA_ERROR_INVALID_VALUE;
  return add_node(node, graph, deps, count, [&](WorkPtr* out) { return memset_work(*p, out); });
}

SOFT(cuGraphAddHostNode)
(CUgraphNode* node, CUgraph graph, const CUgraphNode* deps, size_t count,
 const CUDA_HOST_NODE_PARAMS* p) {
  if (p == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return add_node(node, graph, deps, count, [&](WorkPtr* out) { return host_work(*p, out); });
}

SOFT(cuGraphAddChildGraphNode)
(CUgraphNode* node, CUgraph graph, const CUgraphNode* deps, size_t count, CUgraph child) {
  if (child == graph) return CUDA_ERROR_INVALID_VALUE;
  return add_node(node, graph, deps, count, [&](WorkPtr* out) { return child_work(child, out); });
}

SOFT(cuGraphAddEmptyNode)(CUgraphNode* node, CUgraph graph, const CUgraphNode* deps, size_t count) {
  return add_node(node, graph, deps, count, [&](WorkPtr* out) {
    *out = std::make_shared<EmptyWork>();
    return CUDA_SUCCESS;
  });
}

SOFT(cuGraphAddEventRecordNode)
(CUgraphNode* node, CUgraph graph, const CUgraphNode* deps, size_t count, CUevent event) {
  return add_node(node, graph, deps, count,
                  [&](WorkPtr* out) { return event_work(event, true, out); });
}

SOFT(cuGraphAddEventWaitNode)
(CUgraphNode* node, CUgraph graph, const CUgraphNode* deps, size_t count, CUevent event) {
  return add_node(node, graph, deps, count,
                  [&](WorkPtr* out) { return event_work(event, false, out); });
}

SOFT(cuGraphAddBatchMemOpNode)
(CUgraphNode* node, CUgraph graph, const CUgraphNode* deps, size_t count,
 const CUDA_BATCH_MEM_OP_NODE_PARAMS* p) {
  if (p == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return add_node(node, graph, deps, count, [&](WorkPtr* out) { return mem_op_work(*p, out); });
}

SOFT(cuGraphAddMemAllocNode)
(CUgraphNode* node, CUgraph graph, const CUgraphNode* deps, size_t count,
 CUDA_MEM_ALLOC_NODE_PARAMS* p) {
  return add_node(node, graph, deps, count, [&](WorkPtr* out) { return alloc_work(p, out); });
}

SOFT(cuGraphAddMemFreeNode)
(CUgraphNode* node, CUgraph graph, const CUgraphNode* deps, size_t count, CUdeviceptr dptr) {
  return add_node(node, graph, deps, count, [&](WorkPtr* out) { return free_work(dptr, out); });
}

SOFT(cuGraphAddNode_v2)
(CUgraphNode* node, CUgraph graph, const CUgraphNode* deps, const CUgraphEdgeData* data,
 size_t count, CUgraphNodeParams* params) {
  if (params != nullptr && params->type == CU_GRAPH_NODE_TYPE_GRAPH && params->graph.graph == graph)
    return CUDA_ERROR_INVALID_VALUE;
  CUresult result =
      add_node(node, graph, deps, count, [&](WorkPtr* out) { return work_from(params, out); });
  if (result == CUDA_SUCCESS && data != nullptr) {
    NodePtr made = graph_nodes().get(*node);
    std::lock_guard guard(capture_lock());
    for (size_t i = 0; made && i < made->dependencies.size(); ++i)
      made->dependencies[i].data = data[i];
  }
  return result;
}

SOFT(cuGraphAddNode)
(CUgraphNode* node, CUgraph graph, const CUgraphNode* deps, size_t count,
 CUgraphNodeParams* params) {
  return soft_cuGraphAddNode_v2(node, graph, deps, nullptr, count, params);
}

SOFT(cuGraphGetNodes)(CUgraph hGraph, CUgraphNode* nodes, size_t* numNodes) {
  GraphPtr graph = graphs().get(hGraph);
  if (!graph) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard guard(capture_lock());
  std::vector<CUgraphNode> list;
  for (const NodePtr& node : graph->nodes) list.push_back(node->handle);
  return give_list(list, nodes, numNodes);
}

SOFT(cuGraphGetRootNodes)(CUgraph hGraph, CUgraphNode* rootNodes, size_t* numRootNodes) {
  GraphPtr graph = graphs().get(hGraph);
  if (!graph) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard guard(capture_lock());
  std::vector<CUgraphNode> list;
  for (const NodePtr& node : graph->nodes)
    if (node->dependencies.empty()) list.push_back(node->handle);
  return give_list(list, rootNodes, numRootNodes);
}

SOFT(cuGraphGetEdges_v2)
(CUgraph hGraph, CUgraphNode* from, CUgraphNode* to, CUgraphEdgeData* edgeData, size_t* numEdges) {
  GraphPtr graph = graphs().get(hGraph);
  if (!graph || numEdges == nullptr || (from == nullptr) != (to == nullptr))
    return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard guard(capture_lock());
  std::vector<CUgraphNode> sources, targets;
  std::vector<CUgraphEdgeData> data;
  for (const NodePtr& node : graph->nodes)
    for (const auto& edge : node->dependencies) {
      sources.push_back(edge.from->handle);
      targets.push_back(node->handle);
      data.push_back(edge.data);
    }
  size_t room = *numEdges;
  give_data(data, edgeData, room);
  if (from == nullptr) return give_list(sources, nullptr, numEdges);
  give_list(sources, from, &room);
  return give_list(targets, to, numEdges);
}

SOFT(cuGraphGetEdges)(CUgraph hGraph, CUgraphNode* from, CUgraphNode* to, size_t* numEdges) {
  return soft_cuGraphGetEdges_v2(hGraph, from, to, nullptr, numEdges);
}

SOFT(cuGraphNodeGetDependencies_v2)
(CUgraphNode hNode, CUgraphNode* dependencies, CUgraphEdgeData* edgeData, size_t* numDependencies) {
  NodePtr node;
  if (CUresult bad = node_of(hNode, &node)) return bad;
  if (numDependencies == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard guard(capture_lock());
  std::vector<CUgraphNode> list;
  std::vector<CUgraphEdgeData> data;
  for (const auto& edge : node->dependencies) {
    list.push_back(edge.from->handle);
    data.push_back(edge.data);
  }
  give_data(data, edgeData, *numDependencies);
  return give_list(list, dependencies, numDependencies);
}

SOFT(cuGraphNodeGetDependencies)
(CUgraphNode hNode, CUgraphNode* dependencies, size_t* numDependencies) {
  return soft_cuGraphNodeGetDependencies_v2(hNode, dependencies, nullptr, numDependencies);
}

SOFT(cuGraphNodeGetDependentNodes_v2)
(CUgraphNode hNode, CUgraphNode* dependents, CUgraphEdgeData* edgeData, size_t* count) {
  NodePtr node;
  if (CUresult bad = node_of(hNode, &node)) return bad;
  GraphPtr graph = node->graph.lock();
  if (!graph || count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard guard(capture_lock());
  std::vector<CUgraphNode> list;
  std::vector<CUgraphEdgeData> data;
  for (const NodePtr& other : graph->nodes)
    for (const auto& edge : other->dependencies)
      if (edge.from == node) {
        list.push_back(other->handle);
        data.push_back(edge.data);
      }
  give_data(data, edgeData, *count);
  return give_list(list, dependents, count);
}

SOFT(cuGraphNodeGetDependentNodes)
(CUgraphNode hNode, CUgraphNode* dependentNodes, size_t* numDependentNodes) {
  return soft_cuGraphNodeGetDependentNodes_v2(hNode, dependentNodes, nullptr, numDependentNodes);
}

SOFT(cuGraphAddDependencies_v2)
(CUgraph g, const CUgraphNode* from, const CUgraphNode* to, const CUgraphEdgeData* data, size_t n) {
  return edit_edges(g, from, to, data, n, true);
}
SOFT(cuGraphAddDependencies)(CUgraph g, const CUgraphNode* from, const CUgraphNode* to, size_t n) {
  return edit_edges(g, from, to, nullptr, n, true);
}
SOFT(cuGraphRemoveDependencies_v2)
(CUgraph g, const CUgraphNode* from, const CUgraphNode* to, const CUgraphEdgeData* data, size_t n) {
  return edit_edges(g, from, to, data, n, false);
}
SOFT(cuGraphRemoveDependencies)
(CUgraph g, const CUgraphNode* from, const CUgraphNode* to, size_t n) {
  return edit_edges(g, from, to, nullptr, n, false);
}

SOFT(cuGraphNodeGetType)(CUgraphNode hNode, CUgraphNodeType* type) {
  NodePtr node;
  if (type == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (CUresult bad = node_of(hNode, &node)) return bad;
  std::lock_guard guard(capture_lock());
  *type = node->work->type();
  return CUDA_SUCCESS;
}

SOFT(cuGraphDestroyNode)(CUgraphNode hNode) {
  NodePtr node;
  if (CUresult bad = node_of(hNode, &node)) return bad;
  std::lock_guard guard(capture_lock());
  GraphPtr graph = node->graph.lock();
  if (!graph) return CUDA_ERROR_INVALID_VALUE;
  if (node->work->type() == CU_GRAPH_NODE_TYPE_MEM_ALLOC ||
      node->work->type() == CU_GRAPH_NODE_TYPE_MEM_FREE)
    return CUDA_ERROR_NOT_SUPPORTED;
  std::erase(graph->nodes, node);
  for (const NodePtr& other : graph->nodes)
    std::erase_if(other->dependencies, [&](const auto& edge) { return edge.from == node; });
  graph_nodes().remove(hNode);
  return CUDA_SUCCESS;
}

SOFT(cuGraphDebugDotPrint)(CUgraph hGraph, const char* path, unsigned int flags) {
  GraphPtr graph = graphs().get(hGraph);
  if (!graph || path == nullptr) return CUDA_ERROR_INVALID_VALUE;
  FILE* file = fopen(path, "w");
  if (file == nullptr) return CUDA_ERROR_OPERATING_SYSTEM;
  std::lock_guard guard(capture_lock());
  fprintf(file, "digraph dot {\n");
  for (const NodePtr& node : graph->nodes) {
    fprintf(file, "  \"%p\" [label=\"type %d\"];\n", static_cast<void*>(node->handle),
            static_cast<int>(node->work->type()));
    for (const auto& edge : node->dependencies)
      fprintf(file, "  \"%p\" -> \"%p\";\n", static_cast<void*>(edge.from->handle),
              static_cast<void*>(node->handle));
  }
  fprintf(file, "}\n");
  return fclose(file) == 0 ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
}

SOFT(cuUserObjectCreate)
(CUuserObject* object_out, void* ptr, CUhostFn destroy, unsigned int initialRefcount,
 unsigned int flags) {
  if (object_out == nullptr || destroy == nullptr || initialRefcount == 0 ||
      initialRefcount > INT32_MAX || flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC)
    return CUDA_ERROR_INVALID_VALUE;
  auto made = std::make_shared<UserObject>();
  made->destroy = destroy;
  made->data = ptr;
  made->references = initialRefcount;
  *object_out = user_objects().add(std::move(made));
  return CUDA_SUCCESS;
}

SOFT(cuUserObjectRetain)(CUuserObject handle, unsigned int count) {
  auto object = user_objects().get(handle);
  if (!object || count == 0 || count > INT32_MAX) return CUDA_ERROR_INVALID_VALUE;
  object->references.fetch_add(count);
  return CUDA_SUCCESS;
}

SOFT(cuUserObjectRelease)(CUuserObject handle, unsigned int count) {
  auto object = user_objects().get(handle);
  if (!object || count == 0 || object->references.load() < count) return CUDA_ERROR_INVALID_VALUE;
  drop_references(handle, object, count);
  return CUDA_SUCCESS;
}

SOFT(cuGraphRetainUserObject)
(CUgraph hGraph, CUuserObject handle, unsigned int count, unsigned int flags) {
  GraphPtr graph = graphs().get(hGraph);
  auto object = user_objects().get(handle);
  if (!graph || !object || count == 0 || flags > CU_GRAPH_USER_OBJECT_MOVE)
    return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard guard(capture_lock());
  if (flags != CU_GRAPH_USER_OBJECT_MOVE) object->references.fetch_add(count);
  graph->user_objects.take(handle, std::move(object), count);
  return CUDA_SUCCESS;
}

SOFT(cuGraphReleaseUserObject)(CUgraph hGraph, CUuserObject handle, unsigned int count) {
  GraphPtr graph = graphs().get(hGraph);
  auto object = user_objects().get(handle);
  if (!graph || !object || count == 0) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard guard(capture_lock());
  return graph->user_objects.drop(handle, count) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace tendril::softgpu
