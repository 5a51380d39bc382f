// SPDX-License-Identifier: Apache-2.0
// See kept_memory.h.
#include "worker/cuda/memory/kept_memory.h"

#include <vector>

namespace tendril::worker::cuda {
namespace {

uint64_t graph_attribute(Executor& executor, uint32_t slot, CUgraphMem_attribute which) {
  cuuint64_t value = 0;
  executor.driver().cuDeviceGetGraphMemAttribute(executor.device_of(slot), which, &value);
  return value;
}

// False: the driver does not know the pool any more.
bool pool_attribute(Executor& executor, CUmemoryPool pool, CUmemPool_attribute which,
                    uint64_t* value) {
  cuuint64_t room[8] = {};
  const bool known = executor.driver().cuMemPoolGetAttribute(pool, which, room) == CUDA_SUCCESS;
  *value = room[0];
  return known;
}

// The key in the charge for a slot's graphs. It equals no address and no handle.
uint64_t key_of(uint32_t slot) { return ~uint64_t{slot}; }

uint64_t beyond(uint64_t value, uint64_t what_is_there) {
  return value > what_is_there ? value - what_is_there : 0;
}

}  // namespace

KeptMemory::KeptMemory(Executor* executor) : w_(*executor) {
  w_.charge().on_shortage([this](uint32_t slot) { give_up(slot); });
}

bool KeptMemory::instantiated(CUgraphExec exec, CUgraph graph) {
  gpu::Driver& driver = w_.driver();
  needs_.erase(exec);  // the driver may reuse the handle of a destroyed one
  if (!has_graphs_) return false;
  size_t count = 0;
  if (driver.cuGraphGetNodes(graph, nullptr, &count) != CUDA_SUCCESS || count == 0) return false;
  std::vector<CUgraphNode> nodes(count);
  if (driver.cuGraphGetNodes(graph, nodes.data(), &count) != CUDA_SUCCESS) return false;
  uint64_t bytes = 0;
  bool frees = false;
  for (CUgraphNode node : nodes) {
    CUgraphNodeType type;
    CUDA_MEM_ALLOC_NODE_PARAMS params{};
    if (driver.cuGraphNodeGetType(node, &type) != CUDA_SUCCESS) continue;
    frees |= type == CU_GRAPH_NODE_TYPE_MEM_FREE;
    if (type != CU_GRAPH_NODE_TYPE_MEM_ALLOC) continue;
    if (driver.cuGraphMemAllocNodeGetParams(node, &params) == CUDA_SUCCESS)
      bytes += params.bytesize;
  }
  if (bytes != 0) needs_[exec] = bytes;
  return bytes != 0 || frees;
}

bool KeptMemory::before_launch(CUgraphExec exec) {
  const auto it = needs_.find(exec);
  if (it == needs_.end()) return true;
  const uint32_t slot = w_.slot();
  const uint64_t held = graph_attribute(w_, slot, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT);
  const uint64_t taken = graph_attribute(w_, slot, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT);
  const uint64_t more = beyond(it->second, beyond(held, taken));
  if (!w_.charge().take(slot, more)) return false;
  w_.charge().give_back(slot, more);
  return true;
}

void KeptMemory::settle_graphs(uint32_t slot) {
  Charge& charge = w_.charge();
  uint64_t held = graph_attribute(w_, slot, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT);
  charge.release(key_of(slot));
  // Drivers round up. Near the quota they may hold a little more than there is room for.
  const uint64_t room = beyond(charge.quota(slot), charge.used(slot));
  if (held > room) held = room;
  if (held != 0 && charge.try_take(slot, held)) charge.remember(key_of(slot), slot, held, nullptr);
}

CUresult KeptMemory::allocate(CUmemoryPool handle, uint64_t bytes, CUstream stream,
                              CUdeviceptr* address) {
  gpu::Driver& driver = w_.driver();
  Charge& charge = w_.charge();
  uint64_t held = 0, taken = 0;
  pool_attribute(w_, handle, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &held);
  pool_attribute(w_, handle, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &taken);
  const uint64_t more = beyond(bytes, beyond(held, taken));
  auto pool = pools_.find(handle);
  const uint32_t slot = pool != pools_.end() ? pool->second.slot : w_.slot();
  if (!charge.take(slot, more)) return CUDA_ERROR_OUT_OF_MEMORY;
  const CUresult result = driver.cuMemAllocFromPoolAsync(address, bytes, handle, stream);
  charge.give_back(slot, more);
  if (result != CUDA_SUCCESS || *address == 0)
    return result;  // an allocation of no bytes may return no address
  if (pool == pools_.end()) {
    // A pool belongs to the GPU of its memory, which may differ from the stream's GPU.
    CUdevice device = -1;
    const bool told = driver.cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                                   *address) == CUDA_SUCCESS;
    pool = pools_.emplace(handle, Pool{told ? w_.slot_of(device) : slot}).first;
  }
  blocks_[*address] = {handle, bytes};
  if (settle(handle, &pool->second)) return CUDA_SUCCESS;
  give_up(pool->second.slot);
  if (settle(handle, &pool->second)) return CUDA_SUCCESS;
  // Drivers take more than was asked for. If the slice has no room for that, the memory goes back
  // when the stream gets there.
  driver.cuMemFreeAsync(*address, stream);
  blocks_.erase(*address);
  *address = 0;
  return CUDA_ERROR_OUT_OF_MEMORY;
}

// False: the pool holds more than the slice has room for.
bool KeptMemory::settle(CUmemoryPool handle, Pool* pool) {
  uint64_t held = 0;
  if (!pool_attribute(w_, handle, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &held)) return true;
  if (held <= pool->charged)
    w_.charge().give_back(pool->slot, pool->charged - held);
  else if (!w_.charge().try_take(pool->slot, held - pool->charged))
    return false;
  pool->charged = held;
  return true;
}

void KeptMemory::settle_pools() {
  for (auto& [handle, pool] : pools_) settle(handle, &pool);
}

void KeptMemory::look_again() {
  if (looks_left_ != 0) --looks_left_;
  settle_pools();
}

void KeptMemory::freed(CUdeviceptr address) {
  looks_left_ = kLooks;
  blocks_.erase(address);
  w_.charge().release(address);  // for memory of a destroyed pool
}

void KeptMemory::destroying(CUmemoryPool handle) {
  const auto pool = pools_.find(handle);
  if (pool == pools_.end()) return;
  const uint32_t slot = pool->second.slot;
  w_.charge().give_back(slot, pool->second.charged);
  pools_.erase(pool);
  for (auto it = blocks_.begin(); it != blocks_.end();) {
    if (it->second.pool != handle) {
      ++it;
      continue;
    }
    if (w_.charge().try_take(slot, it->second.bytes)) {
      w_.charge().remember(it->first, slot, it->second.bytes, nullptr);
    }
    it = blocks_.erase(it);
  }
}

void KeptMemory::give_up(uint32_t slot) {
  for (auto& [handle, pool] : pools_) {
    if (pool.slot == slot) w_.driver().cuMemPoolTrimTo(handle, 0);
  }
  settle_pools();
}

CUresult KeptMemory::set_limit(CUlimit limit, uint64_t value) {
  gpu::Driver& driver = w_.driver();
  const bool is_memory = limit == CU_LIMIT_MALLOC_HEAP_SIZE || limit == CU_LIMIT_PRINTF_FIFO_SIZE;
  const WorkerContext* context = w_.context();
  if (!is_memory || context == nullptr) return driver.cuCtxSetLimit(limit, value);
  Limit& known = limits_[{context, limit}];
  if (known.by_default == 0) {
    size_t size = 0;
    driver.cuCtxGetLimit(&size, limit);
    known.by_default = size;
  }
  const uint64_t more = beyond(value, known.by_default);
  const uint64_t charged = more != 0 ? w_.charge().hold(context->slot, more, context) : 0;
  if (more != 0 && charged == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  const CUresult result = driver.cuCtxSetLimit(limit, value);
  const uint64_t over = result == CUDA_SUCCESS ? known.charged : charged;
  if (over != 0) w_.charge().release(over);
  if (result == CUDA_SUCCESS) known.charged = charged;
  return result;
}

void KeptMemory::forget_slot(uint32_t slot) {
  w_.charge().release(key_of(slot));
  std::vector<CUmemoryPool> gone;
  for (const auto& [handle, pool] : pools_) {
    if (pool.slot == slot) gone.push_back(handle);
  }
  for (CUmemoryPool handle : gone) {
    w_.charge().give_back(slot, pools_[handle].charged);
    pools_.erase(handle);
    for (auto it = blocks_.begin(); it != blocks_.end();) {
      it = it->second.pool == handle ? blocks_.erase(it) : std::next(it);
    }
  }
}

}  // namespace tendril::worker::cuda
