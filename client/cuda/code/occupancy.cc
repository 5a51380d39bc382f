// SPDX-License-Identifier: Apache-2.0
// Occupancy: pure functions of a kernel's attributes. The driver answers each question once per
// kernel; later it is answered here.
#include <map>
#include <tuple>

#include "client/cuda/code/function.h"

namespace tendril::client::cuda {

using OccupancyKey = std::tuple<const Function*, const Device*, uint64_t, uint64_t, uint64_t,
                                uint32_t>;  // last: which question

struct OccupancyAnswers {
  base::Lock lock;
  std::map<OccupancyKey, int64_t> all;
};

namespace {

using Key = OccupancyKey;
constexpr size_t kAnswersMax = 65536;  // for programs that ask for ever-new sizes

bool cached(const Key& key, int64_t* value) {
  OccupancyAnswers& answers = process()->occupancy_answers.get();
  const base::Locked held(answers.lock);
  const auto found = answers.all.find(key);
  if (found == answers.all.end()) return false;
  *value = found->second;
  return true;
}

void keep(const Key& key, int64_t value) {
  OccupancyAnswers& answers = process()->occupancy_answers.get();
  const base::Locked held(answers.lock);
  if (answers.all.size() > kAnswersMax) answers.all.clear();
  answers.all[key] = value;
}

CUresult need(CUfunction func, Context** context, Function** function, uint64_t* id) {
  TENDRIL_TRY(require_context(context));
  *function = find_function(func);
  if (*function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  CUresult error = CUDA_SUCCESS;
  *id = function_wire_id(*function, (*context)->session, &error);
  return *id != 0 ? CUDA_SUCCESS : error;
}

CUresult active_blocks(CUfunction func, int blockSize, size_t shared, unsigned flags, int* blocks) {
  Context* context = nullptr;
  Function* function = nullptr;
  uint64_t id = 0;
  TENDRIL_TRY(need(func, &context, &function, &id));
  if (blockSize <= 0 || (flags & ~1u) != 0) return CUDA_ERROR_INVALID_VALUE;
  const Key key{function, context->device, static_cast<uint64_t>(blockSize), shared, flags, 0};
  int64_t value = 0;
  if (!cached(key, &value)) {
    wire::cuda::occupancy_blocks_request request;
    wire::cuda::occupancy_blocks_reply reply;
    request.function = id;
    request.block_size = static_cast<uint32_t>(blockSize);
    request.shared = shared;
    request.flags = flags;
    TENDRIL_TRY(context->session->call(context, request, reply));
    value = reply.blocks;
    keep(key, value);
  }
  *blocks = static_cast<int>(value);
  return CUDA_SUCCESS;
}

CUresult clusters(int* value, CUfunction func, const CUlaunchConfig* config,
                  wire::cuda::ClusterQuestion question) {
  Context* context = nullptr;
  Function* function = nullptr;
  uint64_t id = 0;
  TENDRIL_TRY(need(func, &context, &function, &id));
  if (value == nullptr || config == nullptr || (config->numAttrs != 0 && config->attrs == nullptr))
    return CUDA_ERROR_INVALID_VALUE;
  wire::cuda::occupancy_clusters_request request;
  wire::cuda::occupancy_clusters_reply reply;
  request.function = id;
  request.question = question;
  request.shape = {{config->gridDimX, config->gridDimY, config->gridDimZ},
                   {config->blockDimX, config->blockDimY, config->blockDimZ},
                   config->sharedMemBytes,
                   0};
  request.attributes = {reinterpret_cast<const uint8_t*>(config->attrs),
                        config->numAttrs * sizeof(CUlaunchAttribute)};
  TENDRIL_TRY(context->session->call(context, request, reply));
  *value = reply.value;
  return CUDA_SUCCESS;
}

}  // namespace

void forget_occupancy(Function* function) {
  const base::Locked held(process()->occupancy_answers->lock);
  auto& answers = process()->occupancy_answers->all;
  for (auto it = answers.begin(); it != answers.end();)
    it = std::get<0>(it->first) == function ? answers.erase(it) : std::next(it);
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* numBlocks, CUfunction func,
                                                              int blockSize, size_t dynamicSMemSize,
                                                              unsigned int flags) {
  if (numBlocks == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return active_blocks(func, blockSize, dynamicSMemSize, flags, numBlocks);
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* numBlocks, CUfunction func, int blockSize,
                                                     size_t dynamicSMemSize) {
  return cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(numBlocks, func, blockSize,
                                                              dynamicSMemSize, 0);
}

CUresult cuOccupancyAvailableDynamicSMemPerBlock(size_t* dynamicSmemSize, CUfunction func,
                                                 int numBlocks, int blockSize) {
  Context* context = nullptr;
  Function* function = nullptr;
  uint64_t id = 0;
  TENDRIL_TRY(need(func, &context, &function, &id));
  if (dynamicSmemSize == nullptr || numBlocks <= 0 || blockSize <= 0)
    return CUDA_ERROR_INVALID_VALUE;
  const Key key{function,
                context->device,
                static_cast<uint64_t>(blockSize),
                static_cast<uint64_t>(numBlocks),
                0,
                1};
  int64_t value = 0;
  if (!cached(key, &value)) {
    wire::cuda::occupancy_shared_request request;
    wire::cuda::occupancy_shared_reply reply;
    request.function = id;
    request.blocks = static_cast<uint32_t>(numBlocks);
    request.block_size = static_cast<uint32_t>(blockSize);
    TENDRIL_TRY(context->session->call(context, request, reply));
    value = static_cast<int64_t>(reply.bytes);
    keep(key, value);
  }
  *dynamicSmemSize = static_cast<size_t>(value);
  return CUDA_SUCCESS;
}

// The block size with the most resident threads. Searched here, because the shared memory may
// depend on it through a callback.
CUresult cuOccupancyMaxPotentialBlockSizeWithFlags(int* minGridSize, int* blockSize,
                                                   CUfunction func,
                                                   CUoccupancyB2DSize blockSizeToDynamicSMemSize,
                                                   size_t dynamicSMemSize, int blockSizeLimit,
                                                   unsigned int flags) {
  Context* context = nullptr;
  TENDRIL_TRY(require_context(&context));
  Function* function = find_function(func);
  if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (minGridSize == nullptr || blockSize == nullptr || blockSizeLimit < 0)
    return CUDA_ERROR_INVALID_VALUE;
  CUresult error = CUDA_SUCCESS;
  const FunctionInfo* info = function_info(context, function, &error);
  if (info == nullptr) return error;
  const int warp = context->device->attributes[CU_DEVICE_ATTRIBUTE_WARP_SIZE];
  const int resident =
      context->device->attributes[CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR];
  int limit = context->device->attributes[CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK];
  if (blockSizeLimit != 0 && blockSizeLimit < limit) limit = blockSizeLimit;
  if (info->attributes[CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK] < limit)
    limit = info->attributes[CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK];
  int best_threads = 0, best_block = 0, best_count = 0;
  for (int rounded = (limit + warp - 1) / warp * warp; rounded > 0; rounded -= warp) {
    const int candidate = rounded < limit ? rounded : limit;
    const size_t shared = blockSizeToDynamicSMemSize != nullptr
                              ? blockSizeToDynamicSMemSize(candidate)
                              : dynamicSMemSize;
    int blocks = 0;
    TENDRIL_TRY(active_blocks(func, candidate, shared, flags, &blocks));
    if (blocks * candidate > best_threads) {
      best_threads = blocks * candidate;
      best_block = candidate;
      best_count = blocks;
    }
    if (best_threads == resident) break;
  }
  *blockSize = best_block;
  *minGridSize = best_count * context->device->attributes[CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT];
  return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxPotentialBlockSize(int* minGridSize, int* blockSize, CUfunction func,
                                          CUoccupancyB2DSize blockSizeToDynamicSMemSize,
                                          size_t dynamicSMemSize, int blockSizeLimit) {
  return cuOccupancyMaxPotentialBlockSizeWithFlags(
      minGridSize, blockSize, func, blockSizeToDynamicSMemSize, dynamicSMemSize, blockSizeLimit, 0);
}

CUresult cuOccupancyMaxActiveClusters(int* numClusters, CUfunction func,
                                      const CUlaunchConfig* config) {
  return clusters(numClusters, func, config, wire::cuda::ClusterQuestion::kActiveClusters);
}

CUresult cuOccupancyMaxPotentialClusterSize(int* clusterSize, CUfunction func,
                                            const CUlaunchConfig* config) {
  return clusters(clusterSize, func, config, wire::cuda::ClusterQuestion::kClusterSize);
}

}  // namespace tendril::client::cuda
