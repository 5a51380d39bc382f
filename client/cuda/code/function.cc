// SPDX-License-Identifier: Apache-2.0
// Functions and kernels: parameter layout and attributes are fetched once per device, and then
// answered here.
#include "client/cuda/code/function.h"

#include <algorithm>

namespace tendril::client::cuda {

// What was known of functions that are no more. Programs that load the same code again and again
// find it here. The lock also orders changes of functions' lists.
struct RetiredInfos {
  base::Lock lock;
  std::vector<FunctionInfo*> all;
};

namespace {

// Caller holds the lock. A late reader may still use a retired record, so it is used again only for
// a function whose vectors are the same.
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

// `c`: a context on that device, or null.
const FunctionInfo* fetch_info(Context* c, const Device* d, Function* function, CUresult* error) {
  wire::cuda::function_info_request m;
  wire::cuda::function_info_reply r;
  m.function = function_wire_id(function, d->session, error);
  if (m.function == 0) return nullptr;
  m.slot = d->slot;
  *error = d->session->call(c, m, r);
  if (*error != CUDA_SUCCESS) return nullptr;
  FunctionInfo now;
  now.device = d;
  now.laid_out = r.laid_out != 0;
  now.offsets.assign(r.offsets.begin(), r.offsets.end());
  now.sizes.assign(r.sizes.begin(), r.sizes.end());
  if (now.sizes.size() != now.offsets.size()) now.sizes.resize(now.offsets.size());
  for (size_t i = 0; i < now.offsets.size(); ++i)
    now.param_bytes = std::max(now.param_bytes, now.offsets[i] + now.sizes[i]);
  for (uint64_t i = 0; i < r.attributes.count && i < 32; ++i) now.attributes[i] = r.attributes[i];
  now.attribute_count = static_cast<uint32_t>(r.attributes.count < 32 ? r.attributes.count : 32);
  const base::Locked held(process()->retired_infos->lock);
  FunctionInfo* info = take_retired(now);
  if (info == nullptr) info = new FunctionInfo(std::move(now));
  info->next = function->info.load();
  function->info.store(info, std::memory_order_release);
  return info;
}

CUresult attribute_of(Context* c, const Device* d, Function* f, int* pi,
                      CUfunction_attribute attrib) {
  if (pi == nullptr || attrib < 0 || attrib >= CU_FUNC_ATTRIBUTE_MAX)
    return CUDA_ERROR_INVALID_VALUE;
  CUresult error = CUDA_SUCCESS;
  const FunctionInfo* info = find_info(f, d);
  if (info == nullptr) info = fetch_info(c, d, f, &error);
  if (info == nullptr) return error;
  if (static_cast<uint32_t>(attrib) >= info->attribute_count) return CUDA_ERROR_INVALID_VALUE;
  *pi = info->attributes[attrib];
  return CUDA_SUCCESS;
}

CUresult set_attribute(Context* c, const Device* d, Function* f, CUfunction_attribute attrib,
                       int value) {
  if (attrib < 0 || attrib >= CU_FUNC_ATTRIBUTE_MAX) return CUDA_ERROR_INVALID_VALUE;
  const FunctionInfo* known = find_info(f, d);
  if (known != nullptr && known->attributes[attrib] == value) return CUDA_SUCCESS;
  CUresult error = CUDA_SUCCESS;
  wire::cuda::function_set_attribute_request m;
  wire::cuda::function_set_attribute_reply r;
  m.function = function_wire_id(f, d->session, &error);
  if (m.function == 0) return error;
  m.attribute = static_cast<uint32_t>(attrib);
  m.value = value;
  m.slot = d->slot;
  TENDRIL_TRY(d->session->call(c, m, r));
  forget_occupancy(f);
  if (known != nullptr) known->attributes[attrib] = value;
  return CUDA_SUCCESS;
}

CUresult param_info(Context* c, Function* f, size_t index, size_t* offset, size_t* size) {
  if (offset == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUresult error = CUDA_SUCCESS;
  const FunctionInfo* info = function_info(c, f, &error);
  if (info == nullptr) return error;
  if (index >= info->offsets.size()) return CUDA_ERROR_INVALID_VALUE;
  *offset = info->offsets[index];
  if (size != nullptr) *size = info->sizes[index];
  return CUDA_SUCCESS;
}

CUresult set_cache_config(Context* c, const Device* d, Function* f, CUfunc_cache config) {
  if (config < CU_FUNC_CACHE_PREFER_NONE || config > CU_FUNC_CACHE_PREFER_EQUAL)
    return CUDA_ERROR_INVALID_VALUE;
  CUresult error = CUDA_SUCCESS;
  wire::cuda::function_set_cache_config_request m;
  m.function = function_wire_id(f, d->session, &error);
  if (m.function == 0) return error;
  m.config = static_cast<uint32_t>(config);
  m.slot = d->slot;
  return d->session->enqueue(c, m);
}

CUresult need_kernel(CUkernel handle, Function** out) {
  if (process() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  *out = process()->kernels.find(Kind::kKernel, handle_value(handle));
  return *out != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult need_function(CUfunction handle, Context** c, Function** out) {
  TENDRIL_TRY(require_context(c));
  *out = find_function(handle);
  return *out != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

// For calls that an H200's driver answers without a current context too: a module's function has a
// context of its own.
CUresult need_function_of_any_context(CUfunction handle, Context** c, Function** out) {
  Function* const function =
      process() != nullptr && current_context() == nullptr ? find_function(handle) : nullptr;
  if (function == nullptr || function->context == nullptr) return need_function(handle, c, out);
  *c = function->context;
  *out = function;
  return CUDA_SUCCESS;
}

// Questions about a kernel name a device. The device's current or primary context reaches the
// worker. Null: it has neither, and the driver answers what it can without one.
CUresult need_kernel_on(CUdevice dev, CUkernel handle, Function** f, Device** d, Context** c) {
  TENDRIL_TRY(need_kernel(handle, f));
  *d = device_of(dev);
  if (*d == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  Context* current = current_context();
  *c = current != nullptr && current->device == *d ? current : (*d)->primary;
  if ((*c)->active.load() == 0) *c = nullptr;
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

const FunctionInfo* function_info(Context* c, Function* function, CUresult* error) {
  const FunctionInfo* found = find_info(function, c->device);
  return found != nullptr && found->laid_out ? found : fetch_info(c, c->device, function, error);
}

CUresult cuFuncGetAttribute(int* pi, CUfunction_attribute attrib, CUfunction hfunc) {
  Context* c = nullptr;
  Function* f = nullptr;
  TENDRIL_TRY(need_function_of_any_context(hfunc, &c, &f));
  return attribute_of(c, c->device, f, pi, attrib);
}

CUresult cuFuncSetAttribute(CUfunction hfunc, CUfunction_attribute attrib, int value) {
  Context* c = nullptr;
  Function* f = nullptr;
  TENDRIL_TRY(need_function(hfunc, &c, &f));
  return set_attribute(c, c->device, f, attrib, value);
}

CUresult cuFuncGetParamInfo(CUfunction func, size_t paramIndex, size_t* paramOffset,
                            size_t* paramSize) {
  Context* c = nullptr;
  Function* f = nullptr;
  TENDRIL_TRY(need_function(func, &c, &f));
  return param_info(c, f, paramIndex, paramOffset, paramSize);
}

CUresult cuFuncSetCacheConfig(CUfunction hfunc, CUfunc_cache config) {
  Context* c = nullptr;
  Function* f = nullptr;
  TENDRIL_TRY(need_function(hfunc, &c, &f));
  return set_cache_config(c, c->device, f, config);
}

CUresult cuFuncSetSharedMemConfig(CUfunction hfunc, CUsharedconfig config) {
  Context* c = nullptr;
  Function* f = nullptr;
  TENDRIL_TRY(need_function(hfunc, &c, &f));
  return config >= 0 && config <= CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE
             ? CUDA_SUCCESS
             : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuKernelGetAttribute(int* pi, CUfunction_attribute attrib, CUkernel kernel, CUdevice dev) {
  Function* f = nullptr;
  Device* d = nullptr;
  Context* c = nullptr;
  TENDRIL_TRY(need_kernel_on(dev, kernel, &f, &d, &c));
  return attribute_of(c, d, f, pi, attrib);
}

CUresult cuKernelSetAttribute(CUfunction_attribute attrib, int val, CUkernel kernel, CUdevice dev) {
  Function* f = nullptr;
  Device* d = nullptr;
  Context* c = nullptr;
  TENDRIL_TRY(need_kernel_on(dev, kernel, &f, &d, &c));
  return set_attribute(c, d, f, attrib, val);
}

CUresult cuKernelSetCacheConfig(CUkernel kernel, CUfunc_cache config, CUdevice dev) {
  Function* f = nullptr;
  Device* d = nullptr;
  Context* c = nullptr;
  TENDRIL_TRY(need_kernel_on(dev, kernel, &f, &d, &c));
  return set_cache_config(c, d, f, config);
}

CUresult cuKernelGetParamInfo(CUkernel kernel, size_t paramIndex, size_t* paramOffset,
                              size_t* paramSize) {
  Function* f = nullptr;
  Context* c = nullptr;
  TENDRIL_TRY(need_kernel(kernel, &f));
  TENDRIL_TRY(require_context(&c));
  return param_info(c, f, paramIndex, paramOffset, paramSize);
}

}  // namespace tendril::client::cuda
