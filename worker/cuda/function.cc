// SPDX-License-Identifier: Apache-2.0
// Handlers of api/cuda/function.spec: launches, function facts, occupancy. This is the hot path of
// the worker: a launch makes no allocation.
#include "worker/cuda/function.h"

#include <cstring>

#include "api/cuda_handlers.gen.h"
#include "worker/cuda/executor/scope.h"
#include "worker/cuda/memory/context_memory.h"

namespace tendril::worker::cuda {

using wire::cuda::LaunchShape;
namespace {

constexpr size_t kParamsMax = 4096;
constexpr unsigned kLaunchAttributesMax = 32;

// Fills `pointers` with the addresses of the packed values. False: the client sent fewer bytes than
// the function takes.
bool point_at(const Layout& layout, const wire::Bytes& params, void** pointers) {
  if (params.count < layout.bytes) return false;
  for (const uint32_t offset : layout.offsets)
    *pointers++ = const_cast<uint8_t*>(params.data) + offset;
  return true;
}

CUresult attributes_of(Scope& scope, const wire::Bytes& bytes, CUlaunchAttribute* out,
                       unsigned* count) {
  *count = static_cast<unsigned>(bytes.count / sizeof(CUlaunchAttribute));
  if (bytes.count % sizeof(CUlaunchAttribute) != 0 || *count > kLaunchAttributesMax)
    return CUDA_ERROR_INVALID_VALUE;
  std::memcpy(static_cast<void*>(out), bytes.data, bytes.count);
  for (unsigned i = 0; i < *count; ++i) {
    CUevent* event = nullptr;
    if (out[i].id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT)
      event = &out[i].value.programmaticEvent.event;
    if (out[i].id == CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT)
      event = &out[i].value.launchCompletionEvent.event;
    if (event != nullptr)
      *event = scope.get<CUevent>(Kind::kEvent, reinterpret_cast<uint64_t>(*event));
    if (out[i].id == CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE)
      return CUDA_ERROR_NOT_SUPPORTED;
  }
  return scope.ok() ? CUDA_SUCCESS : scope.error();
}

// The size of a launch, for the gate.
uint64_t threads_of(const LaunchShape& shape) {
  const uint32_t *grid = shape.grid, *block = shape.block;
  return uint64_t{grid[0]} * grid[1] * grid[2] * (uint64_t{block[0]} * block[1] * block[2]);
}

CUlaunchConfig config_of(const LaunchShape& shape, CUstream stream, CUlaunchAttribute* attributes,
                         unsigned count) {
  CUlaunchConfig config;
  std::memset(&config, 0, sizeof config);
  config.gridDimX = shape.grid[0];
  config.gridDimY = shape.grid[1];
  config.gridDimZ = shape.grid[2];
  config.blockDimX = shape.block[0];
  config.blockDimY = shape.block[1];
  config.blockDimZ = shape.block[2];
  config.sharedMemBytes = shape.shared_bytes;
  config.hStream = stream;
  config.attrs = attributes;
  config.numAttrs = count;
  return config;
}

}  // namespace

CUfunction find_function(Executor& executor, uint64_t id, bool* kernel) {
  *kernel = api::cuda::id_kind(id) == Kind::kKernel;
  return static_cast<CUfunction>(
      executor.objects().find(*kernel ? Kind::kKernel : Kind::kFunction, id));
}

void Layouts::forget(uint64_t id) {
  const uint32_t index = api::id_index(id) & ~api::kWorkerBit;
  for (std::vector<std::unique_ptr<Layout>>& table : tables_) {
    if (index < table.size() && table[index] != nullptr && table[index]->id == id)
      table[index] = nullptr;
  }
  if (index >= kDense) sparse_.erase(id);
}

const Layout* Layouts::find_sparse(Executor& executor, uint64_t id, CUfunction function,
                                   bool kernel, CUresult* error) {
  const auto it = sparse_.find(id);
  if (it != sparse_.end() && it->second->slot == executor.slot()) return it->second.get();
  return ask(executor, id, function, kernel, error);
}

const Layout* Layouts::ask(Executor& executor, uint64_t id, CUfunction function, bool kernel,
                           CUresult* error) {
  std::vector<std::unique_ptr<Layout>>& table = tables_[kernel ? 1 : 0];
  const uint32_t index = api::id_index(id) & ~api::kWorkerBit;
  if (!executor.context_memory().use_function(function, kernel)) {
    *error = CUDA_ERROR_OUT_OF_MEMORY;
    return nullptr;
  }
  auto layout = std::make_unique<Layout>();
  layout->id = id;
  layout->slot = executor.slot();
  gpu::Driver& driver = executor.driver();
  for (size_t i = 0; i < kParamsMax; ++i) {
    size_t offset = 0, size = 0;
    const CUresult result = kernel ? driver.cuKernelGetParamInfo(
                                         reinterpret_cast<CUkernel>(function), i, &offset, &size)
                                   : driver.cuFuncGetParamInfo(function, i, &offset, &size);
    if (result == CUDA_ERROR_INVALID_VALUE) break;  // past the last parameter
    if (result != CUDA_SUCCESS) {
      *error = result;
      return nullptr;
    }
    layout->offsets.push_back(static_cast<uint32_t>(offset));
    layout->sizes.push_back(static_cast<uint32_t>(size));
    if (offset + size > layout->bytes) layout->bytes = static_cast<uint32_t>(offset + size);
  }
  if (index >= kDense) {
    sparse_[id] = std::move(layout);
    return sparse_[id].get();
  }
  if (index >= table.size()) table.resize(index + 1 + index / 2);
  table[index] = std::move(layout);
  return table[index].get();
}

namespace {

// The driver's launch evicts most of our code and data from the processor's caches. So launches
// that have arrived already are decoded several at a time, and then made in a loop of a few
// instructions. bench/executor_bench.cc measures this; docs/performance.md explains it.
constexpr size_t kLaunchesAhead = 32;
constexpr size_t kPointersAhead = 512;

struct Launch {
  uint64_t id;  // of the function
  CUfunction function;
  CUstream stream;
  LaunchShape shape;
  void** pointers;
  CUresult error;  // why it is not made
};

CUresult make_one(gpu::Driver& driver, const Launch& launch) {
  if (launch.error != CUDA_SUCCESS) return launch.error;
  const uint32_t *grid = launch.shape.grid, *block = launch.shape.block;
  const uint32_t shared_bytes = launch.shape.shared_bytes;
  if (launch.shape.cooperative != 0) {
    return driver.cuLaunchCooperativeKernel(launch.function, grid[0], grid[1], grid[2], block[0],
                                            block[1], block[2], shared_bytes, launch.stream,
                                            launch.pointers);
  }
  return driver.cuLaunchKernel(launch.function, grid[0], grid[1], grid[2], block[0], block[1],
                               block[2], shared_bytes, launch.stream, launch.pointers, nullptr);
}

class Launches {
 public:
  explicit Launches(Executor& executor) : w_(executor) {}
  void add(const wire::cuda::launch_kernel_request& request) {
    if (count_ == kLaunchesAhead || pointers_used_ > kPointersAhead) make();
    Launch& launch = launches_[count_++];
    launch.error = prepare(request, &launch);
  }
  // Makes the launches. Returns the result of the first. The context remembers any error.
  CUresult make() {
    gpu::Driver& driver = w_.driver();
    const bool gated = !w_.gate().open(w_.slot());
    for (size_t i = 0; i < count_;) {
      const size_t end = gated ? pass_gate(i) : count_;
      for (; i < end; ++i) {
        const CUresult result = make_one(driver, launches_[i]);
        w_.contexts().defer(result);
        if (first_ == CUDA_ERROR_NOT_READY) first_ = result;
      }
    }
    count_ = pointers_used_ = 0;
    return first_;
  }

 private:
  CUresult prepare(const wire::cuda::launch_kernel_request& request, Launch* launch) {
    bool kernel = false;
    launch->id = request.function;
    launch->function = find_function(w_, request.function, &kernel);
    if (launch->function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    launch->shape = request.shape;
    if (stream_ == nullptr ||
        request.stream != stream_id_) {  // usually it is the stream of the previous launch
      Scope scope(w_);
      stream_ = scope.stream(request.stream);
      stream_id_ = request.stream;
      if (!scope.ok()) return scope.error();
    }
    launch->stream = stream_;
    CUresult error = CUDA_SUCCESS;
    const Layout* layout =
        w_.layouts().find(w_, request.function, launch->function, kernel, &error);
    if (layout == nullptr) return error;
    launch->pointers = pointers_ + pointers_used_;
    if (!point_at(*layout, request.params, launch->pointers)) return CUDA_ERROR_INVALID_VALUE;
    pointers_used_ += layout->offsets.size();
    return CUDA_SUCCESS;
  }
  // Waits until the launch `first` may be made. Returns the end of the range that may be made with
  // it.
  size_t pass_gate(size_t first) {
    Launch& next = launches_[first];
    const bool made = next.error == CUDA_SUCCESS;
    if (made && !w_.gate().may_work(w_.context(), next.stream, next.id, threads_of(next.shape)))
      next.error = CUDA_ERROR_UNKNOWN;
    size_t end = first + 1;
    for (; end < count_; ++end) {
      const Launch& more = launches_[end];
      const bool passes = more.error == CUDA_SUCCESS;
      if (passes &&
          !w_.gate().may_work_at_once(w_.context(), more.stream, more.id, threads_of(more.shape)))
        break;
    }
    return end;
  }
  Executor& w_;
  CUresult first_ = CUDA_ERROR_NOT_READY;  // no launch gives this result
  size_t count_ = 0, pointers_used_ = 0;
  uint64_t stream_id_ = 0;
  CUstream stream_ = nullptr;  // by that id
  Launch launches_[kLaunchesAhead];
  void* pointers_[kPointersAhead + kParamsMax];
};

}  // namespace

CUresult handle(Executor& executor, const wire::cuda::launch_kernel_request& request) {
  Launches launches(executor);
  launches.add(request);
  if (!executor.may_look_ahead()) return launches.make();
  executor.service().flush();  // replies do not wait for these
  session::Call more[kLaunchesAhead - 1];
  const size_t count = executor.service().take_alike(executor.call(), more, kLaunchesAhead - 1);
  wire::count_alone(executor.service().counts().launches, count);
  for (size_t i = 0; i < count; ++i) {
    wire::cuda::launch_kernel_request another;
    if (!wire::read_message(another, more[i].body, more[i].bytes)) {
      executor.refuse(more[i]);
      break;
    }
    launches.add(another);
  }
  return launches.make();
}

namespace {

// A launch with attributes. The driver takes the parameters by pointers to each, or packed and
// described by `extra`. Inlined, as a launch of either kind must cost no more than one written out;
// its arrays are too large for the compiler to do that by itself.
template <typename Request>
[[gnu::always_inline]] inline CUresult launch_with_attributes(Executor& executor,
                                                              const Request& request,
                                                              void** pointers, void** extra) {
  Scope scope(executor);
  bool kernel = false;
  CUfunction function = find_function(executor, request.function, &kernel);
  if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  CUstream stream = scope.stream(request.stream);
  CUlaunchAttribute attributes[kLaunchAttributesMax];
  unsigned count = 0;
  const CUresult translated = attributes_of(scope, request.attributes, attributes, &count);
  if (translated != CUDA_SUCCESS) return translated;
  if (extra == nullptr) {
    CUresult error = CUDA_SUCCESS;
    const Layout* layout =
        executor.layouts().find(executor, request.function, function, kernel, &error);
    if (layout == nullptr) return error;
    if (!point_at(*layout, request.params, pointers)) return CUDA_ERROR_INVALID_VALUE;
  } else if (!executor.context_memory().may_launch(request.function, function, kernel)) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  const CUlaunchConfig config = config_of(request.shape, stream, attributes, count);
  if (!executor.gate().may_work(executor.context(), stream, request.function,
                                threads_of(request.shape)))
    return CUDA_ERROR_UNKNOWN;
  return executor.driver().cuLaunchKernelEx(&config, function, pointers, extra);
}

}  // namespace

CUresult handle(Executor& executor, const wire::cuda::launch_kernel_ex_request& request) {
  void* pointers[kParamsMax];
  return launch_with_attributes(executor, request, pointers, nullptr);
}

CUresult handle(Executor& executor, const wire::cuda::launch_kernel_buffer_request& request) {
  size_t bytes = request.params.count;
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, const_cast<uint8_t*>(request.params.data),
                   CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_END};
  return launch_with_attributes(executor, request, nullptr, extra);
}

CUresult handle(Executor& executor, const wire::cuda::function_info_request& request,
                wire::cuda::function_info_reply& reply) {
  bool kernel = false;
  CUfunction function = find_function(executor, request.function, &kernel);
  if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (executor.context() != nullptr) {  // else another context may be current in the driver, and
                                        // the layout would be for that one
    CUresult error = CUDA_SUCCESS;
    const Layout* layout =
        executor.layouts().find(executor, request.function, function, kernel, &error);
    if (layout == nullptr) return error;
    reply.offsets = {layout->offsets.data(), layout->offsets.size()};
    reply.sizes = {layout->sizes.data(), layout->sizes.size()};
    reply.laid_out = 1;
  }
  Scope scope(executor);
  int32_t* attributes = scope.scratch<int32_t>(CU_FUNC_ATTRIBUTE_MAX);
  if (!scope.ok()) return scope.error();
  for (int i = 0; i < CU_FUNC_ATTRIBUTE_MAX; ++i) {
    const auto which = static_cast<CUfunction_attribute>(i);
    const CUresult result =
        kernel ? executor.driver().cuKernelGetAttribute(&attributes[i], which,
                                                        reinterpret_cast<CUkernel>(function),
                                                        executor.device_of(request.slot))
               : executor.driver().cuFuncGetAttribute(&attributes[i], which, function);
    // An older driver lacks newer attributes. The first ones must be there.
    if (result != CUDA_SUCCESS && i <= CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES)
      return result;
  }
  reply.attributes = {attributes, CU_FUNC_ATTRIBUTE_MAX};
  return CUDA_SUCCESS;
}

CUresult handle(Executor& executor, const wire::cuda::function_set_attribute_request& request,
                wire::cuda::function_set_attribute_reply&) {
  bool kernel = false;
  CUfunction function = find_function(executor, request.function, &kernel);
  if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const auto which = static_cast<CUfunction_attribute>(request.attribute);
  if (!kernel) return executor.driver().cuFuncSetAttribute(function, which, request.value);
  return executor.driver().cuKernelSetAttribute(
      which, request.value, reinterpret_cast<CUkernel>(function), executor.device_of(request.slot));
}

CUresult handle(Executor& executor, const wire::cuda::function_set_cache_config_request& request) {
  bool kernel = false;
  CUfunction function = find_function(executor, request.function, &kernel);
  if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const auto config = static_cast<CUfunc_cache>(request.config);
  if (!kernel) return executor.driver().cuFuncSetCacheConfig(function, config);
  return executor.driver().cuKernelSetCacheConfig(reinterpret_cast<CUkernel>(function), config,
                                                  executor.device_of(request.slot));
}

CUresult handle(Executor& executor, const wire::cuda::occupancy_blocks_request& request,
                wire::cuda::occupancy_blocks_reply& reply) {
  bool kernel = false;
  CUfunction function = find_function(executor, request.function, &kernel);
  if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return executor.driver().cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
      &reply.blocks, function, static_cast<int>(request.block_size), request.shared, request.flags);
}

CUresult handle(Executor& executor, const wire::cuda::occupancy_shared_request& request,
                wire::cuda::occupancy_shared_reply& reply) {
  bool kernel = false;
  CUfunction function = find_function(executor, request.function, &kernel);
  if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  size_t bytes = 0;
  const CUresult result = executor.driver().cuOccupancyAvailableDynamicSMemPerBlock(
      &bytes, function, static_cast<int>(request.blocks), static_cast<int>(request.block_size));
  reply.bytes = bytes;
  return result;
}

CUresult handle(Executor& executor, const wire::cuda::occupancy_clusters_request& request,
                wire::cuda::occupancy_clusters_reply& reply) {
  Scope scope(executor);
  bool kernel = false;
  CUfunction function = find_function(executor, request.function, &kernel);
  if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  CUlaunchAttribute attributes[kLaunchAttributesMax];
  unsigned count = 0;
  const CUresult translated = attributes_of(scope, request.attributes, attributes, &count);
  if (translated != CUDA_SUCCESS) return translated;
  const CUlaunchConfig config = config_of(request.shape, nullptr, attributes, count);
  if (request.question == wire::cuda::ClusterQuestion::kActiveClusters)
    return executor.driver().cuOccupancyMaxActiveClusters(&reply.value, function, &config);
  return executor.driver().cuOccupancyMaxPotentialClusterSize(&reply.value, function, &config);
}

}  // namespace tendril::worker::cuda
