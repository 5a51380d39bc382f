// SPDX-License-Identifier: Apache-2.0
// The launch calls of CUDA 3 and before. Block shape, shared memory and parameters are state of a
// function, kept here. A launch takes them together and calls cuLaunchKernel.
#include <string.h>

#include <unordered_map>
#include <vector>

#include "client/cuda/bodies.h"

namespace tendril::client::cuda {

struct LegacyLaunches {
  struct Prepared {
    unsigned block[3] = {1, 1, 1};
    unsigned shared_bytes = 0;
    std::vector<uint8_t> parameters;
  };
  base::Lock lock;
  std::unordered_map<CUfunction, Prepared> of;
};

namespace {

using Prepared = LegacyLaunches::Prepared;

constexpr uint64_t kParameterBytesMax = 32764;  // of a kernel, since CUDA 12.1

// Runs `change` on the state of a function, under the lock.
template <typename Change>
CUresult prepare(CUfunction function, Change&& change) {
  Context* context = nullptr;
  TENDRIL_TRY(require_context(&context));
  if (find_function(function) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  LegacyLaunches& launches = process()->legacy_launches.get();
  const base::Locked held(launches.lock);
  return change(&launches.of[function]);
}

}  // namespace

CUresult cuFuncSetBlockShape(CUfunction hfunc, int x, int y, int z) {
  return prepare(hfunc, [&](Prepared* prepared) {
    if (x <= 0 || y <= 0 || z <= 0) return CUDA_ERROR_INVALID_VALUE;
    prepared->block[0] = static_cast<unsigned>(x);
    prepared->block[1] = static_cast<unsigned>(y);
    prepared->block[2] = static_cast<unsigned>(z);
    return CUDA_SUCCESS;
  });
}

CUresult cuFuncSetSharedSize(CUfunction hfunc, unsigned int bytes) {
  return prepare(hfunc, [&](Prepared* prepared) {
    prepared->shared_bytes = bytes;
    return CUDA_SUCCESS;
  });
}

CUresult cuParamSetSize(CUfunction hfunc, unsigned int numbytes) {
  return prepare(hfunc, [&](Prepared* prepared) {
    if (numbytes > kParameterBytesMax) return CUDA_ERROR_INVALID_VALUE;
    prepared->parameters.resize(numbytes);
    return CUDA_SUCCESS;
  });
}

CUresult cuParamSetv(CUfunction hfunc, int offset, void* ptr, unsigned int numbytes) {
  return prepare(hfunc, [&](Prepared* prepared) {
    if (offset < 0 || ptr == nullptr || numbytes > kParameterBytesMax ||
        static_cast<unsigned>(offset) > kParameterBytesMax - numbytes)
      return CUDA_ERROR_INVALID_VALUE;
    const size_t end = static_cast<size_t>(offset) + numbytes;
    if (prepared->parameters.size() < end) prepared->parameters.resize(end);
    if (numbytes != 0) memcpy(prepared->parameters.data() + offset, ptr, numbytes);
    return CUDA_SUCCESS;
  });
}
CUresult cuParamSeti(CUfunction hfunc, int offset, unsigned int value) {
  return cuParamSetv(hfunc, offset, &value, sizeof value);
}
CUresult cuParamSetf(CUfunction hfunc, int offset, float value) {
  return cuParamSetv(hfunc, offset, &value, sizeof value);
}

CUresult cuLaunchGridAsync(CUfunction function, int grid_width, int grid_height, CUstream hStream) {
  Prepared launch;
  TENDRIL_TRY(prepare(function, [&](Prepared* prepared) {
    launch = *prepared;
    return CUDA_SUCCESS;
  }));
  if (grid_width <= 0 || grid_height <= 0) return CUDA_ERROR_INVALID_VALUE;
  size_t bytes = launch.parameters.size();
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, launch.parameters.data(),
                   CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_END};
  return cuLaunchKernel(function, static_cast<unsigned>(grid_width),
                        static_cast<unsigned>(grid_height), 1, launch.block[0], launch.block[1],
                        launch.block[2], launch.shared_bytes, hStream, nullptr, extra);
}
CUresult cuLaunchGrid(CUfunction function, int grid_width, int grid_height) {
  return cuLaunchGridAsync(function, grid_width, grid_height, nullptr);
}
CUresult cuLaunch(CUfunction function) { return cuLaunchGridAsync(function, 1, 1, nullptr); }

}  // namespace tendril::client::cuda
