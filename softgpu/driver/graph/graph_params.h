// SPDX-License-Identifier: Apache-2.0
// Converts the parameter structures of graph calls to works and back. The calls that add nodes,
// change nodes and change instances use it.
#pragma once

#include "softgpu/driver/graph/graph.h"
#include "softgpu/driver/graph/graph_memory.h"

namespace tendril::softgpu {

// Makes the same checks as the stream call of the same kind, in the current context (or in
// `context` if the structure has one).
CUresult kernel_work(const CUDA_KERNEL_NODE_PARAMS_v2& params, WorkPtr* out);
CUresult copy_work(const CUDA_MEMCPY3D& params, WorkPtr* out);
CUresult memset_work(const CUDA_MEMSET_NODE_PARAMS& params, WorkPtr* out);
CUresult host_work(const CUDA_HOST_NODE_PARAMS& params, WorkPtr* out);
CUresult event_work(CUevent event, bool record, WorkPtr* out);
CUresult child_work(CUgraph graph, WorkPtr* out);
// The node takes the graph itself. The handle still names that graph.
CUresult moved_child_work(CUgraph graph, WorkPtr* out);
CUresult mem_op_work(const CUDA_BATCH_MEM_OP_NODE_PARAMS& params, WorkPtr* out);
CUresult conditional_work(CUDA_CONDITIONAL_NODE_PARAMS* params, WorkPtr* out);
CUresult work_from(CUgraphNodeParams* params, WorkPtr* out);

}  // namespace tendril::softgpu
