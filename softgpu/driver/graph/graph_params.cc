// SPDX-License-Identifier: Apache-2.0
// See graph_params.h.

#include "softgpu/driver/graph/graph_params.h"

#include "softgpu/driver/code/module.h"
#include "softgpu/driver/entry.h"
#include "softgpu/driver/memory/copy.h"
#include "softgpu/driver/memory/memset.h"

namespace tendril::softgpu {

namespace {

// Unlike a launch, a node refuses a buffer that is larger than its parameters: measured on an H200.
CUresult check_buffer_bytes(CUfunction handle, const ContextPtr& context, void** extra) {
  FunctionPtr function;
  if (extra == nullptr) return CUDA_SUCCESS;
  if (CUresult bad = find_function(handle, context, &function)) return bad;
  for (size_t i = 0; extra[i] != CU_LAUNCH_PARAM_END; i += 2) {
    if (extra[i] != CU_LAUNCH_PARAM_BUFFER_SIZE || extra[i + 1] == nullptr) continue;
    if (*static_cast<const size_t*>(extra[i + 1]) != function->info().param_bytes)
      return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

// Where a kernel node runs. A function has a context of its own, which need not be current. A
// kernel gets the named context, or the current one.
CUresult context_of_node(const CUDA_KERNEL_NODE_PARAMS_v2& p, ContextPtr* context) {
  check_live(p.func);
  check_live(p.kern);
  check_live(p.ctx);
  const FunctionPtr function = p.func != nullptr ? functions().get(p.func) : nullptr;
  const CUcontext named = function ? function->module->context : p.ctx;
  if (named == nullptr) return usable_context(context);
  *context = contexts().get(named);
  return *context ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

}  // namespace

CUresult kernel_work(const CUDA_KERNEL_NODE_PARAMS_v2& p, WorkPtr* out) {
  ContextPtr context;
  if (CUresult bad = context_of_node(p, &context)) return bad;
  CUfunction function = p.func != nullptr ? p.func : reinterpret_cast<CUfunction>(p.kern);
  std::shared_ptr<KernelWork> work;
  if (CUresult bad = check_buffer_bytes(function, context, p.extra)) return bad;
  CUresult result = make_launch(context, function, {p.gridDimX, p.gridDimY, p.gridDimZ},
                                {p.blockDimX, p.blockDimY, p.blockDimZ}, p.sharedMemBytes,
                                p.kernelParams, p.extra, false, &work);
  *out = std::move(work);
  return result;
}

CUresult copy_work(const CUDA_MEMCPY3D& params, WorkPtr* out) {
  std::shared_ptr<CopyWork> work;
  CUresult result = make_copy(params, &work);
  *out = std::move(work);
  return result;
}

CUresult memset_work(const CUDA_MEMSET_NODE_PARAMS& params, WorkPtr* out) {
  if (params.width == 0 || params.height == 0) return CUDA_ERROR_INVALID_VALUE;
  if (CUresult bad = check_memset(params)) return bad;
  auto work = std::make_shared<MemsetWork>();
  work->params = params;
  *out = std::move(work);
  return CUDA_SUCCESS;
}

CUresult host_work(const CUDA_HOST_NODE_PARAMS& params, WorkPtr* out) {
  if (params.fn == nullptr) return CUDA_ERROR_INVALID_VALUE;
  auto work = std::make_shared<HostWork>();
  work->params = params;
  *out = std::move(work);
  return CUDA_SUCCESS;
}

CUresult event_work(CUevent handle, bool record, WorkPtr* out) {
  EventPtr event = events().get(handle);
  if (!event) return CUDA_ERROR_INVALID_VALUE;
  if (record) {
    auto work = std::make_shared<RecordWork>();
    work->event = std::move(event);
    *out = std::move(work);
  } else {
    auto work = std::make_shared<WaitWork>();
    work->event = std::move(event);
    *out = std::move(work);
  }
  return CUDA_SUCCESS;
}

CUresult child_work(CUgraph handle, WorkPtr* out) {
  GraphPtr graph = graphs().get(handle);
  if (!graph) return CUDA_ERROR_INVALID_VALUE;
  auto work = std::make_shared<ChildWork>();
  work->graph = graph->clone();
  work->graph->owned = true;
  *out = std::move(work);
  return CUDA_SUCCESS;
}

CUresult moved_child_work(CUgraph handle, WorkPtr* out) {
  GraphPtr graph = graphs().get(handle);
  if (!graph || graph->owned) return CUDA_ERROR_INVALID_VALUE;
  auto work = std::make_shared<ChildWork>();
  graph->owned = true;
  work->graph = std::move(graph);
  *out = std::move(work);
  return CUDA_SUCCESS;
}

CUresult mem_op_work(const CUDA_BATCH_MEM_OP_NODE_PARAMS& params, WorkPtr* out) {
  if (params.count > 256 || (params.count != 0 && params.paramArray == nullptr) ||
      params.flags != 0)
    return CUDA_ERROR_INVALID_VALUE;
  auto work = std::make_shared<MemOpWork>();
  work->ops.assign(params.paramArray, params.paramArray + params.count);
  *out = std::move(work);
  return CUDA_SUCCESS;
}

CUresult work_from(CUgraphNodeParams* p, WorkPtr* out) {
  if (p == nullptr) return CUDA_ERROR_INVALID_VALUE;
  switch (p->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL: {
      const auto& k = p->kernel;
      return kernel_work({k.func, k.gridDimX, k.gridDimY, k.gridDimZ, k.blockDimX, k.blockDimY,
                          k.blockDimZ, k.sharedMemBytes, k.kernelParams, k.extra, k.kern, k.ctx},
                         out);
    }
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      return copy_work(p->memcpy.copyParams, out);
    case CU_GRAPH_NODE_TYPE_MEMSET: {
      const auto& m = p->memset;
      return memset_work({m.dst, m.pitch, m.value, m.elementSize, m.width, m.height}, out);
    }
    case CU_GRAPH_NODE_TYPE_HOST:
      return host_work({p->host.fn, p->host.userData}, out);
    case CU_GRAPH_NODE_TYPE_GRAPH:
      if (p->graph.ownership == CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE)
        return moved_child_work(p->graph.graph, out);
      return p->graph.ownership == CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE
                 ? child_work(p->graph.graph, out)
                 : CUDA_ERROR_INVALID_VALUE;
    case CU_GRAPH_NODE_TYPE_EMPTY:
      *out = std::make_shared<EmptyWork>();
      return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
      return event_work(p->eventWait.event, false, out);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
      return event_work(p->eventRecord.event, true, out);
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
      return alloc_work(reinterpret_cast<CUDA_MEM_ALLOC_NODE_PARAMS*>(&p->alloc), out);
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
      return free_work(p->free.dptr, out);
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
      return mem_op_work({p->memOp.ctx, p->memOp.count, p->memOp.paramArray, p->memOp.flags}, out);
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
      return conditional_work(&p->conditional, out);
    default:
      return CUDA_ERROR_NOT_SUPPORTED;
  }
}

}  // namespace tendril::softgpu
