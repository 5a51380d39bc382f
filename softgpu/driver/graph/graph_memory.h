// SPDX-License-Identifier: Apache-2.0
// Memory of allocation nodes. Each node has its own addresses while a graph or an instance has the
// node. A launch allocates them; that is how the program sees it, since they are backed all the
// time. A free node or any other free gives them back. What a launch leaves allocated outlives
// graph and instance. Any thread.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "softgpu/driver/stream/work.h"

namespace tendril::softgpu {

struct GraphExec;

struct GraphMemory {
  CUdeviceptr address = 0;
  uint64_t bytes = 0;
  int device = 0;
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

CUresult alloc_work(CUDA_MEM_ALLOC_NODE_PARAMS* params, WorkPtr* out);
CUresult free_work(CUdeviceptr address, WorkPtr* out);

// What launching `exec` does to the memory of graphs, decided when the launch is called.
// CUDA_ERROR_INVALID_VALUE, and nothing is done, if memory that it allocates is still allocated, or
// memory that it frees is not.
// What it allocates and frees itself, later launches in the same stream may have at once, and
// others once it has ended: call `graph_memory_ended` then.
CUresult launch_graph_memory(const GraphExec& exec, const Stream* stream,
                             std::vector<int>* devices);
// A launch in the stream that used memory of these devices has ended, or never began.
void graph_memory_ended(const Stream* stream, const std::vector<int>& devices);
// A free outside of graphs. Does nothing if the address belongs to no graph.
std::optional<CUresult> free_graph_memory(CUdeviceptr address);

}  // namespace tendril::softgpu
