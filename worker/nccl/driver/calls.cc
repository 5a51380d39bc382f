// SPDX-License-Identifier: Apache-2.0
// See calls.h. Functions here have the driver's signatures; Memory has what they do.
#include "worker/nccl/driver/calls.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>

#include "api/cuda/resolve.h"

namespace tendril::worker::nccl {
namespace {

std::atomic<Memory*> g_memory{nullptr};
std::atomic<uint64_t> g_seen{0};
std::atomic<int> g_log{2};

Memory& memory() {
  if (g_seen.fetch_add(1, std::memory_order_relaxed) == 0)
    dprintf(g_log.load(), "NCCL has its driver from Tendril: what it takes is charged\n");
  return *g_memory.load(std::memory_order_acquire);
}
const gpu::Driver& driver() { return memory().driver(); }

CUresult refused(const char* name) {
  dprintf(g_log.load(),
          "NCCL called %s, which takes memory by a rule that Tendril does not know; the call is "
          "refused\n",
          name);
  return CUDA_ERROR_NOT_SUPPORTED;
}

#define TENDRIL_CHARGED(symbol) CUresult charged_##symbol

TENDRIL_CHARGED(cuMemAlloc_v2)(CUdeviceptr* address, size_t bytes) {
  return memory().allocate(address, bytes);
}
TENDRIL_CHARGED(cuMemAllocPitch_v2)
(CUdeviceptr* address, size_t* pitch, size_t width, size_t height, unsigned element) {
  return memory().allocate_pitch(address, pitch, width, height, element);
}
TENDRIL_CHARGED(cuMemFree_v2)(CUdeviceptr address) { return memory().deallocate(address); }
TENDRIL_CHARGED(cuMemCreate)
(CUmemGenericAllocationHandle* handle, size_t bytes, const CUmemAllocationProp* properties,
 unsigned long long flags) {
  return memory().create(handle, bytes, properties, flags);
}
TENDRIL_CHARGED(cuMemRetainAllocationHandle)(CUmemGenericAllocationHandle* handle, void* address) {
  return memory().retain(handle, address);
}
TENDRIL_CHARGED(cuMemRelease)(CUmemGenericAllocationHandle handle) {
  return memory().release(handle);
}
TENDRIL_CHARGED(cuMemMap)
(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
 unsigned long long flags) {
  return memory().map(address, bytes, offset, handle, flags);
}
TENDRIL_CHARGED(cuMemUnmap)(CUdeviceptr address, size_t bytes) {
  return memory().unmap(address, bytes);
}
TENDRIL_CHARGED(cuMemPoolCreate)(CUmemoryPool* pool, const CUmemPoolProps* properties) {
  return memory().create_pool(pool, properties);
}
TENDRIL_CHARGED(cuMemPoolTrimTo)(CUmemoryPool pool, size_t keep) {
  return memory().trim_pool(pool, keep);
}
TENDRIL_CHARGED(cuMemPoolDestroy)(CUmemoryPool pool) { return memory().destroy_pool(pool); }
#define TENDRIL_CHARGED_IN_ORDER(variant)                                             \
  TENDRIL_CHARGED(cuMemAllocAsync##variant)                                           \
  (CUdeviceptr * address, size_t bytes, CUstream stream) {                            \
    return memory().allocate_in_order(nullptr, address, bytes, [&] {                  \
      return driver().cuMemAllocAsync##variant(address, bytes, stream);               \
    });                                                                               \
  }                                                                                   \
  TENDRIL_CHARGED(cuMemAllocFromPoolAsync##variant)                                   \
  (CUdeviceptr * address, size_t bytes, CUmemoryPool pool, CUstream stream) {         \
    return memory().allocate_in_order(pool, address, bytes, [&] {                     \
      return driver().cuMemAllocFromPoolAsync##variant(address, bytes, pool, stream); \
    });                                                                               \
  }                                                                                   \
  TENDRIL_CHARGED(cuMemFreeAsync##variant)(CUdeviceptr address, CUstream stream) {    \
    return memory().free_in_order(                                                    \
        address, [&] { return driver().cuMemFreeAsync##variant(address, stream); });  \
  }
TENDRIL_CHARGED_IN_ORDER()
TENDRIL_CHARGED_IN_ORDER(_ptsz)
#undef TENDRIL_CHARGED_IN_ORDER
TENDRIL_CHARGED(cuMemAllocHost_v2)(void** data, size_t bytes) {
  return memory().pin(data, bytes, [&] { return driver().cuMemAllocHost_v2(data, bytes); });
}
TENDRIL_CHARGED(cuMemHostAlloc)(void** data, size_t bytes, unsigned flags) {
  return memory().pin(data, bytes, [&] { return driver().cuMemHostAlloc(data, bytes, flags); });
}
TENDRIL_CHARGED(cuMemFreeHost)(void* data) {
  return memory().unpin(data, [&] { return driver().cuMemFreeHost(data); });
}
TENDRIL_CHARGED(cuMemHostRegister_v2)(void* data, size_t bytes, unsigned flags) {
  return memory().pin(&data, bytes,
                      [&] { return driver().cuMemHostRegister_v2(data, bytes, flags); });
}
TENDRIL_CHARGED(cuMemHostUnregister)(void* data) {
  return memory().unpin(data, [&] { return driver().cuMemHostUnregister(data); });
}
TENDRIL_CHARGED(cuStreamCreate)(CUstream* stream, unsigned flags) {
  return memory().make_stream(stream, [&] { return driver().cuStreamCreate(stream, flags); });
}
TENDRIL_CHARGED(cuStreamCreateWithPriority)(CUstream* stream, unsigned flags, int priority) {
  return memory().make_stream(
      stream, [&] { return driver().cuStreamCreateWithPriority(stream, flags, priority); });
}
TENDRIL_CHARGED(cuStreamDestroy_v2)(CUstream stream) { return memory().destroy_stream(stream); }
TENDRIL_CHARGED(cuCtxCreate_v2)(CUcontext* context, unsigned flags, CUdevice device) {
  return memory().make_context(context, device,
                               [&] { return driver().cuCtxCreate_v2(context, flags, device); });
}
TENDRIL_CHARGED(cuCtxCreate_v4)
(CUcontext* context, CUctxCreateParams* parameters, unsigned flags, CUdevice device) {
  return memory().make_context(
      context, device, [&] { return driver().cuCtxCreate_v4(context, parameters, flags, device); });
}
TENDRIL_CHARGED(cuCtxDestroy_v2)(CUcontext context) { return memory().destroy_context(context); }

TENDRIL_CHARGED(cuDevicePrimaryCtxRetain)(CUcontext* context, CUdevice device) {
  return memory().retain_primary(context, device);
}
// Local memory, heap and buffers of kernels are charged by what the program chose.
TENDRIL_CHARGED(cuCtxSetLimit)(CUlimit limit, size_t value) {
  size_t now = 0;
  const CUresult asked = driver().cuCtxGetLimit(&now, limit);
  if (asked != CUDA_SUCCESS) return asked;
  return value <= now ? CUDA_SUCCESS : refused("cuCtxSetLimit");
}
TENDRIL_CHARGED(cuGraphAddNode_v2)
(CUgraphNode* node, CUgraph graph, const CUgraphNode* before, const CUgraphEdgeData* edges,
 size_t count, CUgraphNodeParams* parameters) {
  if (parameters != nullptr && parameters->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
    return refused("cuGraphAddNode");
  return driver().cuGraphAddNode_v2(node, graph, before, edges, count, parameters);
}
TENDRIL_CHARGED(cuGraphAddNode)
(CUgraphNode* node, CUgraph graph, const CUgraphNode* before, size_t count,
 CUgraphNodeParams* parameters) {
  if (parameters != nullptr && parameters->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
    return refused("cuGraphAddNode");
  return driver().cuGraphAddNode(node, graph, before, count, parameters);
}

// What NCCL looks at first, by whichever way it came.
TENDRIL_CHARGED(cuInit)(unsigned flags) { return driver().cuInit(flags); }
TENDRIL_CHARGED(cuCtxGetCurrent)(CUcontext* context) { return driver().cuCtxGetCurrent(context); }
TENDRIL_CHARGED(cuGetProcAddress_v2)
(const char* name, void** function, int version, cuuint64_t flags,
 CUdriverProcAddressQueryResult* status);
TENDRIL_CHARGED(cuGetProcAddress)
(const char* name, void** function, int version, cuuint64_t flags);

// Functions of ours. tests/structure reads both lists.
#define TENDRIL_CHARGED_CALLS(X)  \
  X(cuMemAlloc_v2)                \
  X(cuMemAllocPitch_v2)           \
  X(cuMemFree_v2)                 \
  X(cuMemCreate)                  \
  X(cuMemRetainAllocationHandle)  \
  X(cuMemRelease)                 \
  X(cuMemMap)                     \
  X(cuMemUnmap)                   \
  X(cuMemPoolCreate)              \
  X(cuMemPoolTrimTo)              \
  X(cuMemPoolDestroy)             \
  X(cuMemAllocAsync)              \
  X(cuMemAllocAsync_ptsz)         \
  X(cuMemAllocFromPoolAsync)      \
  X(cuMemAllocFromPoolAsync_ptsz) \
  X(cuMemFreeAsync)               \
  X(cuMemFreeAsync_ptsz)          \
  X(cuMemAllocHost_v2)            \
  X(cuMemHostAlloc)               \
  X(cuMemFreeHost)                \
  X(cuMemHostRegister_v2)         \
  X(cuMemHostUnregister)          \
  X(cuStreamCreate)               \
  X(cuStreamCreateWithPriority)   \
  X(cuStreamDestroy_v2)           \
  X(cuCtxCreate_v2)               \
  X(cuCtxCreate_v4)               \
  X(cuCtxDestroy_v2)              \
  X(cuDevicePrimaryCtxRetain)     \
  X(cuCtxSetLimit)                \
  X(cuGraphAddNode)               \
  X(cuGraphAddNode_v2)            \
  X(cuInit)                       \
  X(cuCtxGetCurrent)              \
  X(cuGetProcAddress)             \
  X(cuGetProcAddress_v2)

#define TENDRIL_REFUSED_CALLS(X)       \
  X(cuArrayCreate_v2)                  \
  X(cuArray3DCreate_v2)                \
  X(cuMipmappedArrayCreate)            \
  X(cuCtxAttach)                       \
  X(cuCtxCreate)                       \
  X(cuCtxCreate_v3)                    \
  X(cuCtxFromGreenCtx)                 \
  X(cuGreenCtxCreate)                  \
  X(cuGreenCtxStreamCreate)            \
  X(cuGraphAddMemAllocNode)            \
  X(cuGraphInstantiate)                \
  X(cuGraphInstantiate_v2)             \
  X(cuGraphInstantiateWithFlags)       \
  X(cuGraphInstantiateWithParams)      \
  X(cuGraphInstantiateWithParams_ptsz) \
  X(cuMemAllocHost)                    \
  X(cuMemAllocManaged)                 \
  X(cuMemHostRegister)

template <typename Function>
struct Refusal;
template <typename... Arguments>
struct Refusal<CUresult(Arguments...)> {
  template <const char* const* kName>
  static CUresult answer(Arguments...) {
    g_seen.fetch_add(1, std::memory_order_relaxed);
    return refused(*kName);
  }
};
#define TENDRIL_REFUSED_NAME(symbol) constexpr const char* kNameOf_##symbol = #symbol;
TENDRIL_REFUSED_CALLS(TENDRIL_REFUSED_NAME)
#undef TENDRIL_REFUSED_NAME

struct Replacement {
  const char* symbol;
  void* function;
};

const Replacement* replacement_of(const char* symbol) {
#define TENDRIL_CHARGED_ROW(symbol) {#symbol, reinterpret_cast<void*>(&charged_##symbol)},
#define TENDRIL_REFUSED_ROW(symbol) \
  {#symbol, reinterpret_cast<void*>(&Refusal<symbol##_t>::answer<&kNameOf_##symbol>)},
  static const Replacement kAll[] = {TENDRIL_CHARGED_CALLS(TENDRIL_CHARGED_ROW)
                                         TENDRIL_REFUSED_CALLS(TENDRIL_REFUSED_ROW)};
#undef TENDRIL_CHARGED_ROW
#undef TENDRIL_REFUSED_ROW
  for (const Replacement& each : kAll)
    if (std::strcmp(each.symbol, symbol) == 0) return &each;
  return nullptr;
}

// The driver says whether there is such a function; ours takes its place. A version that the table
// does not know yet is asked for as the newest that it knows: its function may take memory, too.
CUresult charged_cuGetProcAddress_v2(const char* name, void** function, int version,
                                     cuuint64_t flags, CUdriverProcAddressQueryResult* status) {
  if (name == nullptr || driver().cuGetProcAddress_v2 == nullptr)
    return name == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_NOT_FOUND;
  const int known = std::min(version, CUDA_VERSION);
  const api::ResolveStep step = api::resolve_symbol(name, known, flags);
  const Replacement* const ours = step.symbol != nullptr ? replacement_of(step.symbol) : nullptr;
  const CUresult result =
      driver().cuGetProcAddress_v2(name, function, ours ? known : version, flags, status);
  if (result == CUDA_SUCCESS && ours != nullptr && function != nullptr && *function != nullptr)
    *function = ours->function;
  return result;
}

CUresult charged_cuGetProcAddress(const char* name, void** function, int version,
                                  cuuint64_t flags) {
  const CUresult result = charged_cuGetProcAddress_v2(name, function, version, flags, nullptr);
  if (result != CUDA_SUCCESS) return result;
  return function != nullptr && *function != nullptr ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

}  // namespace

void charge_calls(gpu::DriverTable* table, Memory* memory, int log) {
  g_log.store(log);
  g_memory.store(memory, std::memory_order_release);
  // What the driver lacks stays away.
#define TENDRIL_CHARGED_REPLACE(symbol) \
  if (table->symbol != nullptr) table->symbol = charged_##symbol;
#define TENDRIL_REFUSED_REPLACE(symbol) \
  if (table->symbol != nullptr) table->symbol = Refusal<symbol##_t>::answer<&kNameOf_##symbol>;
  TENDRIL_CHARGED_CALLS(TENDRIL_CHARGED_REPLACE)
  TENDRIL_REFUSED_CALLS(TENDRIL_REFUSED_REPLACE)
#undef TENDRIL_CHARGED_REPLACE
#undef TENDRIL_REFUSED_REPLACE
}

uint64_t calls_seen() { return g_seen.load(std::memory_order_relaxed); }

}  // namespace tendril::worker::nccl
