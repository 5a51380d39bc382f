// SPDX-License-Identifier: Apache-2.0
// See kept_memory.h.
#include "worker/cuda/memory/kept_memory.h"

#include <unistd.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/page_blocks.h"
#include "worker/core/output.h"
#include "worker/cuda/executor/waits.h"
#include "worker/cuda/memory/context_memory.h"
#include "worker/cuda/memory/device_blocks.h"

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

constexpr uint64_t kPieceBytes = 32u << 20;  // by which a pool grows, measured on an H100
// What a heap takes beyond its limit: 148 MiB of 512 on an H200, a little less than this. Other
// sizes were not measured.
constexpr uint64_t kHeapSixteenths = 5;
constexpr int kShortagesToldMax = 10;
// For streams that have still to free what an allocation needs, and how often they are asked.
constexpr uint64_t kWaitForRoomNs = 1'000'000'000;
constexpr useconds_t kFirstPauseUs = 200, kLastPauseUs = 10'000;

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
  if (bytes != 0 || frees) needs_[exec] = bytes;
  return bytes != 0 || frees;
}

// The most by which a pool or the graphs of a device grow for so many new bytes. A driver that has
// not been seen to grow by bytes grows by pieces.
uint64_t KeptMemory::most_growth(uint64_t bytes) const {
  return by_bytes_ ? bytes : base::rounded_up(bytes, kPieceBytes);
}

// In the order of one stream a launch may have what earlier ones have freed. Another stream's
// memory it may have only once that stream is done.
bool KeptMemory::before_launch(CUgraphExec exec, uint64_t order) {
  const auto it = needs_.find(exec);
  if (it == needs_.end()) return true;
  const uint32_t slot = w_.slot();
  uint64_t growth = 0;
  const auto fits = [&] {
    const bool again = orders_ == Orders::kNone || (orders_ == Orders::kOne && order_ == order);
    const uint64_t held = graph_attribute(w_, slot, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT);
    const uint64_t used = graph_attribute(w_, slot, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT);
    growth = most_growth(beyond(it->second, again ? beyond(held, used) : 0));
    return w_.charge().try_take(slot, growth);
  };
  if (!fits() && !wait_for_room(slot, fits)) return false;
  launch_growth_ = growth;
  note_order(order);
  return true;
}

void KeptMemory::note_order(uint64_t order) {
  if (orders_ == Orders::kNone) order_ = order;
  orders_ = orders_ == Orders::kNone || (orders_ == Orders::kOne && order_ == order)
                ? Orders::kOne
                : Orders::kSeveral;
}

void KeptMemory::settle_graphs(uint32_t slot) {
  Charge& charge = w_.charge();
  const uint64_t held = graph_attribute(w_, slot, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT);
  // What was charged ahead of the launch becomes the graphs'. So nothing is charged twice, or is
  // free for a moment.
  uint64_t& charged = graphs_charged_[slot];
  charged += launch_growth_;
  launch_growth_ = 0;
  if (held > charged) charge.take_anyway(slot, held - charged);
  if (held < charged) charge.give_back(slot, charged - held);
  charged = held;
}

// Charges what the allocation may take, before the driver is asked. That is all of it: what the
// pool holds may be in parts that are too small, or a stream has still to free it.
bool KeptMemory::take_ahead(CUmemoryPool handle, uint32_t slot, uint64_t bytes, uint64_t* ahead) {
  const auto known = pools_.find(handle);
  Pool* const pool = known != pools_.end() ? &known->second : nullptr;
  const auto fits = [&] {
    if (pool != nullptr) settle(handle, pool, true);  // a wait may have made it smaller
    *ahead = pool != nullptr && bytes <= pool->room ? 0 : most_growth(bytes);
    return w_.charge().try_take(slot, *ahead);
  };
  return fits() || wait_for_room(slot, fits);
}

// Has memory given back that streams have freed, and waits for those streams, but not for ever: the
// program may be what they wait for. False: it does not fit.
template <typename Fits>
bool KeptMemory::wait_for_room(uint32_t slot, Fits&& fits) {
  w_.waiters().synchronise_owed();
  const uint64_t until_ns = base::now_ns() + kWaitForRoomNs;
  for (useconds_t pause_us = kFirstPauseUs;; pause_us = std::min(pause_us * 2, kLastPauseUs)) {
    const bool runs = !streams_are_done();
    give_up(slot);
    if (fits()) return true;
    if (!runs || w_.streams().capturing() || base::now_ns() >= until_ns) return false;
    usleep(pause_us);
  }
}

// Whatever streams have freed until now is free, and the driver knows that this was seen.
bool KeptMemory::streams_are_done() {
  bool untold = false;  // then a wait may last, and nobody can ask how long
  w_.contexts().for_each([&](const WorkerContext& context) { untold |= context.untold; });
  if (untold) return false;
  const KeepsContext keeps(&w_.contexts());
  if (anything_runs(w_) || wait_for_all(w_) != CUDA_SUCCESS) return false;
  for (const Ended& ended : leaving_) w_.charge().give_back(ended.slot, ended.charged);
  leaving_.clear();
  orders_ = Orders::kNone;
  return true;
}

CUresult KeptMemory::allocate(CUmemoryPool handle, uint64_t bytes, CUstream stream,
                              CUdeviceptr* address) {
  gpu::Driver& driver = w_.driver();
  Charge& charge = w_.charge();
  uint64_t ahead = 0;
  auto pool = pools_.find(handle);
  const uint32_t slot = pool != pools_.end() ? pool->second.slot : w_.slot();
  if (bytes > charge.quota(slot)) return CUDA_ERROR_OUT_OF_MEMORY;
  if (!take_ahead(handle, slot, std::max<uint64_t>(bytes, 1), &ahead))
    return CUDA_ERROR_OUT_OF_MEMORY;
  const CUresult result = driver.cuMemAllocFromPoolAsync(address, bytes, handle, stream);
  if (result != CUDA_SUCCESS || *address == 0) {  // an allocation of no bytes may have no address
    charge.give_back(slot, ahead);
    return refused(result, slot, bytes);
  }
  if (pool == pools_.end()) {
    // A pool belongs to the GPU of its memory, which may differ from the stream's GPU.
    CUdevice device = -1;
    const bool told = driver.cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                                   *address) == CUDA_SUCCESS;
    pool = pools_.emplace(handle, Pool{told ? w_.slot_of(device) : slot}).first;
  }
  blocks_[*address] = {handle, bytes};
  Pool* const grown = &pool->second;
  const uint64_t before = grown->charged, room = grown->room;
  // What was charged ahead becomes the pool's. So it is charged at every moment.
  if (grown->slot == slot)
    grown->charged += ahead;
  else
    charge.give_back(slot, ahead);
  if (settle(handle, grown, false)) {
    note_growth(grown, bytes, before, room);
    return CUDA_SUCCESS;
  }
  give_up(grown->slot);
  if (settle(handle, grown, false)) return CUDA_SUCCESS;
  // The driver took more than was expected. If the slice has no room for that, the memory goes back
  // when the stream gets there.
  driver.cuMemFreeAsync(*address, stream);
  settle(handle, grown, true);
  looks_left_ = kLooks;
  blocks_.erase(*address);
  *address = 0;
  return CUDA_ERROR_OUT_OF_MEMORY;
}

// The pool had `room` when it was charged for `before`. What a growth leaves is in one part, and
// nobody has had it, so any stream may.
void KeptMemory::note_growth(Pool* pool, uint64_t bytes, uint64_t before, uint64_t room) {
  if (w_.charge().context_bytes(pool->slot) == 0) by_bytes_ |= pool->charged % kPieceBytes != 0;
  const uint64_t growth = beyond(pool->charged, before);
  pool->room =
      std::max(beyond(growth, bytes), beyond(room, base::rounded_up(bytes, base::kGpuBlockAlign)));
}

// False: the pool holds more than the slice has room for. `anyway`: it is charged all the same.
bool KeptMemory::settle(CUmemoryPool handle, Pool* pool, bool anyway) {
  uint64_t held = 0;
  if (!pool_attribute(w_, handle, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &held)) return true;
  if (held != pool->charged) pool->room = 0;
  if (held <= pool->charged)
    w_.charge().give_back(pool->slot, pool->charged - held);
  else if (anyway)
    w_.charge().take_anyway(pool->slot, held - pool->charged);
  else if (!w_.charge().try_take(pool->slot, held - pool->charged))
    return false;
  pool->charged = held;
  return true;
}

void KeptMemory::settle_pools() {
  if (!leaving_.empty()) streams_are_done();
  for (auto& [handle, pool] : pools_) settle(handle, &pool, true);
}

void KeptMemory::look_again() {
  if (looks_left_ != 0) --looks_left_;
  settle_pools();
}

void KeptMemory::freed(CUdeviceptr address) {
  const auto block = blocks_.find(address);
  if (block == blocks_.end()) return;
  looks_left_ = kLooks;
  const auto ended = ended_.find(block->second.ended);
  blocks_.erase(block);
  if (ended == ended_.end() || --ended->second.blocks != 0) return;
  leaves(ended->second);
  ended_.erase(ended);
}

void KeptMemory::destroyed(CUmemoryPool handle) {
  const auto pool = pools_.find(handle);
  if (pool == pools_.end()) return;
  Ended ended = {pool->second.slot, pool->second.charged, 0};
  const uint64_t key = ++ended_count_;
  pools_.erase(pool);
  for (auto& [address, block] : blocks_) {
    if (block.pool != handle || block.ended != 0) continue;
    block.ended = key;
    ++ended.blocks;
  }
  if (ended.blocks == 0)
    leaves(ended);
  else
    ended_[key] = ended;
}

// All of a destroyed pool is freed, but streams may have still to get there.
void KeptMemory::leaves(const Ended& ended) {
  if (ended.charged == 0) return;
  leaving_.push_back(ended);
  looks_left_ = kLooks;
  streams_are_done();
}

CUresult KeptMemory::refused(CUresult result, uint32_t slot, uint64_t bytes) {
  if (result != CUDA_ERROR_OUT_OF_MEMORY || shortages_told_ == kShortagesToldMax) return result;
  ++shortages_told_;
  const std::string line = "the driver has no " + std::to_string(bytes) + " bytes on slice " +
                           std::to_string(slot) + ", which has used " +
                           std::to_string(w_.charge().used(slot)) + " of its " +
                           std::to_string(w_.charge().quota(slot)) +
                           ": somebody else uses this GPU, or it lends more than it has\n";
  if (write(w_.output().log_descriptor(), line.data(), line.size()) < 0) return result;
  return result;
}

void KeptMemory::give_up(uint32_t slot) {
  for (auto& [handle, pool] : pools_) {
    if (pool.slot == slot) w_.driver().cuMemPoolTrimTo(handle, 0);
  }
  settle_pools();
}

CUresult KeptMemory::set_stack(uint64_t value) {
  gpu::Driver& driver = w_.driver();
  size_t before = 0;
  driver.cuCtxGetLimit(&before, CU_LIMIT_STACK_SIZE);
  // A smaller stack is charged after the driver has it.
  if (value > before && !w_.context_memory().set_stack(value)) return CUDA_ERROR_OUT_OF_MEMORY;
  const CUresult result = driver.cuCtxSetLimit(CU_LIMIT_STACK_SIZE, value);
  if ((result == CUDA_SUCCESS) != (value > before))
    w_.context_memory().set_stack(result == CUDA_SUCCESS ? value : before);
  return result;
}

CUresult KeptMemory::set_limit(CUlimit limit, uint64_t value) {
  gpu::Driver& driver = w_.driver();
  if (limit == CU_LIMIT_STACK_SIZE) return set_stack(value);
  const bool is_memory = limit == CU_LIMIT_MALLOC_HEAP_SIZE || limit == CU_LIMIT_PRINTF_FIFO_SIZE;
  const WorkerContext* context = w_.context();
  if (!is_memory || context == nullptr) return driver.cuCtxSetLimit(limit, value);
  Limit& known = limits_[{context, limit}];
  if (known.by_default == 0) {
    size_t size = 0;
    driver.cuCtxGetLimit(&size, limit);
    known.by_default = size;
  }
  uint64_t more = beyond(value, known.by_default);
  if (limit == CU_LIMIT_MALLOC_HEAP_SIZE && w_.charge().context_bytes(context->slot) != 0)
    more += more / 16 * kHeapSixteenths;
  const uint64_t charged = more != 0 ? w_.charge().hold(context->slot, more, context) : 0;
  if (more != 0 && charged == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  const CUresult result = driver.cuCtxSetLimit(limit, value);
  const uint64_t over = result == CUDA_SUCCESS ? known.charged : charged;
  if (over != 0) w_.charge().release(over);
  if (result == CUDA_SUCCESS) known.charged = charged;
  return result;
}

void KeptMemory::forget_slot(uint32_t slot) {
  w_.charge().give_back(slot, graphs_charged_[slot]);
  graphs_charged_[slot] = 0;
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
