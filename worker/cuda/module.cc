// SPDX-License-Identifier: Apache-2.0
// Uploads, modules, their functions and variables. The peer is hostile: hashes, sizes and what
// headers claim are checked before the driver sees an image. Loading one id twice is no error: see
// api/cuda/module.spec.
#include "worker/cuda/module.h"

#include <cstring>

#include "api/cuda/code_image.h"
#include "api/cuda_handlers.gen.h"
#include "worker/cuda/code/jit_options.h"
#include "worker/cuda/memory/mirror.h"

namespace tendril::worker::cuda {
namespace {

constexpr uint64_t kNamesBytesMax = 512u << 10;  // of one reply

// The driver believes the headers, so nothing may reach past the bytes we hold.
bool fits(const ModuleStore::Image& image) {
  const api::CodeImage code = api::code_image(image->data.get(), image->bytes);
  return code.kind != api::CodeKind::kNone && code.bytes <= image->bytes;
}

CUresult load_module(Executor& w, JitOptions* jit, const void* image, CUmodule* module) {
  gpu::Driver& driver = w.driver();
  w.gate().before_a_long_call();
  if (driver.cuModuleLoadDataEx != nullptr) {
    return driver.cuModuleLoadDataEx(module, image, jit->count(), jit->options(), jit->values());
  }
  return driver.cuModuleLoadData != nullptr ? driver.cuModuleLoadData(module, image)
                                            : CUDA_ERROR_NOT_SUPPORTED;
}

CUresult load_library(Executor& w, JitOptions* jit, const void* image, CUlibrary* library) {
  if (w.driver().cuLibraryLoadData == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  w.gate().before_a_long_call();
  // We keep the image, so the driver need not.
  CUlibraryOption option = CU_LIBRARY_BINARY_IS_PRESERVED;
  void* value = reinterpret_cast<void*>(1);
  return w.driver().cuLibraryLoadData(library, image, jit->options(), jit->values(), jit->count(),
                                      &option, &value, 1);
}

void unload(Executor& w, LoadKind kind, void* object) {
  gpu::Driver& driver = w.driver();
  if (kind == LoadKind::kLibrary && driver.cuLibraryUnload != nullptr)
    driver.cuLibraryUnload(static_cast<CUlibrary>(object));
  if (kind == LoadKind::kModule && driver.cuModuleUnload != nullptr)
    driver.cuModuleUnload(static_cast<CUmodule>(object));
}

Kind object_kind(LoadKind kind) {
  return kind == LoadKind::kModule ? Kind::kModule : Kind::kLibrary;
}

// Has the driver load it, under an id.
CUresult load(Executor& w, LoadKind kind, uint64_t id, const void* image, JitOptions* jit) {
  CUmodule module = nullptr;
  CUlibrary library = nullptr;
  const CUresult result = kind == LoadKind::kModule ? load_module(w, jit, image, &module)
                                                    : load_library(w, jit, image, &library);
  if (result != CUDA_SUCCESS) return result;
  void* object =
      kind == LoadKind::kModule ? static_cast<void*>(module) : static_cast<void*>(library);
  if (w.objects().bind(object_kind(kind), id, object)) return CUDA_SUCCESS;
  unload(w, kind, object);
  return CUDA_ERROR_INVALID_HANDLE;
}

// For what is no code: the driver is shown zeros, which it can read without end, for its words in
// the program's log.
CUresult refuse(Executor& w, LoadKind kind, JitOptions* jit) {
  static constexpr uint8_t kNoCode[4096] = {};
  CUmodule module = nullptr;
  CUlibrary library = nullptr;
  const CUresult result = kind == LoadKind::kModule ? load_module(w, jit, kNoCode, &module)
                                                    : load_library(w, jit, kNoCode, &library);
  return result == CUDA_SUCCESS ? CUDA_ERROR_INVALID_IMAGE : result;
}

}  // namespace

void forget_code(Executor& w, CUcontext context) {
  w.store().code().remove_context(w.objects(), w.charge(), context);
  w.mirrors().drop_lost(&w.driver());
}

ImageBytes receive_image(Executor& w, uint64_t transfer, uint64_t size, const wire::Bytes& data) {
  ImageBytes image = make_image(size);
  if (transfer == 0) {
    if (image.data == nullptr || data.count != size) return {};
    if (size != 0) std::memcpy(image.data.get(), data.data, size);
    return image;
  }
  if (image.data == nullptr) {
    w.service().end("an image of device code is too large for this server");
    return {};
  }
  for (uint64_t received = 0; received < size;) {
    session::Piece piece;
    if (!w.service().take(transfer, &piece)) return {};
    const bool good = api::code_within(piece.offset, piece.bytes, size) && piece.bytes != 0;
    if (good) std::memcpy(image.data.get() + piece.offset, piece.data, piece.bytes);
    received += piece.bytes;
    w.service().release(piece);
    if (!good) {
      w.service().end("a piece of device code lies outside of its image");
      return {};
    }
  }
  return image;
}

wire::Bytes pack_names(Scope* s, const std::vector<const char*>& names, uint32_t first) {
  uint64_t bytes = 0;
  size_t end = first;
  while (end < names.size() && bytes + std::strlen(names[end]) + 1 <= kNamesBytesMax)
    bytes += std::strlen(names[end++]) + 1;
  uint8_t* packed = s->scratch<uint8_t>(bytes);
  if (packed == nullptr) return {};
  uint64_t at = 0;
  for (size_t i = first; i < end; ++i) {
    const size_t length = std::strlen(names[i]) + 1;
    std::memcpy(packed + at, names[i], length);
    at += length;
  }
  return {packed, bytes};
}

CUresult handle(Executor& w, const wire::cuda::image_upload_request& m) {
  ImageBytes image = receive_image(w, m.transfer, m.size, m.data);
  w.store().add(hash_text(m.hash),
                std::move(image));  // of no worth: the load that follows will not find it
  return CUDA_SUCCESS;
}

CUresult handle(Executor& w, const wire::cuda::module_load_request& m,
                wire::cuda::module_load_reply& r) {
  const LoadKind kind = m.kind;
  if (kind == LoadKind::kManaged) return CUDA_ERROR_INVALID_VALUE;
  if (w.objects().find(object_kind(kind), m.handle) != nullptr) return CUDA_SUCCESS;
  if (kind == LoadKind::kModule && w.context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  const ModuleStore::Image image = w.store().find(hash_text(m.hash), m.size);
  if (image == nullptr) return CUDA_ERROR_FILE_NOT_FOUND;
  JitOptions jit;
  CUresult result = jit.take(m);
  if (result != CUDA_SUCCESS) return result;
  if (!fits(image)) {
    result = refuse(w, kind, &jit);
    jit.report(w, &r);
    return result;
  }
  LoadedCode& code = w.store().code();
  const bool is_module = kind == LoadKind::kModule;
  // The driver makes a copy of its own of a module, not of a library.
  code.add(m.handle, is_module ? context_of(w) : nullptr, is_module ? nullptr : image,
           code_variables(image->data.get(), image->bytes));
  result = code.pay(w.charge(), m.handle, w.slot())
               ? load(w, kind, m.handle, image->data.get(), &jit)
               : CUDA_ERROR_OUT_OF_MEMORY;
  jit.report(w, &r);
  if (result != CUDA_SUCCESS) code.remove(w.objects(), w.charge(), m.handle);
  // From us that answer means an image not uploaded.
  return result == CUDA_ERROR_FILE_NOT_FOUND ? CUDA_ERROR_INVALID_IMAGE : result;
}

CUresult handle(Executor& w, const wire::cuda::module_unload_request& m) {
  const LoadKind kind = m.kind;
  if (kind == LoadKind::kManaged) return CUDA_ERROR_INVALID_VALUE;
  void* object = w.objects().find(object_kind(kind), m.handle);
  if (object == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  unload(w, kind, object);
  w.store().code().remove(w.objects(), w.charge(), m.handle);
  w.mirrors().drop_lost(&w.driver());
  return CUDA_SUCCESS;
}

CUresult handle(Executor& w, const wire::cuda::module_function_request& m,
                wire::cuda::module_function_reply&) {
  if (w.objects().find(Kind::kFunction, m.function) != nullptr) return CUDA_SUCCESS;
  Scope s(w);
  const CUmodule module = s.get<CUmodule>(Kind::kModule, m.module);
  const char* name = s.text(m.name);
  if (!s.ok()) return s.error();
  if (w.driver().cuModuleGetFunction == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  CUfunction function = nullptr;
  const CUresult result = w.driver().cuModuleGetFunction(&function, module, name);
  if (result != CUDA_SUCCESS) return result;
  if (!w.objects().bind(Kind::kFunction, m.function, function)) return CUDA_ERROR_INVALID_HANDLE;
  w.store().code().add_member(m.module, m.function, context_of(w));
  return CUDA_SUCCESS;
}

// Managed variables of a library are there once a context has the library; programs ask for them
// before they have one.
CUresult load_somewhere(Executor& w, CUlibrary library) {
  gpu::Driver& driver = w.driver();
  CUmodule module = nullptr;
  if (w.context() != nullptr) return driver.cuLibraryGetModule(&module, library);
  CUcontext primary = nullptr, popped = nullptr;
  CUresult result = driver.cuDevicePrimaryCtxRetain(&primary, w.device_of(0));
  if (result != CUDA_SUCCESS) return result;
  result = driver.cuCtxPushCurrent_v2(primary);
  if (result != CUDA_SUCCESS) return result;
  result = driver.cuLibraryGetModule(&module, library);
  driver.cuCtxPopCurrent_v2(&popped);
  return result;
}

CUresult handle(Executor& w, const wire::cuda::module_global_request& m,
                wire::cuda::module_global_reply& r) {
  Scope s(w);
  const LoadKind kind = m.kind;
  const bool in_module = kind == LoadKind::kModule;
  const CUmodule module = in_module ? s.get<CUmodule>(Kind::kModule, m.module) : nullptr;
  const CUlibrary library = in_module ? nullptr : s.get<CUlibrary>(Kind::kLibrary, m.module);
  const char* name = s.text(m.name);
  if (!s.ok()) return s.error();
  gpu::Driver& driver = w.driver();
  if (!w.store().code().pay(w.charge(), m.module, w.slot())) return CUDA_ERROR_OUT_OF_MEMORY;
  CUdeviceptr address = 0;
  size_t size = 0;
  CUresult result = CUDA_ERROR_NOT_SUPPORTED;
  if (in_module && driver.cuModuleGetGlobal_v2 != nullptr) {
    result = driver.cuModuleGetGlobal_v2(&address, &size, module, name);
  } else if (kind == LoadKind::kLibrary && driver.cuLibraryGetGlobal != nullptr) {
    result = driver.cuLibraryGetGlobal(&address, &size, library, name);
  } else if (kind == LoadKind::kManaged && driver.cuLibraryGetManaged != nullptr) {
    result = load_somewhere(w, library);
    if (result == CUDA_SUCCESS) result = driver.cuLibraryGetManaged(&address, &size, library, name);
  }
  if (result != CUDA_SUCCESS) return result;
  LoadedCode& code = w.store().code();
  if (!code.pay_variable(w.charge(), m.module, w.slot(), address, size))
    return CUDA_ERROR_OUT_OF_MEMORY;
  r.address = address;
  r.size = size;
  r.managed = kind == LoadKind::kManaged || is_managed(&driver, address);
  return r.managed != 0 ? w.mirrors().adopt(address, size) : CUDA_SUCCESS;
}

CUresult handle(Executor& w, const wire::cuda::function_state_request& m,
                wire::cuda::function_state_reply& r) {
  Scope s(w);
  const CUfunction function = s.get<CUfunction>(Kind::kFunction, m.function);
  if (!s.ok()) return s.error();
  gpu::Driver& driver = w.driver();
  if (m.load != 0) {
    r.loaded = 1;
    return driver.cuFuncLoad != nullptr ? driver.cuFuncLoad(function) : CUDA_ERROR_NOT_SUPPORTED;
  }
  if (driver.cuFuncIsLoaded == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  CUfunctionLoadingState state = CU_FUNCTION_LOADING_STATE_UNLOADED;
  const CUresult result = driver.cuFuncIsLoaded(&state, function);
  r.loaded = state == CU_FUNCTION_LOADING_STATE_LOADED;
  return result;
}

}  // namespace tendril::worker::cuda
