// SPDX-License-Identifier: Apache-2.0
// Reading and changing the parameters of graph nodes.

#include <cstring>

#include "softgpu/driver/code/module.h"
#include "softgpu/driver/entry.h"
#include "softgpu/driver/graph/graph_params.h"
#include "softgpu/driver/memory/copy.h"

namespace tendril::softgpu {
namespace {

// The work of a node, if it is of type T.
template <typename T>
CUresult work_of(CUgraphNode handle, NodePtr* node, std::shared_ptr<T>* work) {
  *node = graph_nodes().get(handle);
  if (!*node) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard guard(capture_lock());
  *work = std::dynamic_pointer_cast<T>((*node)->work);
  return *work ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

// Fills *out with what `read` takes from the work of a node, which must be of type T.
template <typename T, typename Out, typename Read>
CUresult get(CUgraphNode handle, Out* out, Read read) {
  NodePtr node;
  std::shared_ptr<T> work;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (CUresult bad = work_of(handle, &node, &work)) return bad;
  *out = read(*work);
  return CUDA_SUCCESS;
}

// Gives a node of kind `type` the work that `make` makes.
template <typename Make>
CUresult replace(CUgraphNode handle, CUgraphNodeType type, Make make) {
  NodePtr node = graph_nodes().get(handle);
  if (!node) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard guard(capture_lock());
  if (node->work->type() != type) return CUDA_ERROR_INVALID_VALUE;
  WorkPtr work;
  if (CUresult bad = make(&work)) return bad;
  if (type == CU_GRAPH_NODE_TYPE_KERNEL)
    static_cast<KernelWork&>(*work).cooperative = static_cast<KernelWork&>(*node->work).cooperative;
  node->work = std::move(work);
  return CUDA_SUCCESS;
}

}  // namespace

SOFT(cuGraphKernelNodeGetParams_v2)(CUgraphNode hNode, CUDA_KERNEL_NODE_PARAMS* p) {
  NodePtr node;
  std::shared_ptr<KernelWork> work;
  if (p == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (CUresult bad = work_of(hNode, &node, &work)) return bad;
  std::lock_guard guard(capture_lock());
  node->lent.clear();
  for (const ParamInfo& param : work->function->info().params)
    node->lent.push_back(work->params.data() + param.offset);
  *p = {};
  p->func = work->function->handle;
  if (LibraryPtr library = work->function->module->library.lock())
    p->kern = library->kernels[work->function->index]->handle;
  p->gridDimX = work->grid.x;
  p->gridDimY = work->grid.y;
  p->gridDimZ = work->grid.z;
  p->blockDimX = work->block.x;
  p->blockDimY = work->block.y;
  p->blockDimZ = work->block.z;
  p->sharedMemBytes = work->shared_bytes;
  p->kernelParams = node->lent.empty() ? nullptr : node->lent.data();
  p->ctx = work->function->module->context;
  return CUDA_SUCCESS;
}

SOFT(cuGraphKernelNodeGetParams)(CUgraphNode hNode, CUDA_KERNEL_NODE_PARAMS_v1* p) {
  CUDA_KERNEL_NODE_PARAMS wide;
  if (p == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (CUresult bad = soft_cuGraphKernelNodeGetParams_v2(hNode, &wide)) return bad;
  memcpy(p, &wide, sizeof *p);
  return CUDA_SUCCESS;
}

SOFT(cuGraphKernelNodeSetParams_v2)(CUgraphNode hNode, const CUDA_KERNEL_NODE_PARAMS* p) {
  if (p == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return replace(hNode, CU_GRAPH_NODE_TYPE_KERNEL,
                 [&](WorkPtr* out) { return kernel_work(*p, out); });
}

SOFT(cuGraphKernelNodeSetParams)(CUgraphNode hNode, const CUDA_KERNEL_NODE_PARAMS_v1* p) {
  CUDA_KERNEL_NODE_PARAMS wide = {};
  if (p == nullptr) return CUDA_ERROR_INVALID_VALUE;
  memcpy(&wide, p, sizeof *p);
  return soft_cuGraphKernelNodeSetParams_v2(hNode, &wide);
}

SOFT(cuGraphKernelNodeSetAttribute)
(CUgraphNode hNode, CUkernelNodeAttrID attr, const CUkernelNodeAttrValue* value) {
  NodePtr node;
  std::shared_ptr<KernelWork> work;
  if (value == nullptr || static_cast<unsigned>(attr) >= CU_LAUNCH_ATTRIBUTE_MAX)
    return CUDA_ERROR_INVALID_VALUE;
  if (CUresult bad = work_of(hNode, &node, &work)) return bad;
  std::lock_guard guard(capture_lock());
  node->attributes[attr] = *value;
  if (attr == CU_LAUNCH_ATTRIBUTE_COOPERATIVE) work->cooperative = value->cooperative != 0;
  return CUDA_SUCCESS;
}

SOFT(cuGraphKernelNodeGetAttribute)
(CUgraphNode hNode, CUkernelNodeAttrID attr, CUkernelNodeAttrValue* value_out) {
  NodePtr node;
  std::shared_ptr<KernelWork> work;
  if (value_out == nullptr || static_cast<unsigned>(attr) >= CU_LAUNCH_ATTRIBUTE_MAX)
    return CUDA_ERROR_INVALID_VALUE;
  if (CUresult bad = work_of(hNode, &node, &work)) return bad;
  std::lock_guard guard(capture_lock());
  memset(value_out, 0, sizeof *value_out);
  auto found = node->attributes.find(attr);
  if (found != node->attributes.end()) {
    *value_out = found->second;
  } else if (attr == CU_LAUNCH_ATTRIBUTE_COOPERATIVE) {
    value_out->cooperative = work->cooperative;
  }
  return CUDA_SUCCESS;
}

SOFT(cuGraphKernelNodeCopyAttributes)(CUgraphNode dst, CUgraphNode src) {
  NodePtr to, from;
  std::shared_ptr<KernelWork> to_work, from_work;
  if (CUresult bad = work_of(dst, &to, &to_work)) return bad;
  if (CUresult bad = work_of(src, &from, &from_work)) return bad;
  std::lock_guard guard(capture_lock());
  to->attributes = from->attributes;
  to_work->cooperative = from_work->cooperative;
  return CUDA_SUCCESS;
}

SOFT(cuGraphMemcpyNodeGetParams)(CUgraphNode hNode, CUDA_MEMCPY3D* p) {
  return get<CopyWork>(hNode, p, [](const CopyWork& work) { return work.params; });
}

SOFT(cuGraphMemcpyNodeSetParams)(CUgraphNode hNode, const CUDA_MEMCPY3D* p) {
  if (p == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return replace(hNode, CU_GRAPH_NODE_TYPE_MEMCPY,
                 [&](WorkPtr* out) { return copy_work(*p, out); });
}

SOFT(cuGraphMemsetNodeGetParams)(CUgraphNode hNode, CUDA_MEMSET_NODE_PARAMS* p) {
  return get<MemsetWork>(hNode, p, [](const MemsetWork& work) { return work.params; });
}

SOFT(cuGraphMemsetNodeSetParams)(CUgraphNode hNode, const CUDA_MEMSET_NODE_PARAMS* p) {
  if (p == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return replace(hNode, CU_GRAPH_NODE_TYPE_MEMSET,
                 [&](WorkPtr* out) { return memset_work(*p, out); });
}

SOFT(cuGraphHostNodeGetParams)(CUgraphNode hNode, CUDA_HOST_NODE_PARAMS* p) {
  return get<HostWork>(hNode, p, [](const HostWork& work) { return work.params; });
}

SOFT(cuGraphHostNodeSetParams)(CUgraphNode hNode, const CUDA_HOST_NODE_PARAMS* p) {
  if (p == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return replace(hNode, CU_GRAPH_NODE_TYPE_HOST, [&](WorkPtr* out) { return host_work(*p, out); });
}

SOFT(cuGraphChildGraphNodeGetGraph)(CUgraphNode hNode, CUgraph* phGraph) {
  return get<ChildWork>(hNode, phGraph, [](const ChildWork& work) { return work.graph->handle; });
}

SOFT(cuGraphEventRecordNodeGetEvent)(CUgraphNode hNode, CUevent* event_out) {
  return get<RecordWork>(hNode, event_out,
                         [](const RecordWork& work) { return work.event->handle; });
}

SOFT(cuGraphEventWaitNodeGetEvent)(CUgraphNode hNode, CUevent* event_out) {
  return get<WaitWork>(hNode, event_out, [](const WaitWork& work) { return work.event->handle; });
}

SOFT(cuGraphEventRecordNodeSetEvent)(CUgraphNode hNode, CUevent event) {
  return replace(hNode, CU_GRAPH_NODE_TYPE_EVENT_RECORD,
                 [&](WorkPtr* out) { return event_work(event, true, out); });
}

SOFT(cuGraphEventWaitNodeSetEvent)(CUgraphNode hNode, CUevent event) {
  return replace(hNode, CU_GRAPH_NODE_TYPE_WAIT_EVENT,
                 [&](WorkPtr* out) { return event_work(event, false, out); });
}

SOFT(cuGraphBatchMemOpNodeGetParams)(CUgraphNode hNode, CUDA_BATCH_MEM_OP_NODE_PARAMS* p) {
  return get<MemOpWork>(hNode, p, [](MemOpWork& work) {
    CUDA_BATCH_MEM_OP_NODE_PARAMS params = {};
    params.count = static_cast<unsigned>(work.ops.size());
    params.paramArray = work.ops.data();
    return params;
  });
}

SOFT(cuGraphBatchMemOpNodeSetParams)(CUgraphNode hNode, const CUDA_BATCH_MEM_OP_NODE_PARAMS* p) {
  if (p == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return replace(hNode, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP,
                 [&](WorkPtr* out) { return mem_op_work(*p, out); });
}

SOFT(cuGraphMemAllocNodeGetParams)(CUgraphNode hNode, CUDA_MEM_ALLOC_NODE_PARAMS* p) {
  return get<AllocWork>(hNode, p, [](const AllocWork& work) { return work.params; });
}

SOFT(cuGraphMemFreeNodeGetParams)(CUgraphNode hNode, CUdeviceptr* dptr_out) {
  return get<FreeWork>(hNode, dptr_out, [](const FreeWork& work) { return work.address; });
}

SOFT(cuGraphNodeSetParams)(CUgraphNode hNode, CUgraphNodeParams* p) {
  if (p == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return replace(hNode, p->type, [&](WorkPtr* out) { return work_from(p, out); });
}

}  // namespace tendril::softgpu
