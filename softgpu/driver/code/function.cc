// SPDX-License-Identifier: Apache-2.0
// Functions: attributes, parameter layout, and the old calls that prepare a launch before
// cuLaunchKernel existed.

#include <algorithm>
#include <cstring>

#include "softgpu/driver/code/module.h"
#include "softgpu/driver/device/device.h"
#include "softgpu/driver/entry.h"

namespace tendril::softgpu {
namespace {

constexpr size_t kMaxParamBytes = 32764;  // what kernels may take since CUDA 12.1

// The properties of a function do not depend on whether its context is current.
CUresult named_function(CUfunction handle, FunctionPtr* out) {
  SOFT_CONTEXT(context);
  *out = functions().get(handle);
  return *out ? CUDA_SUCCESS : find_function(handle, context, out);
}

}  // namespace

const KernelInfo& Function::info() const { return module->program->kernels()[index]; }

CUresult find_function(CUfunction handle, const ContextPtr& context, FunctionPtr* out) {
  *out = functions().get(handle);
  if (*out)
    return (*out)->module->context == context->handle ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
  KernelPtr kernel = kernels().get(reinterpret_cast<CUkernel>(handle));
  LibraryPtr library = kernel ? kernel->library.lock() : nullptr;
  if (!library) return CUDA_ERROR_INVALID_HANDLE;
  ModulePtr module;
  if (CUresult bad = library->instance(context, &module)) return bad;
  *out = module->function(kernel->index);
  return CUDA_SUCCESS;
}

int dynamic_shared_limit(const KernelInfo& info, const FunctionState& state) {
  int set = state.max_dynamic_shared.load();
  if (set >= 0) return set;
  return std::max(0, attribute_of(0, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK) -
                         static_cast<int>(info.static_shared_bytes));
}

CUresult get_attribute(const Program& program, const KernelInfo& info, FunctionState& state,
                       CUfunction_attribute attribute, int* value) {
  switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
      *value = info.max_threads_per_block != 0
                   ? static_cast<int>(info.max_threads_per_block)
                   : attribute_of(0, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
      break;
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
      *value = static_cast<int>(info.static_shared_bytes);
      break;
    case CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES: {
      uint64_t bytes = 0;
      for (const GlobalInfo& global : program.globals())
        bytes += global.space == GlobalInfo::Space::kConst ? global.size : 0;
      *value = static_cast<int>(std::min<uint64_t>(bytes, INT32_MAX));
      break;
    }
    case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
      *value = static_cast<int>(info.local_bytes);
      break;
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
      *value = static_cast<int>(std::clamp(info.registers, 1u, 255u));
      break;
    case CU_FUNC_ATTRIBUTE_PTX_VERSION:
      *value = static_cast<int>(program.target_sm());
      break;
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
      *value = static_cast<int>(device_sm());
      break;
    case CU_FUNC_ATTRIBUTE_CACHE_MODE_CA:
      *value = 0;
      break;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
      *value = dynamic_shared_limit(info, state);
      break;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      *value = state.carveout;
      break;
    case CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH:
      *value = 0;
      break;
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
      *value = state.non_portable_cluster;
      break;
    case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
      *value = state.cluster_policy;
      break;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

CUresult set_attribute(const KernelInfo& info, FunctionState& state, CUfunction_attribute attribute,
                       int value) {
  switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES: {
      int most = attribute_of(0, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN) -
                 static_cast<int>(info.static_shared_bytes);
      if (value < 0 || value > most) return CUDA_ERROR_INVALID_VALUE;
      state.max_dynamic_shared = value;
      return CUDA_SUCCESS;
    }
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      if (value < -1 || value > 100) return CUDA_ERROR_INVALID_VALUE;
      state.carveout = value;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
      state.non_portable_cluster = value != 0;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
      if (value < 0 || value > CU_CLUSTER_SCHEDULING_POLICY_LOAD_BALANCING)
        return CUDA_ERROR_INVALID_VALUE;
      state.cluster_policy = value;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

SOFT(cuFuncGetAttribute)(int* pi, CUfunction_attribute attrib, CUfunction hfunc) {
  if (pi == nullptr) return CUDA_ERROR_INVALID_VALUE;
  FunctionPtr function;
  CUresult bad = named_function(hfunc, &function);
  if (bad == CUDA_ERROR_INVALID_CONTEXT)
    function = functions().get(hfunc);  // a module's needs no current one
  if (!function) return bad;
  return get_attribute(*function->module->program, function->info(), *function->state, attrib, pi);
}

SOFT(cuFuncSetAttribute)(CUfunction hfunc, CUfunction_attribute attrib, int value) {
  FunctionPtr function;
  if (CUresult bad = named_function(hfunc, &function)) return bad;
  return set_attribute(function->info(), *function->state, attrib, value);
}

SOFT(cuFuncSetCacheConfig)(CUfunction hfunc, CUfunc_cache config) {
  FunctionPtr function;
  if (static_cast<unsigned>(config) > CU_FUNC_CACHE_PREFER_EQUAL) return CUDA_ERROR_INVALID_VALUE;
  return named_function(hfunc, &function);
}

SOFT(cuFuncSetSharedMemConfig)(CUfunction hfunc, CUsharedconfig config) {
  FunctionPtr function;
  if (static_cast<unsigned>(config) > CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE)
    return CUDA_ERROR_INVALID_VALUE;
  return named_function(hfunc, &function);
}

SOFT(cuFuncGetModule)(CUmodule* hmod, CUfunction hfunc) {
  if (hmod == nullptr) return CUDA_ERROR_INVALID_VALUE;
  FunctionPtr function;
  if (CUresult bad = named_function(hfunc, &function)) return bad;
  *hmod = function->module->handle;
  return CUDA_SUCCESS;
}

SOFT(cuFuncGetName)(const char** name, CUfunction hfunc) {
  if (name == nullptr || hfunc == nullptr) return CUDA_ERROR_INVALID_VALUE;
  FunctionPtr function;
  if (CUresult bad = named_function(hfunc, &function)) return bad;
  *name = function->info().name.c_str();
  return CUDA_SUCCESS;
}

SOFT(cuFuncGetParamInfo)
(CUfunction func, size_t paramIndex, size_t* paramOffset, size_t* paramSize) {
  if (paramOffset == nullptr) return CUDA_ERROR_INVALID_VALUE;
  FunctionPtr function;
  if (CUresult bad = named_function(func, &function)) return bad;
  const auto& params = function->info().params;
  if (paramIndex >= params.size()) return CUDA_ERROR_INVALID_VALUE;
  *paramOffset = params[paramIndex].offset;
  if (paramSize != nullptr) *paramSize = params[paramIndex].size;
  return CUDA_SUCCESS;
}

SOFT(cuFuncIsLoaded)(CUfunctionLoadingState* state, CUfunction function) {
  if (state == nullptr) return CUDA_ERROR_INVALID_VALUE;
  FunctionPtr found;
  if (CUresult bad = named_function(function, &found)) return bad;
  *state = CU_FUNCTION_LOADING_STATE_LOADED;
  return CUDA_SUCCESS;
}

SOFT(cuFuncLoad)(CUfunction function) {
  FunctionPtr found;
  return named_function(function, &found);
}

SOFT(cuFuncSetBlockShape)(CUfunction hfunc, int x, int y, int z) {
  FunctionPtr function;
  if (CUresult bad = named_function(hfunc, &function)) return bad;
  if (x <= 0 || y <= 0 || z <= 0) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard guard(function->state->lock);
  function->state->block = {static_cast<uint32_t>(x), static_cast<uint32_t>(y),
                            static_cast<uint32_t>(z)};
  return CUDA_SUCCESS;
}

SOFT(cuFuncSetSharedSize)(CUfunction hfunc, unsigned int bytes) {
  FunctionPtr function;
  if (CUresult bad = named_function(hfunc, &function)) return bad;
  std::lock_guard guard(function->state->lock);
  function->state->dynamic_shared = bytes;
  return CUDA_SUCCESS;
}

SOFT(cuParamSetSize)(CUfunction hfunc, unsigned int numbytes) {
  FunctionPtr function;
  if (CUresult bad = named_function(hfunc, &function)) return bad;
  if (numbytes > kMaxParamBytes) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard guard(function->state->lock);
  function->state->params.resize(numbytes);
  return CUDA_SUCCESS;
}

SOFT(cuParamSetv)(CUfunction hfunc, int offset, void* ptr, unsigned int numbytes) {
  FunctionPtr function;
  if (CUresult bad = named_function(hfunc, &function)) return bad;
  if (offset < 0 || ptr == nullptr || numbytes > kMaxParamBytes ||
      static_cast<unsigned>(offset) > kMaxParamBytes)
    return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard guard(function->state->lock);
  auto& params = function->state->params;
  if (params.size() < offset + numbytes) params.resize(offset + numbytes);
  if (numbytes != 0) memcpy(params.data() + offset, ptr, numbytes);
  return CUDA_SUCCESS;
}

SOFT(cuParamSeti)(CUfunction hfunc, int offset, unsigned int value) {
  return soft_cuParamSetv(hfunc, offset, &value, sizeof value);
}
SOFT(cuParamSetf)(CUfunction hfunc, int offset, float value) {
  return soft_cuParamSetv(hfunc, offset, &value, sizeof value);
}

SOFT(cuLaunchGridAsync)(CUfunction f, int grid_width, int grid_height, CUstream hStream) {
  FunctionPtr function;
  if (CUresult bad = named_function(f, &function)) return bad;
  if (grid_width <= 0 || grid_height <= 0) return CUDA_ERROR_INVALID_VALUE;
  std::vector<uint8_t> params;
  Dim3 block;
  unsigned shared;
  {
    std::lock_guard guard(function->state->lock);
    params = function->state->params;
    block = function->state->block;
    shared = function->state->dynamic_shared;
  }
  size_t bytes = params.size();
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, params.data(), CU_LAUNCH_PARAM_BUFFER_SIZE,
                   &bytes, CU_LAUNCH_PARAM_END};
  return soft_cuLaunchKernel(f, grid_width, grid_height, 1, block.x, block.y, block.z, shared,
                             hStream, nullptr, extra);
}

SOFT(cuLaunchGrid)(CUfunction f, int grid_width, int grid_height) {
  return soft_cuLaunchGridAsync(f, grid_width, grid_height, nullptr);
}
SOFT(cuLaunch)(CUfunction f) { return soft_cuLaunchGridAsync(f, 1, 1, nullptr); }

}  // namespace tendril::softgpu
