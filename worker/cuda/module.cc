// SPDX-License-Identifier: Apache-2.0
// Uploads, modules, their functions and variables. The peer is hostile. So hashes, sizes and
// headers are checked before the driver sees an image. Loading the same id twice is no error: see
// api/cuda/module.spec.
#include "worker/cuda/module.h"

#include <cstring>

#include "api/cuda/code_image.h"
#include "api/cuda_handlers.gen.h"
#include "worker/cuda/code/jit_options.h"
#include "worker/cuda/memory/mirror.h"
#include "worker/cuda/passage/passages.h"

namespace tendril::worker::cuda {
namespace {

constexpr uint64_t kNamesBytesMax = 512u << 10;  // of one reply
constexpr uint64_t kCodeBytes = 64u << 10;       // what a driver takes for the smallest module

// True: nothing that the headers name reaches past the bytes that we hold. The driver trusts the
// headers.
bool fits(const CodeStore::Image& image) {
  const api::CodeImage code = api::code_image(image->data.get(), image->bytes);
  return code.kind != api::CodeKind::kNone && code.bytes <= image->bytes;
}

CUresult load_module(Executor& executor, JitOptions* jit, const void* image, CUmodule* module) {
  gpu::Driver& driver = executor.driver();
  executor.gate().before_a_long_call();
  if (driver.cuModuleLoadDataEx != nullptr) {
    return driver.cuModuleLoadDataEx(module, image, jit->count(), jit->options(), jit->values());
  }
  return driver.cuModuleLoadData != nullptr ? driver.cuModuleLoadData(module, image)
                                            : CUDA_ERROR_NOT_SUPPORTED;
}

CUresult load_library(Executor& executor, JitOptions* jit, const void* image, CUlibrary* library) {
  if (executor.driver().cuLibraryLoadData == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  executor.gate().before_a_long_call();
  // We keep the image, so the driver need not.
  CUlibraryOption option = CU_LIBRARY_BINARY_IS_PRESERVED;
  void* value = reinterpret_cast<void*>(1);
  return executor.driver().cuLibraryLoadData(library, image, jit->options(), jit->values(),
                                             jit->count(), &option, &value, 1);
}

void unload(Executor& executor, LoadKind kind, void* object) {
  gpu::Driver& driver = executor.driver();
  if (kind == LoadKind::kLibrary && driver.cuLibraryUnload != nullptr)
    driver.cuLibraryUnload(static_cast<CUlibrary>(object));
  if (kind == LoadKind::kModule && driver.cuModuleUnload != nullptr)
    driver.cuModuleUnload(static_cast<CUmodule>(object));
}

Kind object_kind(LoadKind kind) {
  return kind == LoadKind::kModule ? Kind::kModule : Kind::kLibrary;
}

// Lets the driver load the image, under an id. The session pays for the code in host memory: for
// the driver's copy, and the driver's records of what is in it.
CUresult load(Executor& executor, LoadKind kind, uint64_t id, const ImageBytes& image,
              JitOptions* jit) {
  const uint64_t code_bytes = 2 * image.bytes + kCodeBytes;
  CUmodule module = nullptr;
  CUlibrary library = nullptr;
  const uint8_t* bytes = image.data.get();
  executor.passages().before_code_is_loaded();
  const CUresult result = kind == LoadKind::kModule ? load_module(executor, jit, bytes, &module)
                                                    : load_library(executor, jit, bytes, &library);
  if (result != CUDA_SUCCESS) return result;
  void* object =
      kind == LoadKind::kModule ? static_cast<void*>(module) : static_cast<void*>(library);
  const bool held = executor.hold_host(object, code_bytes);
  if (held && executor.objects().bind(object_kind(kind), id, object)) return CUDA_SUCCESS;
  unload(executor, kind, object);
  if (held) executor.release_host(object);
  return held ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_OUT_OF_MEMORY;
}

// Answers for bytes that are no code. The driver gets a page of zeros instead, so that the
// program's log has the driver's own message.
CUresult refuse(Executor& executor, LoadKind kind, JitOptions* jit) {
  static constexpr uint8_t kNoCode[4096] = {};
  CUmodule module = nullptr;
  CUlibrary library = nullptr;
  const CUresult result = kind == LoadKind::kModule
                              ? load_module(executor, jit, kNoCode, &module)
                              : load_library(executor, jit, kNoCode, &library);
  return result == CUDA_SUCCESS ? CUDA_ERROR_INVALID_IMAGE : result;
}

}  // namespace

void forget_code(Executor& executor, CUcontext context) {
  executor.code().remove_context(executor.objects(), executor.charge(), context);
  executor.mirrors().drop_lost(&executor.driver());
}

ImageBytes receive_image(Executor& executor, uint64_t transfer, uint64_t size,
                         const wire::Bytes& data) {
  return worker::receive_image(&executor.service(), executor.host().most(), transfer, size, data);
}

wire::Bytes pack_names(Scope* scope, const std::vector<const char*>& names, uint32_t first) {
  uint64_t bytes = 0;
  size_t end = first;
  while (end < names.size() && bytes + std::strlen(names[end]) + 1 <= kNamesBytesMax)
    bytes += std::strlen(names[end++]) + 1;
  uint8_t* packed = scope->scratch<uint8_t>(bytes);
  if (packed == nullptr) return {};
  uint64_t at = 0;
  for (size_t i = first; i < end; ++i) {
    const size_t length = std::strlen(names[i]) + 1;
    std::memcpy(packed + at, names[i], length);
    at += length;
  }
  return {packed, bytes};
}

CUresult handle(Executor& executor, const wire::cuda::image_upload_request& request) {
  ImageBytes image = receive_image(executor, request.transfer, request.size, request.data);
  executor.store().add(
      hash_text(request.hash),
      std::move(image));  // on failure, the load that follows will not find the image
  return CUDA_SUCCESS;
}

CUresult handle(Executor& executor, const wire::cuda::module_load_request& request,
                wire::cuda::module_load_reply& reply) {
  const LoadKind kind = request.kind;
  if (kind == LoadKind::kManaged) return CUDA_ERROR_INVALID_VALUE;
  if (executor.objects().find(object_kind(kind), request.handle) != nullptr) return CUDA_SUCCESS;
  if (kind == LoadKind::kModule && executor.context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  const CodeStore::Image image = executor.store().find(hash_text(request.hash), request.size);
  if (image == nullptr) return CUDA_ERROR_FILE_NOT_FOUND;
  JitOptions jit;
  CUresult result = jit.take(request);
  if (result != CUDA_SUCCESS) return result;
  if (!fits(image)) {
    result = refuse(executor, kind, &jit);
    jit.report(executor, &reply);
    return result;
  }
  LoadedCode& code = executor.code();
  const bool is_module = kind == LoadKind::kModule;
  // The driver copies the image of a module, but not the image of a library.
  code.add(request.handle, is_module ? context_of(executor) : nullptr, is_module ? nullptr : image,
           code_variables(image->data.get(), image->bytes));
  result = code.pay(executor.charge(), request.handle, executor.slot())
               ? load(executor, kind, request.handle, *image, &jit)
               : CUDA_ERROR_OUT_OF_MEMORY;
  jit.report(executor, &reply);
  if (result != CUDA_SUCCESS) code.remove(executor.objects(), executor.charge(), request.handle);
  // To our client this answer means that the image is not uploaded.
  return result == CUDA_ERROR_FILE_NOT_FOUND ? CUDA_ERROR_INVALID_IMAGE : result;
}

CUresult handle(Executor& executor, const wire::cuda::module_unload_request& request) {
  const LoadKind kind = request.kind;
  if (kind == LoadKind::kManaged) return CUDA_ERROR_INVALID_VALUE;
  void* object = executor.objects().find(object_kind(kind), request.handle);
  if (object == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  unload(executor, kind, object);
  executor.code().remove(executor.objects(), executor.charge(), request.handle);
  executor.mirrors().drop_lost(&executor.driver());
  return CUDA_SUCCESS;
}

CUresult handle(Executor& executor, const wire::cuda::module_function_request& request,
                wire::cuda::module_function_reply&) {
  if (executor.objects().find(Kind::kFunction, request.function) != nullptr) return CUDA_SUCCESS;
  Scope scope(executor);
  const CUmodule module = scope.get<CUmodule>(Kind::kModule, request.module);
  const char* name = scope.text(request.name);
  if (!scope.ok()) return scope.error();
  if (executor.driver().cuModuleGetFunction == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  CUfunction function = nullptr;
  const CUresult result = executor.driver().cuModuleGetFunction(&function, module, name);
  if (result != CUDA_SUCCESS) return result;
  if (!executor.objects().bind(Kind::kFunction, request.function, function))
    return CUDA_ERROR_INVALID_HANDLE;
  executor.code().add_member(request.module, request.function, context_of(executor));
  return CUDA_SUCCESS;
}

// Loads the library into some context. Managed variables of a library exist only then, and programs
// ask for them before they have a context.
CUresult load_somewhere(Executor& executor, CUlibrary library) {
  gpu::Driver& driver = executor.driver();
  CUmodule module = nullptr;
  if (executor.context() != nullptr) return driver.cuLibraryGetModule(&module, library);
  CUcontext primary = nullptr, popped = nullptr;
  CUresult result = driver.cuDevicePrimaryCtxRetain(&primary, executor.device_of(0));
  if (result != CUDA_SUCCESS) return result;
  result = driver.cuCtxPushCurrent_v2(primary);
  if (result != CUDA_SUCCESS) return result;
  result = driver.cuLibraryGetModule(&module, library);
  driver.cuCtxPopCurrent_v2(&popped);
  return result;
}

CUresult handle(Executor& executor, const wire::cuda::module_global_request& request,
                wire::cuda::module_global_reply& reply) {
  Scope scope(executor);
  const LoadKind kind = request.kind;
  const bool in_module = kind == LoadKind::kModule;
  const CUmodule module = in_module ? scope.get<CUmodule>(Kind::kModule, request.module) : nullptr;
  const CUlibrary library =
      in_module ? nullptr : scope.get<CUlibrary>(Kind::kLibrary, request.module);
  const char* name = scope.text(request.name);
  if (!scope.ok()) return scope.error();
  gpu::Driver& driver = executor.driver();
  if (!executor.code().pay(executor.charge(), request.module, executor.slot()))
    return CUDA_ERROR_OUT_OF_MEMORY;
  CUdeviceptr address = 0;
  size_t size = 0;
  CUresult result = CUDA_ERROR_NOT_SUPPORTED;
  if (in_module && driver.cuModuleGetGlobal_v2 != nullptr) {
    result = driver.cuModuleGetGlobal_v2(&address, &size, module, name);
  } else if (kind == LoadKind::kLibrary && driver.cuLibraryGetGlobal != nullptr) {
    result = driver.cuLibraryGetGlobal(&address, &size, library, name);
  } else if (kind == LoadKind::kManaged && driver.cuLibraryGetManaged != nullptr) {
    result = load_somewhere(executor, library);
    if (result == CUDA_SUCCESS) result = driver.cuLibraryGetManaged(&address, &size, library, name);
  }
  if (result != CUDA_SUCCESS) return result;
  LoadedCode& code = executor.code();
  if (!code.pay_variable(executor.charge(), request.module, executor.slot(), address, size))
    return CUDA_ERROR_OUT_OF_MEMORY;
  reply.address = address;
  reply.size = size;
  reply.managed = kind == LoadKind::kManaged || is_managed(&driver, address);
  return reply.managed != 0 ? executor.mirrors().adopt(address, size) : CUDA_SUCCESS;
}

CUresult handle(Executor& executor, const wire::cuda::function_state_request& request,
                wire::cuda::function_state_reply& reply) {
  Scope scope(executor);
  const CUfunction function = scope.get<CUfunction>(Kind::kFunction, request.function);
  if (!scope.ok()) return scope.error();
  gpu::Driver& driver = executor.driver();
  if (request.load != 0) {
    reply.loaded = 1;
    return driver.cuFuncLoad != nullptr ? driver.cuFuncLoad(function) : CUDA_ERROR_NOT_SUPPORTED;
  }
  if (driver.cuFuncIsLoaded == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  CUfunctionLoadingState state = CU_FUNCTION_LOADING_STATE_UNLOADED;
  const CUresult result = driver.cuFuncIsLoaded(&state, function);
  reply.loaded = state == CU_FUNCTION_LOADING_STATE_LOADED;
  return result;
}

}  // namespace tendril::worker::cuda
