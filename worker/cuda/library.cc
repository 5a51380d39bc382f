// SPDX-License-Identifier: Apache-2.0
// Kernels of libraries, what they are in a context, and what a module or a library holds. Loading
// is in module.cc.
#include <vector>

#include "api/cuda_handlers.gen.h"
#include "worker/cuda/module.h"

namespace tendril::worker::cuda {

CUresult handle(Executor& w, const wire::cuda::library_kernel_request& m,
                wire::cuda::library_kernel_reply&) {
  if (w.objects().find(Kind::kKernel, m.kernel) != nullptr) return CUDA_SUCCESS;
  Scope s(w);
  const CUlibrary library = s.get<CUlibrary>(Kind::kLibrary, m.library);
  const char* name = s.text(m.name);
  if (!s.ok()) return s.error();
  if (w.driver().cuLibraryGetKernel == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  CUkernel kernel = nullptr;
  const CUresult result = w.driver().cuLibraryGetKernel(&kernel, library, name);
  if (result != CUDA_SUCCESS) return result;
  if (!w.objects().bind(Kind::kKernel, m.kernel, kernel)) return CUDA_ERROR_INVALID_HANDLE;
  w.store().code().add_member(m.library, m.kernel, nullptr);
  return CUDA_SUCCESS;
}

CUresult handle(Executor& w, const wire::cuda::library_module_request& m,
                wire::cuda::library_module_reply&) {
  if (w.objects().find(Kind::kModule, m.module) != nullptr) return CUDA_SUCCESS;
  Scope s(w);
  const CUlibrary library = s.get<CUlibrary>(Kind::kLibrary, m.library);
  if (!s.ok()) return s.error();
  if (w.driver().cuLibraryGetModule == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  if (!w.store().code().pay(w.charge(), m.library, w.slot())) return CUDA_ERROR_OUT_OF_MEMORY;
  CUmodule module = nullptr;
  const CUresult result = w.driver().cuLibraryGetModule(&module, library);
  if (result != CUDA_SUCCESS) return result;
  if (!w.objects().bind(Kind::kModule, m.module, module)) return CUDA_ERROR_INVALID_HANDLE;
  w.store().code().add_member(m.library, m.module, context_of(w));
  return CUDA_SUCCESS;
}

CUresult handle(Executor& w, const wire::cuda::kernel_function_request& m,
                wire::cuda::kernel_function_reply&) {
  if (w.objects().find(Kind::kFunction, m.function) != nullptr) return CUDA_SUCCESS;
  Scope s(w);
  const CUkernel kernel = s.get<CUkernel>(Kind::kKernel, m.kernel);
  if (!s.ok()) return s.error();
  if (w.driver().cuKernelGetFunction == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  if (!w.store().code().pay(w.charge(), m.kernel, w.slot())) return CUDA_ERROR_OUT_OF_MEMORY;
  CUfunction function = nullptr;
  const CUresult result = w.driver().cuKernelGetFunction(&function, kernel);
  if (result != CUDA_SUCCESS) return result;
  if (!w.objects().bind(Kind::kFunction, m.function, function)) return CUDA_ERROR_INVALID_HANDLE;
  w.store().code().add_member(m.kernel, m.function, context_of(w));
  return CUDA_SUCCESS;
}

namespace {

CUresult function_names(Executor& w, CUmodule module, std::vector<const char*>* names) {
  gpu::Driver& driver = w.driver();
  if (driver.cuModuleGetFunctionCount == nullptr || driver.cuModuleEnumerateFunctions == nullptr ||
      driver.cuFuncGetName == nullptr) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  unsigned count = 0;
  CUresult result = driver.cuModuleGetFunctionCount(&count, module);
  if (result != CUDA_SUCCESS || count == 0) return result;
  std::vector<CUfunction> functions(count);
  result = driver.cuModuleEnumerateFunctions(functions.data(), count, module);
  for (const CUfunction function : functions) {
    const char* name = nullptr;
    if (result == CUDA_SUCCESS) result = driver.cuFuncGetName(&name, function);
    if (result == CUDA_SUCCESS) names->push_back(name);
  }
  return result;
}

CUresult kernel_names(Executor& w, CUlibrary library, std::vector<const char*>* names) {
  gpu::Driver& driver = w.driver();
  if (driver.cuLibraryGetKernelCount == nullptr || driver.cuLibraryEnumerateKernels == nullptr ||
      driver.cuKernelGetName == nullptr) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  unsigned count = 0;
  CUresult result = driver.cuLibraryGetKernelCount(&count, library);
  if (result != CUDA_SUCCESS || count == 0) return result;
  std::vector<CUkernel> kernels(count);
  result = driver.cuLibraryEnumerateKernels(kernels.data(), count, library);
  for (const CUkernel kernel : kernels) {
    const char* name = nullptr;
    if (result == CUDA_SUCCESS) result = driver.cuKernelGetName(&name, kernel);
    if (result == CUDA_SUCCESS) names->push_back(name);
  }
  return result;
}

}  // namespace

CUresult handle(Executor& w, const wire::cuda::module_functions_request& m,
                wire::cuda::module_functions_reply& r) {
  Scope s(w);
  const bool in_module = m.kind == LoadKind::kModule;
  const CUmodule module = in_module ? s.get<CUmodule>(Kind::kModule, m.module) : nullptr;
  const CUlibrary library = in_module ? nullptr : s.get<CUlibrary>(Kind::kLibrary, m.module);
  if (!s.ok()) return s.error();
  std::vector<const char*> names;
  const CUresult result =
      in_module ? function_names(w, module, &names) : kernel_names(w, library, &names);
  if (result != CUDA_SUCCESS) return result;
  r.count = static_cast<uint32_t>(names.size());
  r.names = pack_names(&s, names, m.first);
  return s.error();
}

}  // namespace tendril::worker::cuda
