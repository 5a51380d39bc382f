// SPDX-License-Identifier: Apache-2.0
// Kernels of libraries, their functions in a context, and the contents of a module or a library.
// Loading is in module.cc.
#include <vector>

#include "api/cuda_handlers.gen.h"
#include "worker/cuda/module.h"

namespace tendril::worker::cuda {

CUresult handle(Executor& executor, const wire::cuda::library_kernel_request& request,
                wire::cuda::library_kernel_reply&) {
  if (executor.objects().find(Kind::kKernel, request.kernel) != nullptr) return CUDA_SUCCESS;
  Scope scope(executor);
  const CUlibrary library = scope.get<CUlibrary>(Kind::kLibrary, request.library);
  const char* name = scope.text(request.name);
  if (!scope.ok()) return scope.error();
  if (executor.driver().cuLibraryGetKernel == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  CUkernel kernel = nullptr;
  const CUresult result = executor.driver().cuLibraryGetKernel(&kernel, library, name);
  if (result != CUDA_SUCCESS) return result;
  if (!executor.objects().bind(Kind::kKernel, request.kernel, kernel))
    return CUDA_ERROR_INVALID_HANDLE;
  executor.code().add_member(request.library, request.kernel, nullptr);
  return CUDA_SUCCESS;
}

CUresult handle(Executor& executor, const wire::cuda::library_module_request& request,
                wire::cuda::library_module_reply&) {
  if (executor.objects().find(Kind::kModule, request.module) != nullptr) return CUDA_SUCCESS;
  Scope scope(executor);
  const CUlibrary library = scope.get<CUlibrary>(Kind::kLibrary, request.library);
  if (!scope.ok()) return scope.error();
  if (executor.driver().cuLibraryGetModule == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  if (!executor.code().pay(executor.charge(), request.library, executor.slot()))
    return CUDA_ERROR_OUT_OF_MEMORY;
  CUmodule module = nullptr;
  const CUresult result = executor.driver().cuLibraryGetModule(&module, library);
  if (result != CUDA_SUCCESS) return result;
  if (!executor.objects().bind(Kind::kModule, request.module, module))
    return CUDA_ERROR_INVALID_HANDLE;
  executor.code().add_member(request.library, request.module, context_of(executor));
  return CUDA_SUCCESS;
}

CUresult handle(Executor& executor, const wire::cuda::kernel_function_request& request,
                wire::cuda::kernel_function_reply&) {
  if (executor.objects().find(Kind::kFunction, request.function) != nullptr) return CUDA_SUCCESS;
  Scope scope(executor);
  const CUkernel kernel = scope.get<CUkernel>(Kind::kKernel, request.kernel);
  if (!scope.ok()) return scope.error();
  if (executor.driver().cuKernelGetFunction == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  if (!executor.code().pay(executor.charge(), request.kernel, executor.slot()))
    return CUDA_ERROR_OUT_OF_MEMORY;
  CUfunction function = nullptr;
  const CUresult result = executor.driver().cuKernelGetFunction(&function, kernel);
  if (result != CUDA_SUCCESS) return result;
  if (!executor.objects().bind(Kind::kFunction, request.function, function))
    return CUDA_ERROR_INVALID_HANDLE;
  executor.code().add_member(request.kernel, request.function, context_of(executor));
  return CUDA_SUCCESS;
}

namespace {

CUresult function_names(Executor& executor, CUmodule module, std::vector<const char*>* names) {
  gpu::Driver& driver = executor.driver();
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

CUresult kernel_names(Executor& executor, CUlibrary library, std::vector<const char*>* names) {
  gpu::Driver& driver = executor.driver();
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

CUresult handle(Executor& executor, const wire::cuda::module_functions_request& request,
                wire::cuda::module_functions_reply& reply) {
  Scope scope(executor);
  const bool in_module = request.kind == LoadKind::kModule;
  const CUmodule module = in_module ? scope.get<CUmodule>(Kind::kModule, request.module) : nullptr;
  const CUlibrary library =
      in_module ? nullptr : scope.get<CUlibrary>(Kind::kLibrary, request.module);
  if (!scope.ok()) return scope.error();
  std::vector<const char*> names;
  const CUresult result = in_module ? function_names(executor, module, &names)
                                    : kernel_names(executor, library, &names);
  if (result != CUDA_SUCCESS) return result;
  reply.count = static_cast<uint32_t>(names.size());
  reply.names = pack_names(&scope, names, request.first);
  return scope.error();
}

}  // namespace tendril::worker::cuda
