// SPDX-License-Identifier: Apache-2.0
// See graph_memory.h.
#include "worker/cuda/graph_memory.h"

#include <vector>

namespace tendril::worker::cuda {
namespace {

uint64_t attribute(Executor& w, uint32_t slot, CUgraphMem_attribute which) {
  cuuint64_t value = 0;
  w.driver().cuDeviceGetGraphMemAttribute(w.device_of(slot), which, &value);
  return value;
}

// The item of a slot in the charge: no address and no handle.
uint64_t key_of(uint32_t slot) {
  return ~uint64_t{slot};
}

}  // namespace

bool GraphMemory::instantiated(gpu::Driver& d, CUgraphExec exec, CUgraph graph) {
  needs_.erase(exec);  // the driver may use a destroyed one's handle again
  if (!used_) return false;
  size_t count = 0;
  if (d.cuGraphGetNodes(graph, nullptr, &count) != CUDA_SUCCESS || count == 0) return false;
  std::vector<CUgraphNode> nodes(count);
  if (d.cuGraphGetNodes(graph, nodes.data(), &count) != CUDA_SUCCESS) return false;
  uint64_t bytes = 0;
  bool frees = false;
  for (CUgraphNode node : nodes) {
    CUgraphNodeType type;
    CUDA_MEM_ALLOC_NODE_PARAMS params{};
    if (d.cuGraphNodeGetType(node, &type) != CUDA_SUCCESS) continue;
    frees |= type == CU_GRAPH_NODE_TYPE_MEM_FREE;
    if (type != CU_GRAPH_NODE_TYPE_MEM_ALLOC) continue;
    if (d.cuGraphMemAllocNodeGetParams(node, &params) == CUDA_SUCCESS) bytes += params.bytesize;
  }
  if (bytes != 0) needs_[exec] = bytes;
  return bytes != 0 || frees;
}

bool GraphMemory::before_launch(Executor& w, CUgraphExec exec) {
  const auto it = needs_.find(exec);
  if (it == needs_.end()) return true;
  const uint64_t held = attribute(w, w.slot(), CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT);
  const uint64_t taken = attribute(w, w.slot(), CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT);
  const uint64_t spare = held > taken ? held - taken : 0;
  const uint64_t more = it->second > spare ? it->second - spare : 0;
  if (!w.charge().take(w.slot(), more)) return false;
  w.charge().give_back(w.slot(), more);
  return true;
}

void GraphMemory::settle(Executor& w, uint32_t slot) {
  Charge& charge = w.charge();
  uint64_t held = attribute(w, slot, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT);
  charge.release(key_of(slot));
  // Drivers round up: at the edge of the quota they may hold a little more than there is room for.
  const uint64_t quota = charge.quota(slot), used = charge.used(slot), room = used < quota ? quota - used : 0;
  if (held > room) held = room;
  if (held != 0 && charge.take(slot, held)) charge.remember(key_of(slot), slot, held, nullptr);
}

}  // namespace tendril::worker::cuda
