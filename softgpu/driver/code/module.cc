// SPDX-License-Identifier: Apache-2.0
// Modules: loading images, placing variables, finding functions. See module.h.

#include "softgpu/driver/code/module.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "softgpu/driver/code/fatbin.h"
#include "softgpu/driver/code/jit_options.h"
#include "softgpu/driver/config.h"
#include "softgpu/driver/entry.h"
#include "softgpu/driver/memory/memory_map.h"

namespace tendril::softgpu {
namespace {

constexpr uint32_t kNewestPtx = 90;  // the PTX ISA that came with CUDA 13.0

CUresult load_module(CUmodule* out, const void* image, size_t limit, const JitOptions& options) {
  SOFT_CONTEXT(context);
  std::shared_ptr<Program> program;
  std::string log;
  context->enter_to_load();
  CUresult result = load_program(image, limit, device_sm(), &program, &log);
  ModulePtr made;
  if (result == CUDA_SUCCESS)
    result =
        make_module(context, program, ManagedVariables::make(*program, context->device), &made);
  options.report("", log);
  if (result == CUDA_SUCCESS) *out = made->handle;
  return result;
}

// Fills the variables that `mine` selects. Their contents may hold addresses of any variable.
template <typename Mine>
void fill_globals(const Program& program, const std::vector<uint64_t>& addresses, Mine&& mine) {
  const auto& globals = program.globals();
  std::map<std::string, uint64_t> by_name;
  for (size_t i = 0; i < globals.size(); ++i) by_name[globals[i].name] = addresses[i];
  for (size_t i = 0; i < globals.size(); ++i) {
    if (!mine(globals[i])) continue;
    uint8_t* at = MemoryMap::instance().resolve(addresses[i], globals[i].size);
    if (at == nullptr) continue;
    memset(at, 0, globals[i].size);
    std::copy_n(globals[i].bytes.begin(),
                std::min<size_t>(globals[i].bytes.size(), globals[i].size), at);
    for (const auto& relocation : globals[i].relocations) {
      auto target = by_name.find(relocation.symbol);
      if (target == by_name.end() || globals[i].size < 8 || relocation.offset > globals[i].size - 8)
        continue;
      uint64_t value;
      memcpy(&value, at + relocation.offset, sizeof value);
      value += target->second + static_cast<uint64_t>(relocation.addend);
      memcpy(at + relocation.offset, &value, sizeof value);
    }
  }
}

}  // namespace

ModuleTable& modules() {
  static auto& table = *new ModuleTable;
  return table;
}
FunctionTable& functions() {
  static auto& table = *new FunctionTable;
  return table;
}

unsigned device_sm() { return static_cast<unsigned>(config().major * 10 + config().minor); }

bool read_file(const char* path, std::vector<uint8_t>* out) {
  FILE* file = fopen(path, "rb");
  if (file == nullptr) return false;
  uint8_t chunk[65536];
  size_t got;
  while ((got = fread(chunk, 1, sizeof chunk, file)) != 0)
    out->insert(out->end(), chunk, chunk + got);
  bool good = ferror(file) == 0;
  fclose(file);
  return good;
}

CUresult load_program(const void* image, size_t limit, unsigned sm, std::shared_ptr<Program>* out,
                      std::string* error_log) {
  struct Loaded {
    std::string text;  // bodies are decoded later, maybe from here
    std::unique_ptr<Program> program;
  };
  auto loaded = std::make_shared<Loaded>();
  switch (image_ptx(image, sm, limit, &loaded->text)) {
    case ImageStatus::kOk:
      break;
    case ImageStatus::kInvalid:
      *error_log = "softgpu: the image is neither PTX nor a fat binary";
      return CUDA_ERROR_INVALID_IMAGE;
    case ImageStatus::kNoPtx:
      *error_log = "softgpu: the image holds machine code only; the software GPU needs PTX";
      return CUDA_ERROR_NO_BINARY_FOR_GPU;
    case ImageStatus::kTooNew:
      *error_log = "softgpu: the image holds no PTX for compute capability " +
                   std::to_string(sm / 10) + "." + std::to_string(sm % 10);
      return CUDA_ERROR_NO_BINARY_FOR_GPU;
  }
  loaded->program = parse_program(loaded->text, error_log);
  Program* program = loaded->program.get();
  if (program == nullptr) {
    fprintf(stderr, "softgpu: PTX not accepted: %s\n", error_log->c_str());
    return CUDA_ERROR_INVALID_PTX;
  }
  if (program->ptx_version() > kNewestPtx) {
    *error_log =
        "softgpu: PTX ISA " + std::to_string(program->ptx_version()) + " is newer than this driver";
    return CUDA_ERROR_UNSUPPORTED_PTX_VERSION;
  }
  if (program->target_sm() > sm) {
    *error_log = "softgpu: .target sm_" + std::to_string(program->target_sm()) +
                 " is higher than the device's " + std::to_string(sm);
    return CUDA_ERROR_INVALID_PTX;
  }
  *out = std::shared_ptr<Program>(loaded, program);
  return CUDA_SUCCESS;
}

std::shared_ptr<ManagedVariables> ManagedVariables::make(const Program& program, int device) {
  auto made = std::make_shared<ManagedVariables>();
  for (const GlobalInfo& global : program.globals()) {
    made->addresses_.push_back(0);
    if (!global.managed) continue;
    made->addresses_.back() = MemoryMap::instance().allocate_host(
        global.size, MemoryKind::kManaged, device, nullptr, CU_MEM_ATTACH_GLOBAL);
    if (made->addresses_.back() == 0) return nullptr;
  }
  fill_globals(program, made->addresses_, [](const GlobalInfo& global) { return global.managed; });
  return made;
}

ManagedVariables::~ManagedVariables() {
  for (uint64_t address : addresses_)
    if (auto gone = MemoryMap::instance().remove(address, {MemoryKind::kManaged}))
      MemoryMap::instance().free(*gone);
}

CUresult make_module(const ContextPtr& context, std::shared_ptr<Program> program,
                     std::shared_ptr<ManagedVariables> managed, ModulePtr* out) {
  if (managed == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  auto made = std::make_shared<Module>();
  made->context = context->handle;
  made->device = context->device;
  made->program = std::move(program);
  made->managed = std::move(managed);
  uint64_t bytes = 0;
  for (const GlobalInfo& global : made->program->globals())
    bytes += global.managed ? 0 : global.size;
  if (bytes != 0 &&
      !take_hidden(context->device, HiddenMemory::Kind::kModule, bytes, &made->memory))
    return CUDA_ERROR_OUT_OF_MEMORY;
  for (const GlobalInfo& global : made->program->globals()) {
    uint64_t address = made->managed->address(made->global_addresses.size());
    if (!global.managed)
      address = MemoryMap::instance().allocate_uncharged(context->device, global.size,
                                                         MemoryKind::kModule, context->handle);
    if (address == 0) {
      made->unload();
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
    made->global_addresses.push_back(address);
  }
  fill_globals(*made->program, made->global_addresses,
               [](const GlobalInfo& global) { return !global.managed; });
  made->handle = modules().add(made);
  *out = made;
  return CUDA_SUCCESS;
}

void Module::unload() {
  modules().remove(handle);
  std::lock_guard guard(lock_);
  for (auto& [index, function] : functions_) functions().remove(function->handle);
  functions_.clear();
  for (uint64_t address : global_addresses)
    if (auto gone = MemoryMap::instance().remove(address, {MemoryKind::kModule}))
      MemoryMap::instance().free(*gone);
  give_back_hidden(memory);
  memory = {};
  managed.reset();
}

Module::~Module() = default;

FunctionPtr Module::function(size_t index) {
  std::lock_guard guard(lock_);
  FunctionPtr& slot = functions_[index];
  if (slot) return slot;
  slot = std::make_shared<Function>();
  slot->module = shared_from_this();
  slot->index = index;
  LibraryPtr owner = library.lock();
  slot->state = owner ? owner->kernels[index]->state(device) : std::make_shared<FunctionState>();
  slot->handle = functions().mint();
  functions().put(slot->handle, slot);
  return slot;
}

int Module::find_kernel(const char* name) const {
  const auto& list = program->kernels();
  for (size_t i = 0; i < list.size(); ++i)
    if (list[i].name == name) return static_cast<int>(i);
  return -1;
}

int Module::find_global(const char* name) const {
  const auto& list = program->globals();
  for (size_t i = 0; i < list.size(); ++i)
    if (list[i].name == name) return static_cast<int>(i);
  return -1;
}

void drop_modules(CUcontext context) {
  for (auto& [handle, module] : modules().all())
    if (module->context == context) module->unload();
  for (auto& [handle, library] : libraries().all()) {
    std::lock_guard guard(library->lock);
    library->instances.erase(context);
  }
}

SOFT(cuModuleLoadDataEx)
(CUmodule* module, const void* image, unsigned int numOptions, CUjit_option* options,
 void** optionValues) {
  if (module == nullptr || image == nullptr) return CUDA_ERROR_INVALID_VALUE;
  JitOptions jit;
  if (CUresult bad = jit.read(numOptions, options, optionValues)) return bad;
  return load_module(module, image, SIZE_MAX, jit);
}

SOFT(cuModuleLoadData)(CUmodule* module, const void* image) {
  return soft_cuModuleLoadDataEx(module, image, 0, nullptr, nullptr);
}

SOFT(cuModuleLoadFatBinary)(CUmodule* module, const void* fatCubin) {
  return soft_cuModuleLoadDataEx(module, fatCubin, 0, nullptr, nullptr);
}

SOFT(cuModuleLoad)(CUmodule* module, const char* fname) {
  if (module == nullptr || fname == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SOFT_CONTEXT(context);
  std::vector<uint8_t> bytes;
  if (!read_file(fname, &bytes)) return CUDA_ERROR_FILE_NOT_FOUND;
  return load_module(module, bytes.data(), bytes.size(), JitOptions());
}

SOFT(cuModuleUnload)(CUmodule hmod) {
  ModulePtr module = modules().get(hmod);
  if (!module) return CUDA_ERROR_INVALID_HANDLE;
  if (!module->library.expired()) return CUDA_ERROR_NOT_PERMITTED;
  ContextPtr context = contexts().get(module->context);
  if (context) context->synchronise();
  module->unload();
  return context ? context->error() : CUDA_SUCCESS;
}

SOFT(cuModuleGetFunction)(CUfunction* hfunc, CUmodule hmod, const char* name) {
  if (hfunc == nullptr || name == nullptr || *name == '\0') return CUDA_ERROR_INVALID_VALUE;
  ModulePtr module = modules().get(hmod);
  if (!module) return CUDA_ERROR_INVALID_HANDLE;
  int index = module->find_kernel(name);
  if (index < 0) return CUDA_ERROR_NOT_FOUND;
  *hfunc = module->function(static_cast<size_t>(index))->handle;
  return CUDA_SUCCESS;
}

SOFT(cuModuleGetFunctionCount)(unsigned int* count, CUmodule mod) {
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  ModulePtr module = modules().get(mod);
  if (!module) return CUDA_ERROR_INVALID_HANDLE;
  *count = static_cast<unsigned>(module->program->kernels().size());
  return CUDA_SUCCESS;
}

SOFT(cuModuleEnumerateFunctions)(CUfunction* list, unsigned int numFunctions, CUmodule mod) {
  ModulePtr module = modules().get(mod);
  if (!module) return CUDA_ERROR_INVALID_HANDLE;
  if (list == nullptr || numFunctions == 0) return CUDA_ERROR_INVALID_VALUE;
  size_t count = std::min<size_t>(numFunctions, module->program->kernels().size());
  for (size_t i = 0; i < count; ++i) list[i] = module->function(i)->handle;
  return CUDA_SUCCESS;
}

SOFT(cuModuleGetGlobal_v2)(CUdeviceptr* dptr, size_t* bytes, CUmodule hmod, const char* name) {
  if (name == nullptr || (dptr == nullptr && bytes == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  ModulePtr module = modules().get(hmod);
  if (!module) return CUDA_ERROR_INVALID_HANDLE;
  int index = module->find_global(name);
  if (index < 0)  // measured on an H200
    return module->find_kernel(name) >= 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_NOT_FOUND;
  if (dptr != nullptr) *dptr = module->global_addresses[static_cast<size_t>(index)];
  if (bytes != nullptr) *bytes = module->program->globals()[static_cast<size_t>(index)].size;
  return CUDA_SUCCESS;
}

SOFT(cuModuleGetLoadingMode)(CUmoduleLoadingMode* mode) {
  if (mode == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const char* wish = getenv("CUDA_MODULE_LOADING");
  *mode = wish != nullptr && strcmp(wish, "EAGER") == 0 ? CU_MODULE_EAGER_LOADING
                                                        : CU_MODULE_LAZY_LOADING;
  return CUDA_SUCCESS;
}

SOFT(cuModuleGetTexRef)(CUtexref* pTexRef, CUmodule hmod, const char* name) {
  return modules().get(hmod) ? CUDA_ERROR_NOT_FOUND : CUDA_ERROR_INVALID_HANDLE;
}
SOFT(cuModuleGetSurfRef)(CUsurfref* pSurfRef, CUmodule hmod, const char* name) {
  return modules().get(hmod) ? CUDA_ERROR_NOT_FOUND : CUDA_ERROR_INVALID_HANDLE;
}

}  // namespace tendril::softgpu
