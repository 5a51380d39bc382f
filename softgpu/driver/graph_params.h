// SPDX-License-Identifier: Apache-2.0
// From the parameter structures of graph calls to works and back. Used by the calls that add nodes,
// change nodes and change instances.
#pragma once

#include "softgpu/driver/graph.h"

namespace tendril::softgpu {

// Checks as the stream call of the same kind would, in the current context (or `context` where the
// structure has one).
CUresult kernel_work(const CUDA_KERNEL_NODE_PARAMS_v2& params, WorkPtr* out);
CUresult copy_work(const CUDA_MEMCPY3D& params, WorkPtr* out);
CUresult memset_work(const CUDA_MEMSET_NODE_PARAMS& params, WorkPtr* out);
CUresult host_work(const CUDA_HOST_NODE_PARAMS& params, WorkPtr* out);
CUresult event_work(CUevent event, bool record, WorkPtr* out);
CUresult child_work(CUgraph graph, WorkPtr* out);
CUresult mem_op_work(const CUDA_BATCH_MEM_OP_NODE_PARAMS& params, WorkPtr* out);
CUresult alloc_work(CUDA_MEM_ALLOC_NODE_PARAMS* params, WorkPtr* out);
CUresult free_work(CUdeviceptr address, WorkPtr* out);
CUresult work_from(CUgraphNodeParams* params, WorkPtr* out);

// Memory of an allocation node: lives as long as some graph or instance has the node.
struct GraphMemory {
  CUdeviceptr address = 0;
  ~GraphMemory();
};

struct AllocWork : Work {
  CUDA_MEM_ALLOC_NODE_PARAMS params = {};
  std::shared_ptr<GraphMemory> memory;
  CUgraphNodeType type() const override { return CU_GRAPH_NODE_TYPE_MEM_ALLOC; }
  CUresult run(Context&) override { return CUDA_SUCCESS; }
  WorkPtr clone() const override { return std::make_shared<AllocWork>(*this); }
};

struct FreeWork : Work {
  CUdeviceptr address = 0;
  CUgraphNodeType type() const override { return CU_GRAPH_NODE_TYPE_MEM_FREE; }
  CUresult run(Context&) override { return CUDA_SUCCESS; }
  WorkPtr clone() const override { return std::make_shared<FreeWork>(*this); }
};

}  // namespace tendril::softgpu
