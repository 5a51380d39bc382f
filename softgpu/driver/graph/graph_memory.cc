// SPDX-License-Identifier: Apache-2.0
// See graph_memory.h.

#include "softgpu/driver/graph/graph_memory.h"

#include <algorithm>
#include <cstring>

#include "softgpu/driver/device/device.h"
#include "softgpu/driver/entry.h"
#include "softgpu/driver/graph/graph.h"
#include "softgpu/driver/memory/card_memory.h"
#include "softgpu/driver/memory/memory_map.h"

namespace tendril::softgpu {
namespace {

struct Footprint {
  uint64_t used = 0, used_high = 0, reserved = 0, reserved_high = 0;
  uint64_t charged = 0;  // of the device's memory; only with costs=card, else each node is
  // What launches that have not ended allocate and free themselves.
  struct Running {
    uint64_t bytes = 0;
    int launches = 0;
  };
  std::map<const Stream*, Running> running;
  uint64_t running_but(const Stream* stream) const {
    uint64_t sum = 0;
    for (const auto& [other, of] : running) sum += other == stream ? 0 : of.bytes;
    return sum;
  }
};

struct State {
  std::mutex lock;
  std::map<CUdeviceptr, std::weak_ptr<GraphMemory>> known;
  std::map<CUdeviceptr, std::shared_ptr<GraphMemory>> allocated;
  std::map<int, Footprint> footprints;
};

State& state() {
  static auto& only = *new State;
  return only;
}

// Caller holds the lock.
void mark(Footprint* f) {
  f->used_high = std::max(f->used_high, f->used);
  f->reserved_high = std::max(f->reserved_high, f->reserved);
}

void release(State& s, std::map<CUdeviceptr, std::shared_ptr<GraphMemory>>::iterator it,
             std::vector<std::shared_ptr<GraphMemory>>* gone) {
  s.footprints[it->second->device].used -= it->second->bytes;
  gone->push_back(std::move(it->second));  // its destructor takes the lock
  s.allocated.erase(it);
}

// What a list of works allocates and frees.
struct Effect {
  std::vector<std::shared_ptr<GraphMemory>> allocates;
  std::set<CUdeviceptr> frees;
};

Effect effect_of(const GraphExec& exec) {
  Effect effect;
  for (const GraphExec::Item& item : exec.items) {
    if (item.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
      effect.allocates.push_back(static_cast<AllocWork&>(*item.work).memory);
    if (item.type == CU_GRAPH_NODE_TYPE_MEM_FREE)
      effect.frees.insert(static_cast<FreeWork&>(*item.work).address);
  }
  return effect;
}

// With costs=card a device's memory is taken when graphs run. Caller holds the lock.
bool charge_launch(State& s, const Effect& effect, const Stream* stream) {
  if (!costs_as_card()) return true;
  std::map<int, uint64_t> more;
  for (const auto& memory : effect.allocates)
    if (s.allocated.count(memory->address) == 0) more[memory->device] += memory->bytes;
  for (const auto& [device, bytes] : more) {
    Footprint& f = s.footprints[device];
    const uint64_t wanted = std::max(f.charged, pool_cost(f.used + f.running_but(stream) + bytes));
    if (!change_charge(device, f.charged, wanted)) return false;
    f.charged = wanted;
  }
  return true;
}

bool allocates(const Effect& effect, CUdeviceptr address) {
  return std::any_of(effect.allocates.begin(), effect.allocates.end(),
                     [&](const auto& memory) { return memory->address == address; });
}

}  // namespace

GraphMemory::~GraphMemory() {
  State& s = state();
  {
    std::lock_guard guard(s.lock);
    s.known.erase(address);
  }
  if (auto gone = MemoryMap::instance().remove(address, {MemoryKind::kPool}))
    MemoryMap::instance().free(*gone);
}

CUresult alloc_work(CUDA_MEM_ALLOC_NODE_PARAMS* params, WorkPtr* out) {
  if (params == nullptr || params->bytesize == 0 ||
      params->poolProps.location.type != CU_MEM_LOCATION_TYPE_DEVICE)
    return CUDA_ERROR_INVALID_VALUE;
  const int device = params->poolProps.location.id;
  if (device_at(device) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  SOFT_CONTEXT(context);
  auto memory = std::make_shared<GraphMemory>();
  memory->device = device;
  memory->bytes = params->bytesize;
  MemoryMap& map = MemoryMap::instance();
  memory->address =
      costs_as_card()
          ? map.allocate_uncharged(device, params->bytesize, MemoryKind::kPool, context->handle)
          : map.allocate_device(device, params->bytesize, MemoryKind::kPool, context->handle);
  if (memory->address == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  params->dptr = memory->address;
  {
    std::lock_guard guard(state().lock);
    state().known[memory->address] = memory;
  }
  auto work = std::make_shared<AllocWork>();
  work->params = *params;
  work->params.accessDescs = nullptr;
  work->params.accessDescCount = 0;
  work->memory = std::move(memory);
  *out = std::move(work);
  return CUDA_SUCCESS;
}

CUresult free_work(CUdeviceptr address, WorkPtr* out) {
  {
    std::lock_guard guard(state().lock);
    if (state().known.count(address) == 0) return CUDA_ERROR_INVALID_VALUE;
  }
  auto work = std::make_shared<FreeWork>();
  work->address = address;
  *out = std::move(work);
  return CUDA_SUCCESS;
}

CUresult launch_graph_memory(const GraphExec& exec, const Stream* stream,
                             std::vector<int>* devices) {
  const Effect effect = effect_of(exec);
  if (effect.allocates.empty() && effect.frees.empty()) return CUDA_SUCCESS;
  const bool automatic = (exec.flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH) != 0;
  std::vector<std::shared_ptr<GraphMemory>> gone;
  State& s = state();
  std::lock_guard guard(s.lock);
  for (const auto& memory : effect.allocates)
    if (!automatic && s.allocated.count(memory->address) != 0) return CUDA_ERROR_INVALID_VALUE;
  for (CUdeviceptr address : effect.frees)
    if (!allocates(effect, address) && s.allocated.count(address) == 0)
      return CUDA_ERROR_INVALID_VALUE;
  if (!charge_launch(s, effect, stream)) return CUDA_ERROR_OUT_OF_MEMORY;
  std::map<int, uint64_t> passing;  // allocated and freed by this launch
  for (const auto& memory : effect.allocates) {
    auto left = s.allocated.find(memory->address);
    if (left != s.allocated.end()) release(s, left, &gone);
    if (effect.frees.count(memory->address) != 0) {
      passing[memory->device] += memory->bytes;
      continue;
    }
    s.allocated[memory->address] = memory;
    s.footprints[memory->device].used += memory->bytes;
  }
  for (const auto& [device, bytes] : passing) {
    Footprint::Running& own = s.footprints[device].running[stream];
    own.bytes = std::max(own.bytes, bytes);
    ++own.launches;
    devices->push_back(device);
  }
  for (const auto& memory : effect.allocates) {
    Footprint& f = s.footprints[memory->device];
    f.reserved = std::max(f.reserved, f.used + passing[memory->device]);
    f.used_high = std::max(f.used_high, f.used + passing[memory->device]);
    mark(&f);
  }
  for (CUdeviceptr address : effect.frees) {
    auto it = s.allocated.find(address);
    if (it != s.allocated.end()) release(s, it, &gone);
  }
  return CUDA_SUCCESS;
}

void graph_memory_ended(const Stream* stream, const std::vector<int>& devices) {
  std::lock_guard guard(state().lock);
  for (const int device : devices) {
    auto& running = state().footprints[device].running;
    const auto own = running.find(stream);
    if (own != running.end() && --own->second.launches == 0) running.erase(own);
  }
}

std::optional<CUresult> free_graph_memory(CUdeviceptr address) {
  std::vector<std::shared_ptr<GraphMemory>> gone;
  State& s = state();
  std::lock_guard guard(s.lock);
  if (s.known.count(address) == 0) return std::nullopt;
  auto it = s.allocated.find(address);
  if (it == s.allocated.end()) return CUDA_ERROR_INVALID_VALUE;
  release(s, it, &gone);
  return CUDA_SUCCESS;
}

SOFT(cuDeviceGraphMemTrim)(CUdevice device) {
  if (device_at(device) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  std::lock_guard guard(state().lock);
  Footprint& f = state().footprints[device];
  f.reserved = f.used;
  const uint64_t wanted = pool_cost(f.used + f.running_but(nullptr));
  if (costs_as_card() && change_charge(device, f.charged, wanted)) f.charged = wanted;
  return CUDA_SUCCESS;
}

SOFT(cuDeviceGetGraphMemAttribute)(CUdevice device, CUgraphMem_attribute attr, void* value) {
  if (device_at(device) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  if (value == nullptr || static_cast<unsigned>(attr) > CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH)
    return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard guard(state().lock);
  const Footprint& f = state().footprints[device];
  const uint64_t reserved = std::max(f.reserved, f.charged);
  const uint64_t values[] = {f.used, f.used_high, reserved, std::max(f.reserved_high, reserved)};
  memcpy(value, &values[attr], sizeof values[attr]);
  return CUDA_SUCCESS;
}

SOFT(cuDeviceSetGraphMemAttribute)(CUdevice device, CUgraphMem_attribute attr, void* value) {
  if (device_at(device) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  bool high =
      attr == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH || attr == CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH;
  if (value == nullptr || !high) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard guard(state().lock);
  Footprint& f = state().footprints[device];
  if (attr == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH) f.used_high = f.used;
  if (attr == CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH) f.reserved_high = f.reserved;
  return CUDA_SUCCESS;
}

}  // namespace tendril::softgpu
