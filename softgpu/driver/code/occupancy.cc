// SPDX-License-Identifier: Apache-2.0
// Occupancy: pure arithmetic over a kernel's needs and the limits of a processor, by the rules of
// compute capability 9.0.

#include <algorithm>

#include "softgpu/driver/code/module.h"
#include "softgpu/driver/config.h"
#include "softgpu/driver/device/device.h"
#include "softgpu/driver/entry.h"

namespace tendril::softgpu {
namespace {

constexpr int kRegisterUnit = 256;  // warps get registers in units of this many
constexpr int kWarp = 32;

int limit(CUdevice_attribute attribute) { return attribute_of(0, attribute); }

CUresult named(CUfunction handle, FunctionPtr* out) {
  SOFT_CONTEXT(context);
  return find_function(handle, context, out);
}

}  // namespace

int blocks_per_sm(const Function& function, int threads, size_t dynamic_shared) {
  const KernelInfo& info = function.info();
  int most = info.max_threads_per_block != 0 ? static_cast<int>(info.max_threads_per_block)
                                             : limit(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
  if (threads <= 0 || threads > most) return 0;
  int warps = (threads + kWarp - 1) / kWarp;
  int blocks = limit(CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR);
  blocks =
      std::min(blocks, limit(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR) / kWarp / warps);
  int registers = static_cast<int>(std::clamp(info.registers, 1u, 255u)) * kWarp;
  registers = (registers + kRegisterUnit - 1) / kRegisterUnit * kRegisterUnit;
  blocks = std::min(
      blocks, limit(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR) / registers / warps);
  if (dynamic_shared > static_cast<size_t>(dynamic_shared_limit(info, *function.state))) return 0;
  uint64_t shared = info.static_shared_bytes + dynamic_shared;
  uint64_t each =
      (shared + 127) / 128 * 128 +
      static_cast<uint64_t>(limit(CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK));
  return std::min(
      blocks,
      static_cast<int>(limit(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR) / each));
}

SOFT(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags)
(int* numBlocks, CUfunction func, int blockSize, size_t dynamicSMemSize, unsigned int flags) {
  if (numBlocks == nullptr || blockSize <= 0 || flags > CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE)
    return CUDA_ERROR_INVALID_VALUE;
  FunctionPtr function;
  if (CUresult bad = named(func, &function)) return bad;
  *numBlocks = blocks_per_sm(*function, blockSize, dynamicSMemSize);
  return CUDA_SUCCESS;
}

SOFT(cuOccupancyMaxActiveBlocksPerMultiprocessor)
(int* numBlocks, CUfunction func, int blockSize, size_t dynamicSMemSize) {
  return soft_cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(numBlocks, func, blockSize,
                                                                   dynamicSMemSize, 0);
}

SOFT(cuOccupancyMaxPotentialBlockSizeWithFlags)
(int* minGridSize, int* blockSize, CUfunction func, CUoccupancyB2DSize sizer,
 size_t dynamicSMemSize, int blockSizeLimit, unsigned int flags) {
  if (minGridSize == nullptr || blockSize == nullptr || blockSizeLimit < 0 ||
      flags > CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE)
    return CUDA_ERROR_INVALID_VALUE;
  FunctionPtr function;
  if (CUresult bad = named(func, &function)) return bad;
  const KernelInfo& info = function->info();
  int most = info.max_threads_per_block != 0 ? static_cast<int>(info.max_threads_per_block)
                                             : limit(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
  if (blockSizeLimit != 0) most = std::min(most, blockSizeLimit);
  int best_threads = 0, best_block = 0, best_count = 0;
  for (int size = (most + kWarp - 1) / kWarp * kWarp; size > 0; size -= kWarp) {
    int threads = std::min(size, most);
    size_t dynamic = sizer != nullptr ? sizer(threads) : dynamicSMemSize;
    int count = blocks_per_sm(*function, threads, dynamic);
    if (count * threads <= best_threads) continue;
    best_threads = count * threads;
    best_block = threads;
    best_count = count;
  }
  *blockSize = best_block;
  *minGridSize = best_count * static_cast<int>(config().sm_count);
  return CUDA_SUCCESS;
}

SOFT(cuOccupancyMaxPotentialBlockSize)
(int* minGridSize, int* blockSize, CUfunction func, CUoccupancyB2DSize sizer,
 size_t dynamicSMemSize, int blockSizeLimit) {
  return soft_cuOccupancyMaxPotentialBlockSizeWithFlags(minGridSize, blockSize, func, sizer,
                                                        dynamicSMemSize, blockSizeLimit, 0);
}

SOFT(cuOccupancyAvailableDynamicSMemPerBlock)
(size_t* dynamicSmemSize, CUfunction func, int numBlocks, int blockSize) {
  if (dynamicSmemSize == nullptr || numBlocks <= 0 || blockSize <= 0)
    return CUDA_ERROR_INVALID_VALUE;
  FunctionPtr function;
  if (CUresult bad = named(func, &function)) return bad;
  int reserved = limit(CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK);
  int room =
      limit(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR) / numBlocks / 128 * 128 -
      reserved;
  room = std::min(room - static_cast<int>(function->info().static_shared_bytes),
                  dynamic_shared_limit(function->info(), *function->state));
  if (blocks_per_sm(*function, blockSize, 0) < numBlocks) return CUDA_ERROR_INVALID_VALUE;
  *dynamicSmemSize = static_cast<size_t>(std::max(room, 0));
  return CUDA_SUCCESS;
}

SOFT(cuOccupancyMaxActiveClusters)
(int* numClusters, CUfunction func, const CUlaunchConfig* config) {
  if (numClusters == nullptr || config == nullptr) return CUDA_ERROR_INVALID_VALUE;
  FunctionPtr function;
  if (CUresult bad = named(func, &function)) return bad;
  *numClusters = 0;  // CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH is 0
  return CUDA_SUCCESS;
}

SOFT(cuOccupancyMaxPotentialClusterSize)
(int* clusterSize, CUfunction func, const CUlaunchConfig* config) {
  return soft_cuOccupancyMaxActiveClusters(clusterSize, func, config);
}

}  // namespace tendril::softgpu
