// SPDX-License-Identifier: Apache-2.0
// Launching kernels: the checks that a launch makes at once, the packing of parameters, and the run
// on a pool thread.

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "softgpu/driver/code/module.h"
#include "softgpu/driver/code/texture.h"
#include "softgpu/driver/config.h"
#include "softgpu/driver/device/device.h"
#include "softgpu/driver/entry.h"
#include "softgpu/driver/graph/conditional.h"
#include "softgpu/driver/graph/graph_run.h"
#include "softgpu/driver/memory/memory_map.h"
#include "softgpu/driver/stream/clock.h"
#include "softgpu/driver/stream/device_work.h"

namespace tendril::softgpu {
namespace {

// Codes as measured on an H200.
CUresult code_of(Fault fault) {
  switch (fault) {
    case Fault::kNone:
      return CUDA_SUCCESS;
    case Fault::kIllegalAddress:
      return CUDA_ERROR_ILLEGAL_ADDRESS;
    case Fault::kMisaligned:
      return CUDA_ERROR_MISALIGNED_ADDRESS;
    case Fault::kIllegalInstruction:
      return CUDA_ERROR_ILLEGAL_INSTRUCTION;
    case Fault::kTrap:
      return CUDA_ERROR_LAUNCH_FAILED;
    case Fault::kAssert:
      return CUDA_ERROR_ASSERT;
    case Fault::kTimeout:
      return CUDA_ERROR_LAUNCH_TIMEOUT;
    case Fault::kUnsupported:
      return CUDA_ERROR_ILLEGAL_INSTRUCTION;
    case Fault::kCancelled:
      return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  }
  return CUDA_ERROR_UNKNOWN;
}

CUresult check_shape(const KernelInfo& info, const FunctionState& state, Dim3 grid, Dim3 block,
                     unsigned shared_bytes) {
  auto limit = [](int attribute) {
    return static_cast<uint64_t>(attribute_of(0, static_cast<CUdevice_attribute>(attribute)));
  };
  uint64_t threads = static_cast<uint64_t>(block.x) * block.y * block.z;
  if (grid.x == 0 || grid.y == 0 || grid.z == 0 || block.x == 0 || block.y == 0 || block.z == 0)
    return CUDA_ERROR_INVALID_VALUE;
  if (block.x > limit(2) || block.y > limit(3) || block.z > limit(4) || grid.x > limit(5) ||
      grid.y > limit(6) || grid.z > limit(7))
    return CUDA_ERROR_INVALID_VALUE;
  if (threads > limit(1)) return CUDA_ERROR_INVALID_VALUE;
  if (info.max_threads_per_block != 0 && threads > info.max_threads_per_block)
    return CUDA_ERROR_INVALID_VALUE;
  if (shared_bytes > static_cast<unsigned>(dynamic_shared_limit(info, state)))
    return CUDA_ERROR_INVALID_VALUE;
  return CUDA_SUCCESS;
}

// Clusters of more than this need the function's permission. Codes as measured on an H200.
constexpr uint64_t kPortableClusterBlocks = 8;

CUresult check_cluster(CUfunction f, const CUlaunchConfig& config,
                       const CUlaunchAttributeValue& value) {
  const auto& size = value.clusterDim;
  uint64_t blocks = static_cast<uint64_t>(size.x) * size.y * size.z;
  if (blocks == 0) return CUDA_ERROR_INVALID_VALUE;
  int may_be_large = 0;
  if (CUresult bad = soft_cuFuncGetAttribute(
          &may_be_large, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, f))
    return bad;
  if (blocks > kPortableClusterBlocks && may_be_large == 0) return CUDA_ERROR_INVALID_CLUSTER_SIZE;
  if (config.gridDimX % size.x != 0 || config.gridDimY % size.y != 0 ||
      config.gridDimZ % size.z != 0)
    return CUDA_ERROR_INVALID_CLUSTER_SIZE;
  // The device says it has no clusters.
  return blocks > 1 ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
}

CUresult pack_extra(const KernelInfo& info, void** extra, std::vector<uint8_t>* out) {
  const void* buffer = nullptr;
  size_t bytes = 0;
  for (size_t i = 0; extra[i] != CU_LAUNCH_PARAM_END; i += 2) {
    if (i > 8) return CUDA_ERROR_INVALID_VALUE;
    if (extra[i] == CU_LAUNCH_PARAM_BUFFER_POINTER) {
      buffer = extra[i + 1];
    } else if (extra[i] == CU_LAUNCH_PARAM_BUFFER_SIZE) {
      if (extra[i + 1] == nullptr) return CUDA_ERROR_INVALID_VALUE;
      bytes = *static_cast<const size_t*>(extra[i + 1]);
    } else {
      return CUDA_ERROR_INVALID_VALUE;
    }
  }
  if (info.param_bytes == 0) return CUDA_SUCCESS;
  // Programs round the size up to the alignment of the whole buffer, so a larger size is accepted.
  if (buffer == nullptr || bytes < info.param_bytes) return CUDA_ERROR_INVALID_VALUE;
  memcpy(out->data(), buffer, info.param_bytes);
  return CUDA_SUCCESS;
}

CUresult pack_params(const KernelInfo& info, void** params, void** extra,
                     std::vector<uint8_t>* out) {
  out->assign(info.param_bytes, 0);
  if (params != nullptr && extra != nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (extra != nullptr) return pack_extra(info, extra, out);
  if (info.params.empty()) return CUDA_SUCCESS;
  if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < info.params.size(); ++i) {
    const ParamInfo& param = info.params[i];
    if (param.size == 0) continue;
    if (params[i] == nullptr || param.offset > out->size() ||
        param.size > out->size() - param.offset)
      return CUDA_ERROR_INVALID_VALUE;
    memcpy(out->data() + param.offset, params[i], param.size);
  }
  return CUDA_SUCCESS;
}

// CUDA_LAUNCH_BLOCKING, which drivers read once.
bool launch_blocking() {
  static const bool blocking = [] {
    const char* wish = getenv("CUDA_LAUNCH_BLOCKING");
    return wish != nullptr && *wish != 0 && strcmp(wish, "0") != 0;
  }();
  return blocking;
}

CUresult launch(CUfunction f, Dim3 grid, Dim3 block, unsigned shared_bytes, CUstream handle,
                void** params, void** extra, bool cooperative) {
  StreamPtr stream;
  ContextPtr context;
  if (CUresult bad = find_stream(handle, &stream, &context)) return bad;
  std::shared_ptr<KernelWork> work;
  if (CUresult bad =
          make_launch(context, f, grid, block, shared_bytes, params, extra, cooperative, &work))
    return bad;
  SubmitOptions options;
  options.wait = launch_blocking();
  return submit_work(stream, context, std::move(work), options);
}

}  // namespace

CUresult make_launch(const ContextPtr& context, CUfunction f, Dim3 grid, Dim3 block,
                     unsigned shared_bytes, void** params, void** extra, bool cooperative,
                     std::shared_ptr<KernelWork>* out) {
  auto work = std::make_shared<KernelWork>();
  if (CUresult bad = find_function(f, context, &work->function)) return bad;
  const KernelInfo& info = work->function->info();
  if (CUresult bad = check_shape(info, *work->function->state, grid, block, shared_bytes))
    return bad;
  if (cooperative) {
    uint64_t blocks = static_cast<uint64_t>(grid.x) * grid.y * grid.z;
    const int threads = static_cast<int>(block.x * block.y * block.z);
    const uint64_t room =
        static_cast<uint64_t>(blocks_per_sm(*work->function, threads, shared_bytes)) *
        config().sm_count;
    if (blocks > room) return CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
  }
  if (CUresult bad = pack_params(info, params, extra, &work->params)) return bad;
  if (!context->reserve_local(info.local_bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  const ContextPtr own = info.prints ? contexts().get(work->function->module->context) : nullptr;
  if (info.prints) (own ? own : context)->may_print = true;
  work->grid = grid;
  work->block = block;
  work->shared_bytes = shared_bytes;
  work->cooperative = cooperative;
  *out = std::move(work);
  return CUDA_SUCCESS;
}

// Runs the grid on this machine's processors.
LaunchResult KernelWork::execute(Context& context) {
  const Module& module = *function->module;
  LaunchRequest request;
  request.program = module.program.get();
  request.kernel_index = function->index;
  request.grid = grid;
  request.block = block;
  request.dynamic_shared_bytes = shared_bytes;
  request.params = params.data();
  request.global_addresses = module.global_addresses.data();
  request.cooperative = cooperative;
  request.sm_count = config().sm_count;
  request.step_budget = faults().step_budget;
  request.shuffle_seed = faults().shuffle_seed;
  request.cancel = context.cancel();
  request.set_condition = &set_condition;
  if (GraphRun* run = GraphRun::current())
    request.launch_graph = [run](uint64_t exec, uint64_t target) {
      return run->launch(exec, target);
    };
  if (config().mode != TimeMode::kReal)
    request.clock_ns = static_cast<uint64_t>(Clock::instance().now_ns());
  request.print = [&context](std::string_view text) { context.print(text); };
  if (function->info().uses_heap) request.heap = context.heap();
  std::shared_lock running(MemoryMap::instance().execution());
  std::shared_ptr<const MemoryView> view = MemoryMap::instance().view(context.device);
  request.memory = view.get();
  ImageSnapshot images;
  if (function->info().uses_images) images = image_snapshot();
  request.images = &images.table;
  return run_grid(request);
}

// A graph's node runs in its function's context, whatever stream the graph is launched into.
CUresult KernelWork::run(Context& launching) {
  const ContextPtr own = contexts().get(function->module->context);
  Context& context = own ? *own : launching;
  const std::string& name = function->info().name;
  DeviceWork device(context, Engine::kCompute);
  if (device.refusal() != CUDA_SUCCESS) return device.refusal();
  if (device.hangs(name)) return device.hang();
  LaunchResult result;
  if (device.executes()) result = execute(context);
  device.took_kernel(name, grid, result);
  if (result.fault != Fault::kNone && result.fault != Fault::kCancelled)
    fprintf(stderr, "softgpu: kernel %s: %s\n", name.c_str(), result.message.c_str());
  return code_of(result.fault);
}

SOFT(cuLaunchKernel)
(CUfunction f, unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ,
 unsigned int blockDimX, unsigned int blockDimY, unsigned int blockDimZ,
 unsigned int sharedMemBytes, CUstream hStream, void** kernelParams, void** extra) {
  return launch(f, {gridDimX, gridDimY, gridDimZ}, {blockDimX, blockDimY, blockDimZ},
                sharedMemBytes, hStream, kernelParams, extra, false);
}

SOFT(cuLaunchCooperativeKernel)
(CUfunction f, unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ,
 unsigned int blockDimX, unsigned int blockDimY, unsigned int blockDimZ,
 unsigned int sharedMemBytes, CUstream hStream, void** kernelParams) {
  return launch(f, {gridDimX, gridDimY, gridDimZ}, {blockDimX, blockDimY, blockDimZ},
                sharedMemBytes, hStream, kernelParams, nullptr, true);
}

SOFT(cuLaunchKernelEx)
(const CUlaunchConfig* config, CUfunction f, void** kernelParams, void** extra) {
  if (config == nullptr || (config->numAttrs != 0 && config->attrs == nullptr) ||
      config->numAttrs > 64)
    return CUDA_ERROR_INVALID_VALUE;
  bool cooperative = false;
  EventPtr at_end;
  for (unsigned i = 0; i < config->numAttrs; ++i) {
    const CUlaunchAttribute& attribute = config->attrs[i];
    switch (attribute.id) {
      case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
        cooperative = attribute.value.cooperative != 0;
        break;
      case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
        if (CUresult bad = check_cluster(f, *config, attribute.value)) return bad;
        break;
      case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT:
      case CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT:
        check_live(attribute.value.launchCompletionEvent.event);
        at_end = events().get(attribute.value.launchCompletionEvent.event);
        if (!at_end) return CUDA_ERROR_INVALID_HANDLE;
        break;
      case CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE:
        if (attribute.value.deviceUpdatableKernelNode.deviceUpdatable != 0)
          return CUDA_ERROR_NOT_SUPPORTED;
        break;
      default:  // hints
        if (static_cast<unsigned>(attribute.id) >= CU_LAUNCH_ATTRIBUTE_MAX)
          return CUDA_ERROR_INVALID_VALUE;
    }
  }
  CUresult result =
      launch(f, {config->gridDimX, config->gridDimY, config->gridDimZ},
             {config->blockDimX, config->blockDimY, config->blockDimZ}, config->sharedMemBytes,
             config->hStream, kernelParams, extra, cooperative);
  // For these events later than asked for is always allowed.
  if (result == CUDA_SUCCESS && at_end)
    return soft_cuEventRecordWithFlags(at_end->handle, config->hStream, 0);
  return result;
}

}  // namespace tendril::softgpu
