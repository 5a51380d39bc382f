// SPDX-License-Identifier: Apache-2.0
// See context_memory.h.
#include "worker/cuda/memory/context_memory.h"

#include <algorithm>
#include <iterator>

#include "base/page_blocks.h"

namespace tendril::worker::cuda {
namespace {

constexpr uint64_t kLocalIncluded = 1024;  // of each thread's local memory, in every context
// --code-memory covers the driver's objects, as long as there are few.
constexpr uint64_t kStreamsInReserve = 32, kGraphBytesInReserve = 8u << 20;
constexpr size_t kLaunchedMax = 1u << 16;

}  // namespace

ContextMemory::Slot& ContextMemory::slot_facts(uint32_t index) {
  Slot& slot = slots_[index];
  if (slot.known || context_bytes(index) == 0) return slot;
  gpu::Driver& driver = w_.driver();
  int processors = 0, threads = 0;
  const CUdevice device = w_.device_of(index);
  driver.cuDeviceGetAttribute(&processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device);
  driver.cuDeviceGetAttribute(&threads, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, device);
  slot = {true, static_cast<uint64_t>(processors) * static_cast<uint64_t>(threads), 0};
  return slot;
}

uint64_t ContextMemory::cost(const State& state, uint64_t local_bytes) {
  if (context_bytes(state.slot) == 0) return 0;
  const Slot& slot = slot_facts(state.slot);
  const uint64_t per_thread = std::max(local_bytes, state.stack_bytes);
  const uint64_t streams =
      state.streams_most > kStreamsInReserve ? state.streams_most - kStreamsInReserve : 0;
  uint64_t local = 0;
  if (per_thread > kLocalIncluded) {
    const uint64_t more = per_thread - kLocalIncluded;
    if (slot.threads != 0 && more > UINT64_MAX / 2 / slot.threads) return UINT64_MAX / 2;
    local = base::whole_pages(more * slot.threads);
  }
  const uint64_t graphs =
      state.graphs_most > kGraphBytesInReserve ? state.graphs_most - kGraphBytesInReserve : 0;
  return local + base::whole_pages(streams * kStreamBytes) + base::whole_pages(graphs);
}

bool ContextMemory::pay(State* state, uint64_t local_bytes) {
  const uint64_t now = cost(*state, local_bytes);
  if (now > state->charged && !w_.charge().take(state->slot, now - state->charged)) return false;
  if (now < state->charged) w_.charge().give_back(state->slot, state->charged - now);
  state->charged = now;
  return true;
}

ContextMemory::State* ContextMemory::current() {
  const WorkerContext* context = w_.context();
  if (context == nullptr) return nullptr;
  State& state = contexts_[context->context];
  state.slot = context->slot;
  return &state;
}

bool ContextMemory::began(CUcontext context, uint32_t slot) {
  ended(context);
  State& state = contexts_[context];
  state.slot = slot;
  if (!pay(&state, slot_facts(slot).local_bytes)) {
    contexts_.erase(context);
    return false;
  }
  state.further = true;
  return true;
}

void ContextMemory::ended(CUcontext context) {
  const auto found = contexts_.find(context);
  if (found == contexts_.end()) return;
  w_.charge().give_back(found->second.slot, found->second.charged);
  if (found->second.further) give_back_context(found->second.slot);
  contexts_.erase(found);
  for (auto stream = streams_.begin(); stream != streams_.end();)
    stream = stream->second == context ? streams_.erase(stream) : std::next(stream);
  std::erase_if(instances_, [context](const auto& each) { return each.second.context == context; });
}

bool ContextMemory::set_stack(uint64_t bytes) {
  State* state = current();
  if (state == nullptr || context_bytes(state->slot) == 0) return true;
  Slot& slot = slot_facts(state->slot);
  const uint64_t before = state->stack_bytes;
  state->stack_bytes = bytes;
  if (pay(state, slot.local_bytes)) return true;
  state->stack_bytes = before;
  return false;
}

bool ContextMemory::use_function(CUfunction function, bool kernel) {
  State* state = current();
  if (state == nullptr || context_bytes(state->slot) == 0) return true;
  Slot& slot = slot_facts(state->slot);
  int bytes = 0;
  gpu::Driver& driver = w_.driver();
  const CUresult result =
      kernel ? driver.cuKernelGetAttribute(&bytes, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES,
                                           reinterpret_cast<CUkernel>(function),
                                           w_.device_of(state->slot))
             : driver.cuFuncGetAttribute(&bytes, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, function);
  if (result != CUDA_SUCCESS || bytes <= 0) return true;  // what is wrong with it, a launch says
  const auto local_bytes = static_cast<uint64_t>(bytes);
  if (local_bytes <= slot.local_bytes) return pay(state, slot.local_bytes);
  // Any context of the slot may use it from now on, and would not be asked.
  for (auto& [context, each] : contexts_) {
    if (each.slot == state->slot && !pay(&each, local_bytes)) {
      for (auto& [other, back] : contexts_)
        if (back.slot == state->slot) pay(&back, slot.local_bytes);
      return false;
    }
  }
  slot.local_bytes = local_bytes;
  return true;
}

bool ContextMemory::may_launch(uint64_t id, CUfunction function, bool kernel) {
  if (launched_.count(id) != 0) return true;
  if (!use_function(function, kernel)) return false;
  if (launched_.size() >= kLaunchedMax) launched_.clear();
  launched_.insert(id);
  return true;
}

bool ContextMemory::take_stream() {
  State* state = current();
  if (state == nullptr) return true;
  const uint64_t before = state->streams_most;
  ++state->streams;
  state->streams_most = std::max(before, state->streams);
  if (state->streams_most == before || pay(state, slot_facts(state->slot).local_bytes)) return true;
  --state->streams;
  state->streams_most = before;
  return false;
}

void ContextMemory::refused_stream() {
  State* state = current();
  if (state != nullptr && state->streams != 0) --state->streams;
}

void ContextMemory::began(CUstream stream) {
  if (w_.context() != nullptr) streams_[stream] = w_.context()->context;
}

void ContextMemory::ended(CUstream stream) {
  const auto found = streams_.find(stream);
  if (found == streams_.end()) return;
  const auto context = contexts_.find(found->second);
  if (context != contexts_.end() && context->second.streams != 0) --context->second.streams;
  streams_.erase(found);
}

bool ContextMemory::take_graph(uint64_t bytes) {
  State* state = current();
  return state == nullptr || add_graph(state, bytes);
}

bool ContextMemory::add_graph(State* state, uint64_t bytes) {
  const uint64_t before = state->graphs_most;
  state->graphs += bytes;
  state->graphs_most = std::max(before, state->graphs);
  if (state->graphs_most == before || pay(state, slot_facts(state->slot).local_bytes)) return true;
  state->graphs -= bytes;
  state->graphs_most = before;
  return false;
}

void ContextMemory::refused_graph(uint64_t bytes) {
  State* state = current();
  if (state != nullptr) state->graphs -= std::min(state->graphs, bytes);
}

void ContextMemory::began(CUgraphExec exec, uint64_t bytes) {
  if (w_.context() != nullptr) instances_[exec] = {w_.context()->context, bytes};
}

bool ContextMemory::grow(CUgraphExec exec, uint64_t bytes) {
  const auto found = instances_.find(exec);
  if (found == instances_.end() || bytes <= found->second.bytes) return true;
  const auto context = contexts_.find(found->second.context);
  if (context == contexts_.end()) return true;
  if (!add_graph(&context->second, bytes - found->second.bytes)) return false;
  found->second.bytes = bytes;
  return true;
}

void ContextMemory::ended(CUgraphExec exec) {
  const auto found = instances_.find(exec);
  if (found == instances_.end()) return;
  const auto context = contexts_.find(found->second.context);
  if (context != contexts_.end())
    context->second.graphs -= std::min(context->second.graphs, found->second.bytes);
  instances_.erase(found);
}

}  // namespace tendril::worker::cuda
