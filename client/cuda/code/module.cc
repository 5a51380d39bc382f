// SPDX-License-Identifier: Apache-2.0
// Modules: loading, names, variables, unloading. Loading waits for the server; so does the first
// look-up of each name. See module.h.
#include "client/cuda/code/module.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/content_hash.h"
#include "base/fd.h"
#include "client/cuda/bodies.h"
#include "client/cuda/code/function.h"
#include "client/cuda/code/library.h"
#include "client/cuda/memory/memory.h"

namespace tendril::client::cuda {
namespace {

constexpr uint64_t kImageBytesMax = uint64_t{1} << 30;  // as the worker's store
constexpr uint64_t kNameBytesMax = 64u << 10;

CUresult upload(Session* session, Context* context, const std::string& hash,
                const Payload& payload) {
  session->code_bytes.fetch_add(payload.bytes, std::memory_order_relaxed);
  wire::cuda::image_upload_request request;
  request.hash = {reinterpret_cast<const uint8_t*>(hash.data()), hash.size()};
  request.size = payload.bytes;
  const bool inline_data = payload.bytes <= wire::kInlineBytesMax;
  if (inline_data) {
    request.data = {payload.data, payload.bytes};
    return session->enqueue(context, request);
  }
  request.transfer = session->lane->new_transfer_id();
  TENDRIL_TRY(session->enqueue(context, request));
  return session->send_bulk(request.transfer, payload.data, payload.bytes) ? CUDA_SUCCESS
                                                                           : Session::lost_result();
}

CUresult load_payload(Session* session, Context* context, uint64_t wire_id, LoadKind kind,
                      const Payload& payload, JitOptions* options) {
  if (payload.bytes > kImageBytesMax) return CUDA_ERROR_OUT_OF_MEMORY;
  const std::string hash = base::content_hash(payload.data, payload.bytes);
  wire::cuda::module_load_request request;
  request.handle = wire_id;
  request.kind = kind;
  request.hash = {reinterpret_cast<const uint8_t*>(hash.data()), hash.size()};
  request.size = payload.bytes;
  options->put(&request);
  // Asked first, however small it is: one more round trip the first time, and none of its bytes
  // from then on.
  for (bool sent = false;; sent = true) {
    wire::cuda::module_load_reply reply;
    const CUresult result = session->call(context, request, reply);
    if (result == CUDA_ERROR_FILE_NOT_FOUND) {
      if (sent) return CUDA_ERROR_OUT_OF_MEMORY;  // the server could not keep it even until now
      TENDRIL_TRY(upload(session, context, hash, payload));
      continue;
    }
    options->give_back(reply);
    return result;
  }
}

// After these results the entries that were left out may help: the driver may want others than we
// think.
bool may_want_more(CUresult result) {
  return result == CUDA_ERROR_NO_BINARY_FOR_GPU || result == CUDA_ERROR_INVALID_IMAGE ||
         result == CUDA_ERROR_UNSUPPORTED_PTX_VERSION || result == CUDA_ERROR_INVALID_PTX ||
         result == CUDA_ERROR_INVALID_SOURCE;
}

CUresult module_of(CUmodule handle, Module** out) {
  Process* program = process();
  if (program == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  *out = program->modules.find(Kind::kModule, handle_value(handle));
  return *out != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

// Not a kernel: the calls here refuse one, unlike launches.
Function* function_of(CUfunction handle) {
  return process()->functions.find(Kind::kFunction, handle_value(handle));
}

CUresult load_module(CUmodule* module, const CodeImage& image, JitOptions* options) {
  Context* context = nullptr;
  TENDRIL_TRY(require_context(&context));
  Session* session = context->session;
  Module* record = process()->modules.create(Kind::kModule, session, context, session->index);
  if (record == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  record->library = nullptr;
  const CUresult result =
      load_image(session, context, record->wire_id, LoadKind::kModule, image, options);
  if (result != CUDA_SUCCESS) {
    process()->modules.destroy(record);
    return result;
  }
  *module = handle_cast<CUmodule>(record);
  return CUDA_SUCCESS;
}

}  // namespace

CUresult load_image(Session* session, Context* context, uint64_t wire_id, LoadKind kind,
                    const CodeImage& image, JitOptions* options) {
  if (image.kind == CodeKind::kNone) {
    // Something that is no code has no length either. We send a byte in its place; the driver
    // refuses it, and its words go into the program's log.
    constexpr uint8_t kNothing = 0;
    Payload nothing;
    nothing.data = &kNothing;
    nothing.bytes = sizeof kNothing;
    return load_payload(session, context, wire_id, kind, nothing, options);
  }
  std::vector<Target> targets;
  for (const Device* device : session->devices) {
    if (kind == LoadKind::kModule && device != context->device) continue;
    targets.push_back({device->attributes[CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR],
                       device->attributes[CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR]});
  }
  const Payload payload = reduce(image, targets.data(), targets.size(), session->keep_ptx);
  const CUresult result = load_payload(session, context, wire_id, kind, payload, options);
  if (!payload.reduced || !may_want_more(result)) return result;
  return load_payload(session, context, wire_id, kind, whole(image), options);
}

Function* named_function(Names* names, Kind kind, Session* session, Context* context,
                         const char* name) {
  base::Locked locked(names->lock);
  const auto known = names->functions.find(name);
  if (known != names->functions.end()) return known->second;
  Process* program = process();
  Table<Function>& table = kind == Kind::kKernel ? program->kernels : program->functions;
  Function* record = table.create(kind, session, context, session->index);
  if (record == nullptr) return nullptr;
  record->module = nullptr;
  record->library = nullptr;
  record->kernel = nullptr;
  record->name = name;
  record->loaded.store(0, std::memory_order_relaxed);
  record->missing.store(false, std::memory_order_relaxed);
  names->functions.emplace(record->name, record);
  return record;
}

CUresult module_function(Module* module, const char* name, Function** out) {
  if (strlen(name) > kNameBytesMax) return CUDA_ERROR_NOT_FOUND;
  Session* session = module->session;
  Function* function =
      named_function(&module->names, Kind::kFunction, session, module->context, name);
  if (function == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  *out = function;
  if (function->missing.load(std::memory_order_relaxed)) return CUDA_ERROR_NOT_FOUND;
  if ((function->loaded.load(std::memory_order_acquire) & session_bit(session)) != 0)
    return CUDA_SUCCESS;
  function->module = module;
  function->library = module->library;
  wire::cuda::module_function_request request;
  wire::cuda::module_function_reply reply;
  request.module = module->wire_id;
  request.function = function->wire_id;
  request.name = wire::bytes_of(name);
  const CUresult result = session->call(module->context, request, reply);
  if (result == CUDA_ERROR_NOT_FOUND) function->missing.store(true, std::memory_order_relaxed);
  if (result == CUDA_SUCCESS)
    function->loaded.fetch_or(session_bit(session), std::memory_order_release);
  return result;
}

CUresult find_symbol(Session* session, Context* context, uint64_t wire_id, LoadKind kind,
                     Names* names, const char* name, uint64_t* address, uint64_t* bytes) {
  if (strlen(name) > kNameBytesMax) return CUDA_ERROR_NOT_FOUND;
  Context* home = context != nullptr ? context : session->devices[0]->primary;
  const uint64_t context_handle = home->handle.load(std::memory_order_relaxed);
  const bool managed = kind == LoadKind::kManaged;
  {
    base::Locked locked(names->lock);
    for (const Symbol& symbol : names->symbols) {
      if (symbol.context != context_handle || symbol.managed != managed || symbol.name != name)
        continue;
      *address = symbol.address;
      *bytes = symbol.bytes;
      return CUDA_SUCCESS;
    }
  }
  wire::cuda::module_global_request request;
  wire::cuda::module_global_reply reply;
  request.module = wire_id;
  request.kind = kind;
  request.name = wire::bytes_of(name);
  TENDRIL_TRY(session->call(context, request, reply));
  *address = reply.address;
  *bytes = reply.size;
  if (reply.managed != 0) {
    TENDRIL_TRY(adopt_managed(session, home, reply.address, reply.size));
  } else {
    Range range;
    range.base = reply.address;
    range.bytes = reply.size;
    range.context = home;
    range.session = session;
    range.buffer_id = process()->next_buffer_id.fetch_add(1);
    process()->ranges.insert(range);
  }
  base::Locked locked(names->lock);
  names->symbols.push_back({context_handle, name, reply.address, reply.size, managed});
  return CUDA_SUCCESS;
}

CUresult all_names(Session* session, Context* context, uint64_t wire_id, LoadKind kind,
                   std::vector<std::string>* out) {
  for (;;) {
    wire::cuda::module_functions_request request;
    wire::cuda::module_functions_reply reply;
    request.module = wire_id;
    request.kind = kind;
    request.first = static_cast<uint32_t>(out->size());
    TENDRIL_TRY(session->call(context, request, reply));
    const size_t before = out->size();
    const char* at = reinterpret_cast<const char*>(reply.names.data);
    const char* end = at + reply.names.count;
    while (at < end && out->size() < reply.count) {
      const size_t bytes = strnlen(at, static_cast<size_t>(end - at));
      out->emplace_back(at, bytes);
      at += bytes + 1;
    }
    if (out->size() >= reply.count) return CUDA_SUCCESS;
    if (out->size() == before) return CUDA_ERROR_UNKNOWN;  // a server that does not get on
  }
}

void forget_function(Kind kind, Function* function) {
  Process* program = process();
  retire_function_info(function);
  function->loaded.store(0, std::memory_order_release);
  forget_context_functions(function, 0);
  (kind == Kind::kKernel ? program->kernels : program->functions).destroy(function);
}

void forget_names(Names* names, Kind kind) {
  std::map<std::string, Function*> functions;
  std::vector<Symbol> symbols;
  {
    base::Locked locked(names->lock);
    functions.swap(names->functions);
    symbols.swap(names->symbols);
  }
  for (const auto& entry : functions) forget_function(kind, entry.second);
  for (const Symbol& symbol : symbols) forget_symbol(symbol);
}

void forget_symbol(const Symbol& symbol) {
  Range range;
  if (!process()->ranges.find(symbol.address, &range) || range.base != symbol.address) return;
  if (range.variable)
    forget_managed(symbol.address);
  else
    process()->ranges.remove(symbol.address, &range);
}

void forget_module(Module* module) {
  forget_names(&module->names, Kind::kFunction);
  process()->modules.destroy(module);
}

void forget_code(Context* context) {
  Process* program = process();
  const uint64_t handle = context->handle.load(std::memory_order_relaxed);
  program->libraries.for_each([&](Library* library) { forget_library_context(library, handle); });
  program->modules.for_each([&](Module* module) {
    if (module->context == context) forget_module(module);
  });
}

CUresult read_code_file(const char* path, std::vector<uint8_t>* bytes) {
  base::Fd fd(open(path, O_RDONLY | O_CLOEXEC));
  struct stat info;
  if (!fd.valid() || fstat(fd.get(), &info) != 0 || !S_ISREG(info.st_mode))
    return CUDA_ERROR_FILE_NOT_FOUND;
  if (static_cast<uint64_t>(info.st_size) > kImageBytesMax) return CUDA_ERROR_OUT_OF_MEMORY;
  bytes->resize(static_cast<size_t>(info.st_size) + 1);  // the NUL that PTX in a file lacks
  size_t done = 0;
  while (done + 1 < bytes->size()) {
    const ssize_t got = read(fd.get(), bytes->data() + done, bytes->size() - 1 - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return CUDA_ERROR_FILE_NOT_FOUND;
    if (got == 0) break;
    done += static_cast<size_t>(got);
  }
  bytes->resize(done + 1);
  bytes->back() = 0;
  return CUDA_SUCCESS;
}

CUresult cuModuleLoad(CUmodule* module, const char* fname) {
  if (process() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (module == nullptr || fname == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::vector<uint8_t> bytes;
  TENDRIL_TRY(read_code_file(fname, &bytes));
  JitOptions options;
  return load_module(module, api::code_image(bytes.data(), bytes.size()), &options);
}

CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  return cuModuleLoadDataEx(module, image, 0, nullptr, nullptr);
}

CUresult cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned int numOptions,
                            CUjit_option* options, void** optionValues) {
  if (process() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (module == nullptr || image == nullptr) return CUDA_ERROR_INVALID_VALUE;
  JitOptions jit;
  TENDRIL_TRY(jit.take(options, optionValues, numOptions));
  return load_module(module, recognise(image), &jit);
}

CUresult cuModuleLoadFatBinary(CUmodule* module, const void* fatCubin) {
  return cuModuleLoadData(module, fatCubin);
}

CUresult cuModuleUnload(CUmodule hmod) {
  Module* module = nullptr;
  TENDRIL_TRY(module_of(hmod, &module));
  if (module->library != nullptr) return CUDA_ERROR_NOT_PERMITTED;  // it goes with its library
  wire::cuda::module_unload_request request;
  request.handle = module->wire_id;
  request.kind = LoadKind::kModule;
  const CUresult result = module->session->enqueue(module->context, request);
  forget_module(module);
  return result;
}

CUresult cuModuleGetFunction(CUfunction* hfunc, CUmodule hmod, const char* name) {
  Module* module = nullptr;
  if (process() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (hfunc == nullptr || name == nullptr || *name == 0) return CUDA_ERROR_INVALID_VALUE;
  TENDRIL_TRY(module_of(hmod, &module));
  Function* function = nullptr;
  TENDRIL_TRY(module_function(module, name, &function));
  *hfunc = handle_cast<CUfunction>(function);
  return CUDA_SUCCESS;
}

CUresult cuModuleGetGlobal_v2(CUdeviceptr* dptr, size_t* bytes, CUmodule hmod, const char* name) {
  Module* module = nullptr;
  if (process() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (name == nullptr || (dptr == nullptr && bytes == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  TENDRIL_TRY(module_of(hmod, &module));
  uint64_t address = 0, size = 0;
  TENDRIL_TRY(find_symbol(module->session, module->context, module->wire_id, LoadKind::kModule,
                          &module->names, name, &address, &size));
  if (dptr != nullptr) *dptr = address;
  if (bytes != nullptr) *bytes = size;
  return CUDA_SUCCESS;
}

CUresult cuModuleGetFunctionCount(unsigned int* count, CUmodule mod) {
  Module* module = nullptr;
  if (process() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  TENDRIL_TRY(module_of(mod, &module));
  std::vector<std::string> names;
  TENDRIL_TRY(
      all_names(module->session, module->context, module->wire_id, LoadKind::kModule, &names));
  *count = static_cast<unsigned>(names.size());
  return CUDA_SUCCESS;
}

CUresult cuModuleEnumerateFunctions(CUfunction* functions, unsigned int numFunctions,
                                    CUmodule mod) {
  Module* module = nullptr;
  if (process() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (functions == nullptr || numFunctions == 0) return CUDA_ERROR_INVALID_VALUE;
  TENDRIL_TRY(module_of(mod, &module));
  std::vector<std::string> names;
  TENDRIL_TRY(
      all_names(module->session, module->context, module->wire_id, LoadKind::kModule, &names));
  for (size_t i = 0; i < names.size() && i < numFunctions; ++i) {
    Function* function = nullptr;
    TENDRIL_TRY(module_function(module, names[i].c_str(), &function));
    functions[i] = handle_cast<CUfunction>(function);
  }
  return CUDA_SUCCESS;
}

CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode* mode) {
  if (process() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (mode == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const char* wish = getenv("CUDA_MODULE_LOADING");
  *mode = wish != nullptr && strcmp(wish, "EAGER") == 0 ? CU_MODULE_EAGER_LOADING
                                                        : CU_MODULE_LAZY_LOADING;
  return CUDA_SUCCESS;
}

CUresult cuFuncGetModule(CUmodule* hmod, CUfunction hfunc) {
  if (process() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (hmod == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Function* function = function_of(hfunc);
  if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  Module* module = function->module;
  if (module == nullptr) TENDRIL_TRY(library_module(function->library, function->context, &module));
  *hmod = handle_cast<CUmodule>(module);
  return CUDA_SUCCESS;
}

CUresult cuFuncGetName(const char** name, CUfunction hfunc) {
  if (process() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (name == nullptr || hfunc == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Function* function = function_of(hfunc);
  if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *name = function->name.c_str();
  return CUDA_SUCCESS;
}

namespace {

// Asks whether the driver has loaded a function's code; `load`: makes it.
CUresult function_state(CUfunction handle, bool load, uint32_t* loaded) {
  Context* context = nullptr;
  TENDRIL_TRY(require_context(&context));
  Function* function = function_of(handle);
  if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  wire::cuda::function_state_request request;
  wire::cuda::function_state_reply reply;
  request.function = function->wire_id;
  request.load = load;
  TENDRIL_TRY(function->session->call(function->context, request, reply));
  *loaded = reply.loaded;
  return CUDA_SUCCESS;
}

}  // namespace

CUresult cuFuncIsLoaded(CUfunctionLoadingState* state, CUfunction function) {
  if (state == nullptr)
    return process() == nullptr ? CUDA_ERROR_NOT_INITIALIZED : CUDA_ERROR_INVALID_VALUE;
  uint32_t loaded = 0;
  TENDRIL_TRY(function_state(function, false, &loaded));
  *state = loaded != 0 ? CU_FUNCTION_LOADING_STATE_LOADED : CU_FUNCTION_LOADING_STATE_UNLOADED;
  return CUDA_SUCCESS;
}

CUresult cuFuncLoad(CUfunction function) {
  uint32_t loaded = 0;
  return function_state(function, true, &loaded);
}

}  // namespace tendril::client::cuda
