// SPDX-License-Identifier: Apache-2.0
// Libraries and kernels: code without a context. A library becomes a module in each context that
// uses it.

#include <algorithm>

#include "softgpu/driver/code/jit_options.h"
#include "softgpu/driver/code/module.h"
#include "softgpu/driver/device/device.h"
#include "softgpu/driver/entry.h"

namespace tendril::softgpu {
namespace {

CUresult load(CUlibrary* out, const void* image, size_t limit, const JitOptions& options) {
  std::shared_ptr<Program> program;
  std::string log;
  CUresult result = load_program(image, limit, device_sm(), &program, &log);
  options.report("", log);
  if (result != CUDA_SUCCESS) return result;
  auto made = std::make_shared<Library>();
  made->program = std::move(program);
  for (size_t i = 0; i < made->program->kernels().size(); ++i) {
    auto kernel = std::make_shared<Kernel>();
    kernel->library = made;
    kernel->index = i;
    kernel->handle = kernels().mint();
    kernels().put(kernel->handle, kernel);
    made->kernels.push_back(std::move(kernel));
  }
  made->handle = libraries().add(made);
  *out = made->handle;
  return CUDA_SUCCESS;
}

CUresult check_options(unsigned count, CUlibraryOption* options) {
  if (count != 0 && options == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (count > CU_LIBRARY_NUM_OPTIONS) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned i = 0; i < count; ++i)
    if (static_cast<unsigned>(options[i]) >= CU_LIBRARY_NUM_OPTIONS)
      return CUDA_ERROR_INVALID_VALUE;
  return CUDA_SUCCESS;
}

// The kernel and its library. Both live as long as these pointers.
CUresult named(CUkernel handle, KernelPtr* kernel, LibraryPtr* library) {
  *kernel = kernels().get(handle);
  *library = *kernel ? (*kernel)->library.lock() : nullptr;
  return *library ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

const KernelInfo& info_of(const Library& library, const Kernel& kernel) {
  return library.program->kernels()[kernel.index];
}

}  // namespace

LibraryTable& libraries() {
  static auto& table = *new LibraryTable;
  return table;
}
KernelTable& kernels() {
  static auto& table = *new KernelTable;
  return table;
}

std::shared_ptr<FunctionState> Kernel::state(int device) {
  std::lock_guard guard(lock);
  auto& slot = states[device];
  if (!slot) slot = std::make_shared<FunctionState>();
  return slot;
}

CUresult Library::make_managed(int device) {
  if (!managed) managed = ManagedVariables::make(*program, device);
  return managed ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult Library::instance(const ContextPtr& context, ModulePtr* out) {
  std::lock_guard guard(lock);
  ModulePtr& slot = instances[context->handle];
  if (!slot) {
    ModulePtr made;
    CUresult bad = make_managed(context->device);
    if (bad == CUDA_SUCCESS) bad = make_module(context, program, managed, &made);
    if (bad != CUDA_SUCCESS) {
      instances.erase(context->handle);
      return bad;
    }
    made->library = weak_from_this();
    slot = std::move(made);
  }
  *out = slot;
  return CUDA_SUCCESS;
}

SOFT(cuLibraryLoadData)
(CUlibrary* library, const void* code, CUjit_option* jitOptions, void** jitOptionsValues,
 unsigned int numJitOptions, CUlibraryOption* libraryOptions, void** libraryOptionValues,
 unsigned int numLibraryOptions) {
  if (library == nullptr || code == nullptr) return CUDA_ERROR_INVALID_VALUE;
  JitOptions jit;
  if (CUresult bad = jit.read(numJitOptions, jitOptions, jitOptionsValues)) return bad;
  if (CUresult bad = check_options(numLibraryOptions, libraryOptions)) return bad;
  return load(library, code, SIZE_MAX, jit);
}

SOFT(cuLibraryLoadFromFile)
(CUlibrary* library, const char* fileName, CUjit_option* jitOptions, void** jitOptionsValues,
 unsigned int numJitOptions, CUlibraryOption* libraryOptions, void** libraryOptionValues,
 unsigned int numLibraryOptions) {
  if (library == nullptr || fileName == nullptr) return CUDA_ERROR_INVALID_VALUE;
  JitOptions jit;
  if (CUresult bad = jit.read(numJitOptions, jitOptions, jitOptionsValues)) return bad;
  if (CUresult bad = check_options(numLibraryOptions, libraryOptions)) return bad;
  std::vector<uint8_t> bytes;
  if (!read_file(fileName, &bytes)) return CUDA_ERROR_FILE_NOT_FOUND;
  return load(library, bytes.data(), bytes.size(), jit);
}

SOFT(cuLibraryUnload)(CUlibrary handle) {
  LibraryPtr library = libraries().remove(handle);
  if (!library) return CUDA_ERROR_INVALID_HANDLE;
  std::map<CUcontext, ModulePtr> instances;
  {
    std::lock_guard guard(library->lock);
    instances.swap(library->instances);
  }
  for (auto& [context, module] : instances) {
    if (ContextPtr owner = contexts().get(context)) owner->synchronise();
    module->unload();
  }
  for (const KernelPtr& kernel : library->kernels) kernels().remove(kernel->handle);
  return CUDA_SUCCESS;
}

SOFT(cuLibraryGetKernel)(CUkernel* pKernel, CUlibrary handle, const char* name) {
  if (pKernel == nullptr || name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  LibraryPtr library = libraries().get(handle);
  if (!library) return CUDA_ERROR_INVALID_HANDLE;
  const auto& list = library->program->kernels();
  for (size_t i = 0; i < list.size(); ++i) {
    if (list[i].name != name) continue;
    *pKernel = library->kernels[i]->handle;
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_NOT_FOUND;
}

SOFT(cuLibraryGetKernelCount)(unsigned int* count, CUlibrary lib) {
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  LibraryPtr library = libraries().get(lib);
  if (!library) return CUDA_ERROR_INVALID_HANDLE;
  *count = static_cast<unsigned>(library->kernels.size());
  return CUDA_SUCCESS;
}

SOFT(cuLibraryEnumerateKernels)(CUkernel* list, unsigned int numKernels, CUlibrary lib) {
  LibraryPtr library = libraries().get(lib);
  if (!library) return CUDA_ERROR_INVALID_HANDLE;
  if (list == nullptr || numKernels == 0) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < std::min<size_t>(numKernels, library->kernels.size()); ++i)
    list[i] = library->kernels[i]->handle;
  return CUDA_SUCCESS;
}

SOFT(cuLibraryGetModule)(CUmodule* pMod, CUlibrary handle) {
  if (pMod == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SOFT_CONTEXT(context);
  LibraryPtr library = libraries().get(handle);
  if (!library) return CUDA_ERROR_INVALID_HANDLE;
  ModulePtr module;
  if (CUresult bad = library->instance(context, &module)) return bad;
  *pMod = module->handle;
  return CUDA_SUCCESS;
}

SOFT(cuLibraryGetGlobal)(CUdeviceptr* dptr, size_t* bytes, CUlibrary library, const char* name) {
  CUmodule module;
  if (libraries().get(library) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (CUresult bad = soft_cuLibraryGetModule(&module, library)) return bad;
  return soft_cuModuleGetGlobal_v2(dptr, bytes, module, name);
}

SOFT(cuLibraryGetManaged)(CUdeviceptr* dptr, size_t* bytes, CUlibrary library, const char* name) {
  if (name == nullptr || (dptr == nullptr && bytes == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  LibraryPtr found = libraries().get(library);
  if (!found) return CUDA_ERROR_INVALID_HANDLE;
  const auto& globals = found->program->globals();
  for (size_t i = 0; i < globals.size(); ++i) {
    if (!globals[i].managed || globals[i].name != name) continue;
    std::lock_guard guard(found->lock);
    if (CUresult bad = found->make_managed(0)) return bad;
    if (dptr != nullptr) *dptr = found->managed->address(i);
    if (bytes != nullptr) *bytes = globals[i].size;
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_NOT_FOUND;
}

SOFT(cuLibraryGetUnifiedFunction)(void** fptr, CUlibrary library, const char* symbol) {
  if (fptr == nullptr || symbol == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return libraries().get(library) ? CUDA_ERROR_NOT_FOUND : CUDA_ERROR_INVALID_HANDLE;
}

SOFT(cuKernelGetFunction)(CUfunction* pFunc, CUkernel handle) {
  if (pFunc == nullptr) return CUDA_ERROR_INVALID_VALUE;
  KernelPtr kernel;
  LibraryPtr library;
  if (CUresult bad = named(handle, &kernel, &library)) return bad;
  SOFT_CONTEXT(context);
  FunctionPtr function;
  if (CUresult bad = find_function(reinterpret_cast<CUfunction>(handle), context, &function))
    return bad;
  *pFunc = function->handle;
  return CUDA_SUCCESS;
}

SOFT(cuKernelGetLibrary)(CUlibrary* pLib, CUkernel handle) {
  KernelPtr kernel;
  LibraryPtr library;
  if (pLib == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (CUresult bad = named(handle, &kernel, &library)) return bad;
  *pLib = library->handle;
  return CUDA_SUCCESS;
}

SOFT(cuKernelGetName)(const char** name, CUkernel handle) {
  KernelPtr kernel;
  LibraryPtr library;
  if (name == nullptr || handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (CUresult bad = named(handle, &kernel, &library)) return bad;
  *name = info_of(*library, *kernel).name.c_str();
  return CUDA_SUCCESS;
}

SOFT(cuKernelGetAttribute)(int* pi, CUfunction_attribute attrib, CUkernel handle, CUdevice dev) {
  KernelPtr kernel;
  LibraryPtr library;
  if (pi == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (CUresult bad = named(handle, &kernel, &library)) return bad;
  if (device_at(dev) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  return get_attribute(*library->program, info_of(*library, *kernel), *kernel->state(dev), attrib,
                       pi);
}

SOFT(cuKernelSetAttribute)(CUfunction_attribute attrib, int val, CUkernel handle, CUdevice dev) {
  KernelPtr kernel;
  LibraryPtr library;
  if (CUresult bad = named(handle, &kernel, &library)) return bad;
  if (device_at(dev) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  return set_attribute(info_of(*library, *kernel), *kernel->state(dev), attrib, val);
}

SOFT(cuKernelSetCacheConfig)(CUkernel handle, CUfunc_cache config, CUdevice dev) {
  KernelPtr kernel;
  LibraryPtr library;
  if (CUresult bad = named(handle, &kernel, &library)) return bad;
  if (static_cast<unsigned>(config) > CU_FUNC_CACHE_PREFER_EQUAL) return CUDA_ERROR_INVALID_VALUE;
  return device_at(dev) == nullptr ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

SOFT(cuKernelGetParamInfo)
(CUkernel handle, size_t paramIndex, size_t* paramOffset, size_t* paramSize) {
  KernelPtr kernel;
  LibraryPtr library;
  if (paramOffset == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (CUresult bad = named(handle, &kernel, &library)) return bad;
  SOFT_CONTEXT(context);  // a kernel's layout, unlike its attributes, is of the current one
  const auto& params = info_of(*library, *kernel).params;
  if (paramIndex >= params.size()) return CUDA_ERROR_INVALID_VALUE;
  *paramOffset = params[paramIndex].offset;
  if (paramSize != nullptr) *paramSize = params[paramIndex].size;
  return CUDA_SUCCESS;
}

}  // namespace tendril::softgpu
