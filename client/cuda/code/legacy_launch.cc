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
CUresult prepare(CUfunction f, Change&& change) {
  Context* c = nullptr;
  TENDRIL_TRY(require_context(&c));
  if (find_function(f) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  LegacyLaunches& launches = process()->legacy_launches.get();
  const base::Locked held(launches.lock);
  return change(&launches.of[f]);
}

}  // namespace

CUresult cuFuncSetBlockShape(CUfunction hfunc, int x, int y, int z) {
  return prepare(hfunc, [&](Prepared* p) {
    if (x <= 0 || y <= 0 || z <= 0) return CUDA_ERROR_INVALID_VALUE;
    p->block[0] = static_cast<unsigned>(x);
    p->block[1] = static_cast<unsigned>(y);
    p->block[2] = static_cast<unsigned>(z);
    return CUDA_SUCCESS;
  });
}

CUresult cuFuncSetSharedSize(CUfunction hfunc, unsigned int bytes) {
  return prepare(hfunc, [&](Prepared* p) {
    p->shared_bytes = bytes;
    return CUDA_SUCCESS;
  });
}

CUresult cuParamSetSize(CUfunction hfunc, unsigned int numbytes) {
  return prepare(hfunc, [&](Prepared* p) {
    if (numbytes > kParameterBytesMax) return CUDA_ERROR_INVALID_VALUE;
    p->parameters.resize(numbytes);
    return CUDA_SUCCESS;
  });
}

CUresult cuParamSetv(CUfunction hfunc, int offset, void* ptr, unsigned int numbytes) {
  return prepare(hfunc, [&](Prepared* p) {
    if (offset < 0 || ptr == nullptr || numbytes > kParameterBytesMax ||
        static_cast<unsigned>(offset) > kParameterBytesMax - numbytes)
      return CUDA_ERROR_INVALID_VALUE;
    const size_t end = static_cast<size_t>(offset) + numbytes;
    if (p->parameters.size() < end) p->parameters.resize(end);
    if (numbytes != 0) memcpy(p->parameters.data() + offset, ptr, numbytes);
    return CUDA_SUCCESS;
  });
}
CUresult cuParamSeti(CUfunction hfunc, int offset, unsigned int value) {
  return cuParamSetv(hfunc, offset, &value, sizeof value);
}
CUresult cuParamSetf(CUfunction hfunc, int offset, float value) {
  return cuParamSetv(hfunc, offset, &value, sizeof value);
}

CUresult cuLaunchGridAsync(CUfunction f, int grid_width, int grid_height, CUstream hStream) {
  Prepared launch;
  TENDRIL_TRY(prepare(f, [&](Prepared* p) {
    launch = *p;
    return CUDA_SUCCESS;
  }));
  if (grid_width <= 0 || grid_height <= 0) return CUDA_ERROR_INVALID_VALUE;
  size_t bytes = launch.parameters.size();
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, launch.parameters.data(),
                   CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_END};
  return cuLaunchKernel(f, static_cast<unsigned>(grid_width), static_cast<unsigned>(grid_height), 1,
                        launch.block[0], launch.block[1], launch.block[2], launch.shared_bytes,
                        hStream, nullptr, extra);
}
CUresult cuLaunchGrid(CUfunction f, int grid_width, int grid_height) {
  return cuLaunchGridAsync(f, grid_width, grid_height, nullptr);
}
CUresult cuLaunch(CUfunction f) { return cuLaunchGridAsync(f, 1, 1, nullptr); }

}  // namespace tendril::client::cuda
