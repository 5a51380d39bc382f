// SPDX-License-Identifier: Apache-2.0
// See library.h.
#include "client/cuda/code/library.h"

#include <string.h>

#include "client/cuda/bodies.h"

namespace tendril::client::cuda {

// Recycled nodes. They stay what they are, as readers may still look at one.
struct ContextFunctionNodes {
  base::Lock lock;
  ContextFunction* free = nullptr;
};
namespace {

constexpr uint32_t kSessionsMax = 64;  // bits in `loaded`
constexpr uint64_t kNameBytesMax = 64u << 10;

ContextFunction* take_node() {
  ContextFunctionNodes& nodes = process()->context_function_nodes.get();
  const base::Locked held(nodes.lock);
  ContextFunction* node = nodes.free;
  if (node == nullptr) return new ContextFunction;
  nodes.free = node->next.load(std::memory_order_relaxed);
  return node;
}

void give_node(ContextFunction* node) {
  ContextFunctionNodes& nodes = process()->context_function_nodes.get();
  const base::Locked held(nodes.lock);
  node->next.store(nodes.free, std::memory_order_relaxed);
  nodes.free = node;
}

CUresult library_of(CUlibrary handle, Library** out) {
  Process* program = process();
  if (program == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  *out = program->libraries.find(Kind::kLibrary, handle_value(handle));
  return *out != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult kernel_of(CUkernel handle, Function** out) {
  Process* program = process();
  if (program == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  *out = program->kernels.find(Kind::kKernel, handle_value(handle));
  return *out != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

// Libraries need no context. A call may still carry the current one, if that is of the same
// session.
Context* context_in(const Session* session) {
  Context* context = current_context();
  const bool usable = context != nullptr && context->session == session &&
                      context->active.load(std::memory_order_relaxed) != 0;
  return usable ? context : nullptr;
}

// A session that has the library; loads it if none has.
CUresult some_session(Library* library, Session** out) {
  Session* wanted = any_session();
  if (wanted == nullptr) return Session::lost_result();
  const uint64_t loaded = library->loaded.load(std::memory_order_acquire);
  if ((loaded & session_bit(wanted)) == 0) {
    for (Session* session : process()->sessions) {
      if ((loaded & session_bit(session)) == 0) continue;
      *out = session;
      return CUDA_SUCCESS;
    }
  }
  *out = wanted;
  return load_library(library, wanted);
}

CUresult library_options(const CUlibraryOption* options, void** values, unsigned count,
                         bool* preserved) {
  if (count != 0 && options == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned i = 0; i < count; ++i) {
    switch (reinterpret_cast<const uint32_t*>(options)[i]) {  // the program may pass any number
      case CU_LIBRARY_BINARY_IS_PRESERVED:
        *preserved = values == nullptr || reinterpret_cast<uint64_t>(values[i]) != 0;
        break;
      case CU_LIBRARY_HOST_UNIVERSAL_FUNCTION_AND_DATA_TABLE:
        break;  // the program's host functions cannot be called from another machine's GPU
      default:
        return CUDA_ERROR_INVALID_VALUE;
    }
  }
  return CUDA_SUCCESS;
}

// Remembers what a later load on another server will need.
void keep_for_later(Library* library, const CodeImage& image, bool preserved,
                    const JitOptions& options) {
  library->image = {};
  library->copy.clear();
  library->options.clear();
  library->values.clear();
  if (process()->servers.size() < 2) return;
  library->image = image;
  if (!preserved) {
    library->copy.assign(image.data, image.data + image.bytes);
    library->image.data = library->copy.data();
  }
  for (size_t i = 0; i < options.options().size(); ++i) {
    if (!JitOptions::is_plain(options.options()[i])) continue;
    library->options.push_back(options.options()[i]);
    library->values.push_back(options.words()[i]);
  }
}

CUresult create_library(CUlibrary* out, const CodeImage& image, bool preserved,
                        JitOptions* options) {
  Session* session = any_session();
  if (session == nullptr) return Session::lost_result();
  if (session->index >= kSessionsMax) return CUDA_ERROR_NOT_SUPPORTED;
  Library* library = process()->libraries.create(Kind::kLibrary, session, nullptr, session->index);
  if (library == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  library->loaded.store(0, std::memory_order_relaxed);
  const CUresult result = load_image(session, context_in(session), library->wire_id,
                                     LoadKind::kLibrary, image, options);
  if (result != CUDA_SUCCESS) {
    process()->libraries.destroy(library);
    return result;
  }
  keep_for_later(library, image, preserved, *options);
  library->loaded.fetch_or(session_bit(session), std::memory_order_release);
  *out = handle_cast<CUlibrary>(library);
  return CUDA_SUCCESS;
}

CUresult library_kernel(Library* library, const char* name, Function** out) {
  if (strlen(name) > kNameBytesMax) return CUDA_ERROR_NOT_FOUND;
  Session* session = nullptr;
  TENDRIL_TRY(some_session(library, &session));
  Function* kernel = named_function(&library->names, Kind::kKernel, session, nullptr, name);
  if (kernel == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  if (kernel->missing.load(std::memory_order_relaxed)) return CUDA_ERROR_NOT_FOUND;
  *out = kernel;
  if (kernel->loaded.load(std::memory_order_acquire) != 0) return CUDA_SUCCESS;
  kernel->library = library;
  return load_kernel(kernel, session);
}

}  // namespace

CUresult load_library(Library* library, Session* session) {
  if ((library->loaded.load(std::memory_order_acquire) & session_bit(session)) != 0)
    return CUDA_SUCCESS;
  if (session->index >= kSessionsMax || library->image.kind == CodeKind::kNone)
    return CUDA_ERROR_INVALID_HANDLE;
  JitOptions options;
  options.set_words(library->options, library->values);
  TENDRIL_TRY(load_image(session, context_in(session), library->wire_id, LoadKind::kLibrary,
                         library->image, &options));
  library->loaded.fetch_or(session_bit(session), std::memory_order_release);
  return CUDA_SUCCESS;
}

CUresult load_kernel(Function* kernel, Session* session) {
  if (kernel->library == nullptr || kernel->context != nullptr) return CUDA_ERROR_INVALID_HANDLE;
  TENDRIL_TRY(load_library(kernel->library, session));
  wire::cuda::library_kernel_request request;
  wire::cuda::library_kernel_reply reply;
  request.library = kernel->library->wire_id;
  request.kernel = kernel->wire_id;
  request.name = wire::bytes_of(kernel->name.c_str());
  const CUresult result = session->call(context_in(session), request, reply);
  if (result == CUDA_ERROR_NOT_FOUND) kernel->missing.store(true, std::memory_order_relaxed);
  if (result == CUDA_SUCCESS)
    kernel->loaded.fetch_or(session_bit(session), std::memory_order_release);
  return result;
}

CUresult kernel_function(Function* kernel, Context* context, Function** out) {
  const uint64_t context_handle = context->handle.load(std::memory_order_relaxed);
  Session* session = context->session;
  const auto find = [&]() -> Function* {
    ContextFunction* node = kernel->in_context.load(std::memory_order_acquire);
    for (; node != nullptr; node = node->next.load(std::memory_order_acquire)) {
      if (node->context.load(std::memory_order_relaxed) == context_handle)
        return node->function.load(std::memory_order_relaxed);
    }
    return nullptr;
  };
  Function* function = find();
  if (__builtin_expect(function != nullptr && function->loaded.load(std::memory_order_acquire) != 0,
                       1)) {
    *out = function;
    return CUDA_SUCCESS;
  }
  CUresult error = CUDA_SUCCESS;
  if (kernel_wire_id(kernel, session, &error) == 0) return error;
  {
    base::Locked locked(kernel->library->names.lock);
    function = find();
    if (function == nullptr) {
      function = process()->functions.create(Kind::kFunction, session, context, session->index);
      if (function == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
      function->module = nullptr;
      function->library = kernel->library;
      function->kernel = kernel;
      function->name = kernel->name;
      function->loaded.store(0, std::memory_order_relaxed);
      ContextFunction* node = take_node();
      node->context.store(context_handle, std::memory_order_relaxed);
      node->function.store(function, std::memory_order_relaxed);
      node->next.store(kernel->in_context.load(std::memory_order_relaxed),
                       std::memory_order_relaxed);
      kernel->in_context.store(node, std::memory_order_release);
    }
  }
  wire::cuda::kernel_function_request request;
  wire::cuda::kernel_function_reply reply;
  request.kernel = kernel->wire_id;
  request.function = function->wire_id;
  TENDRIL_TRY(session->call(context, request, reply));
  function->loaded.fetch_or(session_bit(session), std::memory_order_release);
  *out = function;
  return CUDA_SUCCESS;
}

CUresult library_module(Library* library, Context* context, Module** out) {
  Session* session = context->session;
  TENDRIL_TRY(load_library(library, session));
  Module* module = nullptr;
  {
    base::Locked locked(library->names.lock);
    for (Module* known : library->modules) {
      if (known->context == context) module = known;
    }
    if (module == nullptr) {
      module = process()->modules.create(Kind::kModule, session, context, session->index);
      if (module == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
      module->library = library;
      library->modules.push_back(module);
    }
  }
  wire::cuda::library_module_request request;
  wire::cuda::library_module_reply reply;
  request.library = library->wire_id;
  request.module = module->wire_id;
  TENDRIL_TRY(session->call(context, request, reply));
  *out = module;
  return CUDA_SUCCESS;
}

void forget_context_functions(Function* kernel, uint64_t context) {
  ContextFunction* list = kernel->in_context.exchange(nullptr, std::memory_order_acq_rel);
  while (list != nullptr) {
    ContextFunction* next = list->next.load(std::memory_order_relaxed);
    if (context == 0 || list->context.load(std::memory_order_relaxed) == context) {
      forget_function(Kind::kFunction, list->function.load(std::memory_order_relaxed));
      give_node(list);
    } else {
      list->next.store(kernel->in_context.load(std::memory_order_relaxed),
                       std::memory_order_relaxed);
      kernel->in_context.store(list, std::memory_order_release);
    }
    list = next;
  }
}

void forget_library_context(Library* library, uint64_t context) {
  base::Locked locked(library->names.lock);
  for (const auto& entry : library->names.functions)
    forget_context_functions(entry.second, context);
  std::vector<Symbol>& symbols = library->names.symbols;
  for (size_t i = symbols.size(); i-- != 0;) {
    if (symbols[i].context != context) continue;
    forget_symbol(symbols[i]);
    symbols[i] = symbols.back();
    symbols.pop_back();
  }
  std::vector<Module*>& modules = library->modules;
  for (size_t i = modules.size(); i-- != 0;) {
    if (modules[i]->context->handle.load(std::memory_order_relaxed) != context) continue;
    modules[i] = modules.back();
    modules.pop_back();
  }
}

CUresult cuLibraryLoadData(CUlibrary* library, const void* code, CUjit_option* jitOptions,
                           void** jitOptionsValues, unsigned int numJitOptions,
                           CUlibraryOption* libraryOptions, void** libraryOptionValues,
                           unsigned int numLibraryOptions) {
  if (process() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (library == nullptr || code == nullptr) return CUDA_ERROR_INVALID_VALUE;
  bool preserved = false;
  TENDRIL_TRY(library_options(libraryOptions, libraryOptionValues, numLibraryOptions, &preserved));
  JitOptions options;
  TENDRIL_TRY(options.take(jitOptions, jitOptionsValues, numJitOptions));
  return create_library(library, recognise(code), preserved, &options);
}

CUresult cuLibraryLoadFromFile(CUlibrary* library, const char* fileName, CUjit_option* jitOptions,
                               void** jitOptionsValues, unsigned int numJitOptions,
                               CUlibraryOption* libraryOptions, void** libraryOptionValues,
                               unsigned int numLibraryOptions) {
  if (process() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (library == nullptr || fileName == nullptr) return CUDA_ERROR_INVALID_VALUE;
  bool preserved = false;
  TENDRIL_TRY(library_options(libraryOptions, libraryOptionValues, numLibraryOptions, &preserved));
  JitOptions options;
  TENDRIL_TRY(options.take(jitOptions, jitOptionsValues, numJitOptions));
  std::vector<uint8_t> bytes;
  TENDRIL_TRY(read_code_file(fileName, &bytes));
  return create_library(library, api::code_image(bytes.data(), bytes.size()), false, &options);
}

CUresult cuLibraryUnload(CUlibrary handle) {
  Library* library = nullptr;
  TENDRIL_TRY(library_of(handle, &library));
  wire::cuda::module_unload_request request;
  request.handle = library->wire_id;
  request.kind = LoadKind::kLibrary;
  const uint64_t loaded = library->loaded.exchange(0);
  for (Session* session : process()->sessions) {
    if (session->index < kSessionsMax && (loaded & session_bit(session)) != 0)
      session->enqueue(context_in(session), request);
  }
  forget_names(&library->names, Kind::kKernel);
  for (Module* module : library->modules) forget_module(module);
  library->modules.clear();
  library->image = {};
  std::vector<uint8_t>().swap(library->copy);
  process()->libraries.destroy(library);
  return CUDA_SUCCESS;
}

CUresult cuLibraryGetKernel(CUkernel* pKernel, CUlibrary handle, const char* name) {
  Library* library = nullptr;
  if (process() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (pKernel == nullptr || name == nullptr || *name == 0) return CUDA_ERROR_INVALID_VALUE;
  TENDRIL_TRY(library_of(handle, &library));
  Function* kernel = nullptr;
  TENDRIL_TRY(library_kernel(library, name, &kernel));
  *pKernel = handle_cast<CUkernel>(kernel);
  return CUDA_SUCCESS;
}

namespace {

CUresult get_symbol(CUdeviceptr* dptr, size_t* bytes, CUlibrary handle, const char* name,
                    LoadKind kind) {
  Library* library = nullptr;
  Context* context = nullptr;
  if (process() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (name == nullptr || (dptr == nullptr && bytes == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  TENDRIL_TRY(library_of(handle, &library));
  // The runtime asks for managed variables before it has a context.
  if (kind != LoadKind::kManaged || current_context() != nullptr)
    TENDRIL_TRY(require_context(&context));
  Session* session = any_session();
  if (session == nullptr) return Session::lost_result();
  TENDRIL_TRY(load_library(library, session));
  uint64_t address = 0, size = 0;
  TENDRIL_TRY(find_symbol(session, context, library->wire_id, kind, &library->names, name, &address,
                          &size));
  if (dptr != nullptr) *dptr = address;
  if (bytes != nullptr) *bytes = size;
  return CUDA_SUCCESS;
}

}  // namespace

CUresult cuLibraryGetGlobal(CUdeviceptr* dptr, size_t* bytes, CUlibrary library, const char* name) {
  return get_symbol(dptr, bytes, library, name, LoadKind::kLibrary);
}

// Functions with one address on GPU and host exist on no device that can be sliced.
CUresult cuLibraryGetUnifiedFunction(void** fptr, CUlibrary library, const char* symbol) {
  if (process() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (fptr == nullptr || symbol == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return find_object(Kind::kLibrary, handle_value(library)) != nullptr ? CUDA_ERROR_NOT_FOUND
                                                                       : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuLibraryGetManaged(CUdeviceptr* dptr, size_t* bytes, CUlibrary library,
                             const char* name) {
  return get_symbol(dptr, bytes, library, name, LoadKind::kManaged);
}

CUresult cuLibraryGetModule(CUmodule* pMod, CUlibrary handle) {
  Library* library = nullptr;
  Context* context = nullptr;
  if (process() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (pMod == nullptr) return CUDA_ERROR_INVALID_VALUE;
  TENDRIL_TRY(library_of(handle, &library));
  TENDRIL_TRY(require_context(&context));
  Module* module = nullptr;
  TENDRIL_TRY(library_module(library, context, &module));
  *pMod = handle_cast<CUmodule>(module);
  return CUDA_SUCCESS;
}

namespace {

CUresult kernel_names(CUlibrary handle, Library** library, std::vector<std::string>* names) {
  TENDRIL_TRY(library_of(handle, library));
  Session* session = nullptr;
  TENDRIL_TRY(some_session(*library, &session));
  return all_names(session, context_in(session), (*library)->wire_id, LoadKind::kLibrary, names);
}

}  // namespace

CUresult cuLibraryGetKernelCount(unsigned int* count, CUlibrary lib) {
  Library* library = nullptr;
  if (process() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::vector<std::string> names;
  TENDRIL_TRY(kernel_names(lib, &library, &names));
  *count = static_cast<unsigned>(names.size());
  return CUDA_SUCCESS;
}

CUresult cuLibraryEnumerateKernels(CUkernel* kernels, unsigned int numKernels, CUlibrary lib) {
  Library* library = nullptr;
  if (process() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (kernels == nullptr || numKernels == 0) return CUDA_ERROR_INVALID_VALUE;
  std::vector<std::string> names;
  TENDRIL_TRY(kernel_names(lib, &library, &names));
  for (size_t i = 0; i < names.size() && i < numKernels; ++i) {
    Function* kernel =
        named_function(&library->names, Kind::kKernel, library->session, nullptr, names[i].c_str());
    if (kernel == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
    kernel->library = library;  // each server learns of it when it is used there
    kernels[i] = handle_cast<CUkernel>(kernel);
  }
  return CUDA_SUCCESS;
}

CUresult cuKernelGetFunction(CUfunction* pFunc, CUkernel handle) {
  Function* kernel = nullptr;
  Context* context = nullptr;
  TENDRIL_TRY(require_context(&context));
  if (pFunc == nullptr) return CUDA_ERROR_INVALID_VALUE;
  TENDRIL_TRY(kernel_of(handle, &kernel));
  Function* function = nullptr;
  TENDRIL_TRY(kernel_function(kernel, context, &function));
  *pFunc = handle_cast<CUfunction>(function);
  return CUDA_SUCCESS;
}

CUresult cuKernelGetLibrary(CUlibrary* pLib, CUkernel handle) {
  Function* kernel = nullptr;
  TENDRIL_TRY(kernel_of(handle, &kernel));
  if (pLib == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *pLib = handle_cast<CUlibrary>(kernel->library);
  return CUDA_SUCCESS;
}

CUresult cuKernelGetName(const char** name, CUkernel handle) {
  Function* kernel = nullptr;
  if (process() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (name == nullptr || handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  TENDRIL_TRY(kernel_of(handle, &kernel));
  *name = kernel->name.c_str();
  return CUDA_SUCCESS;
}

}  // namespace tendril::client::cuda
