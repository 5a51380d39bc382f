// SPDX-License-Identifier: Apache-2.0
// Functions and kernels: parameter layout and attributes are fetched once per device, and then
// answered here.
#include "client/cuda/code/function.h"

#include <algorithm>

namespace tendril::client::cuda {

// What was known of functions that no longer exist. It is reused when a program loads the same code
// again. The lock also orders changes of functions' lists.
struct RetiredInfos {
  base::Lock lock;
  std::vector<FunctionInfo*> all;
};

namespace {

// The caller holds the lock. A late reader may still use a retired record. So the record is reused
// only for a function whose vectors are the same.
FunctionInfo* take_retired(const FunctionInfo& like) {
  std::vector<FunctionInfo*>& all = process()->retired_infos->all;
  const auto found = std::find_if(all.begin(), all.end(), [&](const FunctionInfo* info) {
    return info->device == like.device && info->laid_out == like.laid_out &&
           info->offsets == like.offsets && info->sizes == like.sizes;
  });
  if (found == all.end()) return nullptr;
  FunctionInfo* const info = *found;
  *found = all.back();
  all.pop_back();
  std::copy(std::begin(like.attributes), std::end(like.attributes), info->attributes);
  info->attribute_count = like.attribute_count;
  return info;
}

const FunctionInfo* find_info(const Function* function, const Device* device) {
  for (const FunctionInfo* i = function->info.load(std::memory_order_acquire); i != nullptr;
       i = i->next) {
    if (i->device == device) return i;
  }
  return nullptr;
}

// `context`: a context on that device, or null.
const FunctionInfo* fetch_info(Context* context, const Device* device, Function* function,
                               CUresult* error) {
  wire::cuda::function_info_request request;
  wire::cuda::function_info_reply reply;
  request.function = function_wire_id(function, device->session, error);
  if (request.function == 0) return nullptr;
  request.slot = device->slot;
  *error = device->session->call(context, request, reply);
  if (*error != CUDA_SUCCESS) return nullptr;
  FunctionInfo now;
  now.device = device;
  now.laid_out = reply.laid_out != 0;
  now.offsets.assign(reply.offsets.begin(), reply.offsets.end());
  now.sizes.assign(reply.sizes.begin(), reply.sizes.end());
  if (now.sizes.size() != now.offsets.size()) now.sizes.resize(now.offsets.size());
  for (size_t i = 0; i < now.offsets.size(); ++i)
    now.param_bytes = std::max(now.param_bytes, now.offsets[i] + now.sizes[i]);
  for (uint64_t i = 0; i < reply.attributes.count && i < 32; ++i)
    now.attributes[i] = reply.attributes[i];
  now.attribute_count =
      static_cast<uint32_t>(reply.attributes.count < 32 ? reply.attributes.count : 32);
  const base::Locked held(process()->retired_infos->lock);
  FunctionInfo* info = take_retired(now);
  if (info == nullptr) info = new FunctionInfo(std::move(now));
  info->next = function->info.load();
  function->info.store(info, std::memory_order_release);
  return info;
}

CUresult attribute_of(Context* context, const Device* device, Function* function, int* pi,
                      CUfunction_attribute attrib) {
  if (pi == nullptr || attrib < 0 || attrib >= CU_FUNC_ATTRIBUTE_MAX)
    return CUDA_ERROR_INVALID_VALUE;
  CUresult error = CUDA_SUCCESS;
  const FunctionInfo* info = find_info(function, device);
  if (info == nullptr) info = fetch_info(context, device, function, &error);
  if (info == nullptr) return error;
  if (static_cast<uint32_t>(attrib) >= info->attribute_count) return CUDA_ERROR_INVALID_VALUE;
  *pi = info->attributes[attrib];
  return CUDA_SUCCESS;
}

CUresult set_attribute(Context* context, const Device* device, Function* function,
                       CUfunction_attribute attrib, int value) {
  if (attrib < 0 || attrib >= CU_FUNC_ATTRIBUTE_MAX) return CUDA_ERROR_INVALID_VALUE;
  const FunctionInfo* known = find_info(function, device);
  if (known != nullptr && known->attributes[attrib] == value) return CUDA_SUCCESS;
  CUresult error = CUDA_SUCCESS;
  wire::cuda::function_set_attribute_request request;
  wire::cuda::function_set_attribute_reply reply;
  request.function = function_wire_id(function, device->session, &error);
  if (request.function == 0) return error;
  request.attribute = static_cast<uint32_t>(attrib);
  request.value = value;
  request.slot = device->slot;
  TENDRIL_TRY(device->session->call(context, request, reply));
  forget_occupancy(function);
  if (known != nullptr) known->attributes[attrib] = value;
  return CUDA_SUCCESS;
}

CUresult param_info(Context* context, Function* function, size_t index, size_t* offset,
                    size_t* size) {
  if (offset == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUresult error = CUDA_SUCCESS;
  const FunctionInfo* info = function_info(context, function, &error);
  if (info == nullptr) return error;
  if (index >= info->offsets.size()) return CUDA_ERROR_INVALID_VALUE;
  *offset = info->offsets[index];
  if (size != nullptr) *size = info->sizes[index];
  return CUDA_SUCCESS;
}

CUresult set_cache_config(Context* context, const Device* device, Function* function,
                          CUfunc_cache config) {
  if (config < CU_FUNC_CACHE_PREFER_NONE || config > CU_FUNC_CACHE_PREFER_EQUAL)
    return CUDA_ERROR_INVALID_VALUE;
  CUresult error = CUDA_SUCCESS;
  wire::cuda::function_set_cache_config_request request;
  request.function = function_wire_id(function, device->session, &error);
  if (request.function == 0) return error;
  request.config = static_cast<uint32_t>(config);
  request.slot = device->slot;
  return device->session->enqueue(context, request);
}

CUresult need_kernel(CUkernel handle, Function** out) {
  if (process() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  *out = process()->kernels.find(Kind::kKernel, handle_value(handle));
  return *out != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult need_function(CUfunction handle, Context** context, Function** out) {
  TENDRIL_TRY(require_context(context));
  *out = find_function(handle);
  return *out != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

// For calls that an H200's driver answers without a current context too: a module's function has a
// context of its own.
CUresult need_function_of_any_context(CUfunction handle, Context** context, Function** out) {
  Function* const function =
      process() != nullptr && current_context() == nullptr ? find_function(handle) : nullptr;
  if (function == nullptr || function->context == nullptr)
    return need_function(handle, context, out);
  *context = function->context;
  *out = function;
  return CUDA_SUCCESS;
}

// Questions about a kernel name a device. The device's current or primary context reaches the
// worker. Null: it has neither, and the driver answers what it can without one.
CUresult need_kernel_on(CUdevice dev, CUkernel handle, Function** function, Device** device,
                        Context** context) {
  TENDRIL_TRY(need_kernel(handle, function));
  *device = device_of(dev);
  if (*device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  TENDRIL_TRY((*device)->session->begin());
  Context* current = current_context();
  *context = current != nullptr && current->device == *device ? current : (*device)->primary;
  if ((*context)->active.load() == 0) *context = nullptr;
  return CUDA_SUCCESS;
}

}  // namespace

void retire_function_info(Function* function) {
  RetiredInfos& retired = process()->retired_infos.get();
  const base::Locked held(retired.lock);
  const FunctionInfo* next = nullptr;
  for (const FunctionInfo* info = function->info.exchange(nullptr); info != nullptr; info = next) {
    next = info->next;
    retired.all.push_back(const_cast<FunctionInfo*>(info));
  }
}

uint64_t function_wire_id(Function* function, Session* session, CUresult* error) {
  if (function->session == session) return function->wire_id;
  if (function->library == nullptr) {
    *error = CUDA_ERROR_INVALID_HANDLE;  // a module's function belongs to its context
    return 0;
  }
  return kernel_wire_id(function, session, error);
}

const FunctionInfo* function_info(Context* context, Function* function, CUresult* error) {
  const FunctionInfo* found = find_info(function, context->device);
  return found != nullptr && found->laid_out
             ? found
             : fetch_info(context, context->device, function, error);
}

CUresult cuFuncGetAttribute(int* pi, CUfunction_attribute attrib, CUfunction hfunc) {
  Context* context = nullptr;
  Function* function = nullptr;
  TENDRIL_TRY(need_function_of_any_context(hfunc, &context, &function));
  return attribute_of(context, context->device, function, pi, attrib);
}

CUresult cuFuncSetAttribute(CUfunction hfunc, CUfunction_attribute attrib, int value) {
  Context* context = nullptr;
  Function* function = nullptr;
  TENDRIL_TRY(need_function(hfunc, &context, &function));
  return set_attribute(context, context->device, function, attrib, value);
}

CUresult cuFuncGetParamInfo(CUfunction func, size_t paramIndex, size_t* paramOffset,
                            size_t* paramSize) {
  Context* context = nullptr;
  Function* function = nullptr;
  TENDRIL_TRY(need_function(func, &context, &function));
  return param_info(context, function, paramIndex, paramOffset, paramSize);
}

CUresult cuFuncSetCacheConfig(CUfunction hfunc, CUfunc_cache config) {
  Context* context = nullptr;
  Function* function = nullptr;
  TENDRIL_TRY(need_function(hfunc, &context, &function));
  return set_cache_config(context, context->device, function, config);
}

CUresult cuFuncSetSharedMemConfig(CUfunction hfunc, CUsharedconfig config) {
  Context* context = nullptr;
  Function* function = nullptr;
  TENDRIL_TRY(need_function(hfunc, &context, &function));
  return config >= 0 && config <= CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE
             ? CUDA_SUCCESS
             : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuKernelGetAttribute(int* pi, CUfunction_attribute attrib, CUkernel kernel, CUdevice dev) {
  Function* function = nullptr;
  Device* device = nullptr;
  Context* context = nullptr;
  TENDRIL_TRY(need_kernel_on(dev, kernel, &function, &device, &context));
  return attribute_of(context, device, function, pi, attrib);
}

CUresult cuKernelSetAttribute(CUfunction_attribute attrib, int val, CUkernel kernel, CUdevice dev) {
  Function* function = nullptr;
  Device* device = nullptr;
  Context* context = nullptr;
  TENDRIL_TRY(need_kernel_on(dev, kernel, &function, &device, &context));
  return set_attribute(context, device, function, attrib, val);
}

CUresult cuKernelSetCacheConfig(CUkernel kernel, CUfunc_cache config, CUdevice dev) {
  Function* function = nullptr;
  Device* device = nullptr;
  Context* context = nullptr;
  TENDRIL_TRY(need_kernel_on(dev, kernel, &function, &device, &context));
  return set_cache_config(context, device, function, config);
}

CUresult cuKernelGetParamInfo(CUkernel kernel, size_t paramIndex, size_t* paramOffset,
                              size_t* paramSize) {
  Function* function = nullptr;
  Context* context = nullptr;
  TENDRIL_TRY(need_kernel(kernel, &function));
  TENDRIL_TRY(require_context(&context));
  return param_info(context, function, paramIndex, paramOffset, paramSize);
}

}  // namespace tendril::client::cuda
