// SPDX-License-Identifier: Apache-2.0
// Launches: the hot path. A launch is one record without reply. Errors that CUDA reports at once
// are found here, from cached attributes. A launch makes no allocation and no system call, and
// takes only the lane's lock. The parameters are copied straight into the lane. Only the driver can
// judge a few launches; these wait for its answer. With CUDA_LAUNCH_BLOCKING every launch waits for
// its end.
#include <string.h>

#include "client/cuda/code/function.h"
#include "client/cuda/memory/memory.h"
#include "client/cuda/memory/mirror.h"
#include "client/cuda/stream/capture.h"

namespace tendril::client::cuda {

bool extra_buffer(void** extra, const void** buffer, size_t* bytes) {
  *buffer = nullptr;
  const size_t* size = nullptr;
  for (int i = 0; extra[i] != CU_LAUNCH_PARAM_END; i += 2) {
    if (extra[i] == CU_LAUNCH_PARAM_BUFFER_POINTER)
      *buffer = extra[i + 1];
    else if (extra[i] == CU_LAUNCH_PARAM_BUFFER_SIZE)
      size = static_cast<const size_t*>(extra[i + 1]);
    else
      return false;
  }
  *bytes = size != nullptr ? *size : 0;
  return *buffer != nullptr && size != nullptr;
}

namespace {

using wire::cuda::LaunchShape;

CUresult check_shape(const Device* device, const FunctionInfo* info, const LaunchShape& shape) {
  for (int i = 0; i < 3; ++i) {
    const auto grid_limit =
        static_cast<uint32_t>(device->attributes[CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X + i]);
    const auto block_limit =
        static_cast<uint32_t>(device->attributes[CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X + i]);
    if (shape.grid[i] == 0 || shape.grid[i] > grid_limit || shape.block[i] == 0 ||
        shape.block[i] > block_limit)
      return CUDA_ERROR_INVALID_VALUE;
  }
  const uint64_t threads = uint64_t{shape.block[0]} * shape.block[1] * shape.block[2];
  if (threads >
      static_cast<uint64_t>(device->attributes[CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK]))
    return CUDA_ERROR_INVALID_VALUE;
  if (threads > static_cast<uint64_t>(info->attributes[CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK])) {
    // Two reasons have two codes: too few registers, and the function's launch bounds (measured on
    // an H200).
    const uint64_t registers =
        threads * static_cast<uint64_t>(info->attributes[CU_FUNC_ATTRIBUTE_NUM_REGS]);
    const auto most =
        static_cast<uint64_t>(device->attributes[CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK]);
    return registers > most ? CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES : CUDA_ERROR_INVALID_VALUE;
  }
  if (shape.shared_bytes >
      static_cast<uint32_t>(info->attributes[CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES]))
    return CUDA_ERROR_INVALID_VALUE;
  return CUDA_SUCCESS;
}

// Attributes of cuLaunchKernelEx with the events inside turned into wire ids. Bounded by what CUDA
// defines.
constexpr unsigned kLaunchAttributesMax = 32;

CUresult translate_attributes(const CUlaunchAttribute* from, unsigned count,
                              CUlaunchAttribute* to) {
  for (unsigned i = 0; i < count; ++i) {
    to[i] = from[i];
    CUevent* event = nullptr;
    if (from[i].id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT)
      event = &to[i].value.programmaticEvent.event;
    if (from[i].id == CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT)
      event = &to[i].value.launchCompletionEvent.event;
    if (event == nullptr) continue;
    Event* e = process()->events.find(Kind::kEvent, handle_value(*event));
    if (e == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    e->recorded.store(Event::kUntold);
    *event = reinterpret_cast<CUevent>(e->wire_id);
  }
  return CUDA_SUCCESS;
}

// Clusters may have this many blocks on every device that has clusters; a function must be allowed
// more.
constexpr uint64_t kPortableClusterBlocks = 8;

CUresult check_cluster(const FunctionInfo* info, const LaunchShape& shape,
                       const uint32_t* cluster) {
  const uint64_t blocks = uint64_t{cluster[0]} * cluster[1] * cluster[2];
  if (blocks > kPortableClusterBlocks &&
      info->attributes[CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED] == 0)
    return CUDA_ERROR_INVALID_CLUSTER_SIZE;
  for (int i = 0; i < 3; ++i) {
    if (shape.grid[i] % cluster[i] != 0) return CUDA_ERROR_INVALID_CLUSTER_SIZE;
  }
  return CUDA_SUCCESS;
}

struct Size {
  uint32_t words[3] = {};
  bool any() const { return words[0] != 0 && words[1] != 0 && words[2] != 0; }
  bool divides(const Size& larger) const {
    for (int i = 0; i < 3; ++i) {
      if (larger.words[i] % words[i] != 0) return false;
    }
    return true;
  }
  bool operator==(const Size& other) const { return memcmp(words, other.words, sizeof words) == 0; }
};

// Checks launch attributes, and what the function requires of them. *ask: only the driver can judge
// this launch. That costs a round trip, so launches that programs make again and again should not
// be among them.
CUresult check_attributes(const Device* device, const FunctionInfo* info, const LaunchShape& shape,
                          const CUlaunchAttribute* attributes, unsigned count, bool* cooperative,
                          bool* ask) {
  Size required, preferred;
  for (int i = 0; i < 3; ++i)
    required.words[i] =
        static_cast<uint32_t>(info->attributes[CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH + i]);
  Size cluster = required;
  for (unsigned i = 0; i < count; ++i) {
    const CUlaunchAttributeValue& value = attributes[i].value;
    switch (attributes[i].id) {
      case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
        cluster = {{value.clusterDim.x, value.clusterDim.y, value.clusterDim.z}};
        *ask |= !cluster.any() || (required.any() && !(cluster == required));
        break;
      case CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION:
        preferred = {{value.preferredClusterDim.x, value.preferredClusterDim.y,
                      value.preferredClusterDim.z}};
        *ask |= !preferred.any();
        break;
      case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
        *cooperative |= value.cooperative != 0;
        break;
      case CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE:
        *ask = true;
        break;
      default:
        *ask |= attributes[i].id < 0 || attributes[i].id >= CU_LAUNCH_ATTRIBUTE_MAX;
    }
  }
  if (!cluster.any()) {
    *ask |= preferred.any() || info->attributes[CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET] != 0;
    return CUDA_SUCCESS;
  }
  *ask |= device->attributes[CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH] == 0 ||
          (preferred.any() && !cluster.divides(preferred));
  return check_cluster(info, shape, cluster.words);
}

struct Target {
  Context* context;
  Stream* stream;
  Function* function;
  const FunctionInfo* info;
  uint64_t function_id;
  uint64_t stream_id;
};

CUresult resolve(CUfunction function, CUstream hStream, Target* target) {
  TENDRIL_TRY(require_context(&target->context));
  target->function = find_function(function);
  if (__builtin_expect(target->function == nullptr, 0)) return CUDA_ERROR_INVALID_HANDLE;
  TENDRIL_TRY(require_stream(target->context, hStream, &target->stream));
  const Stream* stream = target->stream;
  if (stream != nullptr) {
    if (stream->context != target->context && stream->session != target->context->session)
      return CUDA_ERROR_INVALID_HANDLE;
    target->context = stream->context;
  }
  TENDRIL_TRY(check_work(target->context, target->stream));
  target->stream_id = stream_wire_id(stream);
  CUresult error = CUDA_SUCCESS;
  target->info = function_info(target->context, target->function, &error);
  if (__builtin_expect(target->info == nullptr, 0)) return error;
  target->function_id = function_wire_id(target->function, target->context->session, &error);
  return target->function_id != 0 ? CUDA_SUCCESS : error;
}

// The record itself. The params field is laid out by hand, so the values go straight from the
// program into the lane.
template <typename Request>
CUresult send(const Target& target, Request& request, void** values, const void* buffer,
              size_t buffer_bytes) {
  const FunctionInfo* info = target.info;
  const uint64_t param_bytes = buffer != nullptr ? buffer_bytes : info->param_bytes;
  request.params = {nullptr, 0};
  const uint64_t fixed = wire::message_bytes(request);
  session::Lane* lane = target.context->session->lane.get();
  if (fixed + param_bytes + 8 > wire::kCallBytesMax - sizeof(wire::CallHeader))
    return CUDA_ERROR_INVALID_VALUE;
  uint8_t* body = lane->begin(static_cast<uint16_t>(Request::kOp), target.context->index,
                              static_cast<uint32_t>(fixed + wire::padded(param_bytes)), 0);
  if (__builtin_expect(body == nullptr, 0)) return Session::lost_result();
  wire::write_message(request, body);
  // `params` is the last field of every launch record: its count is the last word written, the
  // bytes follow.
  uint8_t* at = body + fixed;
  memcpy(at - 8, &param_bytes, 8);
  if (param_bytes % 8 != 0 || buffer == nullptr) memset(at, 0, wire::padded(param_bytes));
  if (buffer != nullptr) {
    memcpy(at, buffer, buffer_bytes);
  } else {
    const size_t count = info->offsets.size();
    for (size_t i = 0; i < count; ++i) memcpy(at + info->offsets[i], values[i], info->sizes[i]);
  }
  lane->commit();
  tally_bytes(fixed + wire::padded(param_bytes));
  return CUDA_SUCCESS;
}

// All blocks of a cooperative launch must be resident at once.
CUresult check_cooperative(CUfunction function, const Target& target, const LaunchShape& shape) {
  const uint32_t *grid = shape.grid, *block = shape.block;
  int blocks = 0;
  TENDRIL_TRY(cuOccupancyMaxActiveBlocksPerMultiprocessor(
      &blocks, function, static_cast<int>(block[0] * block[1] * block[2]), shape.shared_bytes));
  const int processors =
      target.context->device->attributes[CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT];
  const uint64_t room = static_cast<uint64_t>(blocks) * static_cast<uint64_t>(processors);
  return uint64_t{grid[0]} * grid[1] > room || uint64_t{grid[0]} * grid[1] * grid[2] > room
             ? CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE
             : CUDA_SUCCESS;
}

// The values of a launch come by pointers or in one buffer.
CUresult check_values(const FunctionInfo* info, void** kernelParams, void** extra,
                      const void** buffer, size_t* buffer_bytes) {
  if (extra != nullptr) {
    if (kernelParams != nullptr || !extra_buffer(extra, buffer, buffer_bytes))
      return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
  }
  if (kernelParams == nullptr)
    return info->offsets.empty() ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < info->offsets.size(); ++i) {
    if (kernelParams[i] == nullptr) return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

// For CUDA_LAUNCH_BLOCKING: waits for the kernel, and answers the launch with its fault. Captured
// launches do not run.
CUresult wait_for_kernel(const Target& target) {
  if (is_capturing(target.stream)) return CUDA_SUCCESS;
  TENDRIL_TRY(synchronize_stream(target.context, target.stream));
  mirror_after_wait(target.context->session, target.context);
  return CUDA_SUCCESS;
}

CUresult enqueue(const Target& target, const LaunchShape& shape, void** kernelParams,
                 const void* buffer, size_t buffer_bytes, const CUlaunchAttribute* attributes,
                 unsigned attribute_count) {
  if (attribute_count == 0 && buffer == nullptr) {
    wire::cuda::launch_kernel_request request;
    request.function = target.function_id;
    request.stream = target.stream_id;
    request.shape = shape;
    return send(target, request, kernelParams, nullptr, 0);
  }
  CUlaunchAttribute translated[kLaunchAttributesMax];
  TENDRIL_TRY(translate_attributes(attributes, attribute_count, translated));
  const wire::Bytes encoded{reinterpret_cast<const uint8_t*>(translated),
                            attribute_count * sizeof(CUlaunchAttribute)};
  if (buffer != nullptr) {
    wire::cuda::launch_kernel_buffer_request request;
    request.function = target.function_id;
    request.stream = target.stream_id;
    request.shape = shape;
    request.attributes = encoded;
    return send(target, request, nullptr, buffer, buffer_bytes);
  }
  wire::cuda::launch_kernel_ex_request request;
  request.function = target.function_id;
  request.stream = target.stream_id;
  request.shape = shape;
  request.attributes = encoded;
  return send(target, request, kernelParams, nullptr, 0);
}

CUresult launch(CUfunction function, const LaunchShape& shape, CUstream hStream,
                void** kernelParams, void** extra, const CUlaunchAttribute* attributes,
                unsigned attribute_count) {
  if (attribute_count > kLaunchAttributesMax) return CUDA_ERROR_INVALID_VALUE;
  Target target;
  TENDRIL_TRY(resolve(function, hStream, &target));
  TENDRIL_TRY(check_shape(target.context->device, target.info, shape));
  const void* buffer = nullptr;
  size_t buffer_bytes = 0;
  TENDRIL_TRY(check_values(target.info, kernelParams, extra, &buffer, &buffer_bytes));
  bool cooperative = shape.cooperative != 0,
       ask = buffer != nullptr && buffer_bytes != target.info->param_bytes;
  TENDRIL_TRY(check_attributes(target.context->device, target.info, shape, attributes,
                               attribute_count, &cooperative, &ask));
  if (__builtin_expect(cooperative, 0)) TENDRIL_TRY(check_cooperative(function, target, shape));
  if (buffer != nullptr) map_pinned(target.context, buffer, buffer_bytes);
  for (size_t i = 0; kernelParams != nullptr && i < target.info->offsets.size(); ++i)
    map_pinned(target.context, kernelParams[i], target.info->sizes[i]);
  make_room(target.context, target.stream, kLaunchUnits);
  mirror_before_work(target.context->session, target.context);
  TENDRIL_TRY(
      enqueue(target, shape, kernelParams, buffer, buffer_bytes, attributes, attribute_count));
  if (__builtin_expect(ask, 0)) TENDRIL_TRY(outcome_so_far(target.context));
  return __builtin_expect(process()->launch_blocking, 0) ? wait_for_kernel(target) : CUDA_SUCCESS;
}

}  // namespace

CUresult cuLaunchKernel(CUfunction function, unsigned int gridDimX, unsigned int gridDimY,
                        unsigned int gridDimZ, unsigned int blockDimX, unsigned int blockDimY,
                        unsigned int blockDimZ, unsigned int sharedMemBytes, CUstream hStream,
                        void** kernelParams, void** extra) {
  const LaunchShape shape{
      {gridDimX, gridDimY, gridDimZ}, {blockDimX, blockDimY, blockDimZ}, sharedMemBytes, 0};
  return launch(function, shape, hStream, kernelParams, extra, nullptr, 0);
}

CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned int gridDimX,
                                   unsigned int gridDimY, unsigned int gridDimZ,
                                   unsigned int blockDimX, unsigned int blockDimY,
                                   unsigned int blockDimZ, unsigned int sharedMemBytes,
                                   CUstream hStream, void** kernelParams) {
  const LaunchShape shape{
      {gridDimX, gridDimY, gridDimZ}, {blockDimX, blockDimY, blockDimZ}, sharedMemBytes, 1};
  return launch(function, shape, hStream, kernelParams, nullptr, nullptr, 0);
}

CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction function, void** kernelParams,
                          void** extra) {
  if (process() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (config == nullptr || (config->numAttrs != 0 && config->attrs == nullptr))
    return CUDA_ERROR_INVALID_VALUE;
  const LaunchShape shape{{config->gridDimX, config->gridDimY, config->gridDimZ},
                          {config->blockDimX, config->blockDimY, config->blockDimZ},
                          config->sharedMemBytes,
                          0};
  return launch(function, shape, config->hStream, kernelParams, extra, config->attrs,
                config->numAttrs);
}

}  // namespace tendril::client::cuda
