// SPDX-License-Identifier: Apache-2.0
// Code: modules (one context), libraries (any context, instantiated on use), functions and kernels.
// A launch keeps what it needs alive until it is over. Any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "softgpu/driver/device/context.h"
#include "softgpu/driver/memory/card_memory.h"
#include "softgpu/driver/stream/work.h"
#include "softgpu/engine.h"

namespace tendril::softgpu {

class Module;
class Library;

// What cuFuncSetAttribute changes. A kernel and its functions on one device share it.
struct FunctionState {
  std::atomic<int> max_dynamic_shared{-1};  // -1: the default
  std::atomic<int> carveout{-1};
  std::atomic<int> non_portable_cluster{0};
  std::atomic<int> cluster_policy{0};
  // Launch state of the old calls from before cuLaunchKernel.
  std::mutex lock;
  Dim3 block;
  unsigned dynamic_shared = 0;
  std::vector<uint8_t> params;
};

struct Function {
  CUfunction handle = nullptr;
  std::shared_ptr<Module> module;
  size_t index = 0;
  std::shared_ptr<FunctionState> state;
  const KernelInfo& info() const;
};
using FunctionPtr = std::shared_ptr<Function>;
using FunctionTable = HandleTable<CUfunction, Function, HandleKind::kFunction>;
FunctionTable& functions();

// The variables of a program that host and device share, filled when they are made. All instances
// of a library have the same ones.
class ManagedVariables {
 public:
  // Null: no memory.
  static std::shared_ptr<ManagedVariables> make(const Program& program, int device);
  ~ManagedVariables();
  uint64_t address(size_t global) const { return addresses_[global]; }  // 0: not a managed variable

 private:
  std::vector<uint64_t> addresses_;
};

class Module : public std::enable_shared_from_this<Module> {
 public:
  CUmodule handle = nullptr;
  CUcontext context = nullptr;
  int device = 0;
  std::shared_ptr<Program> program;
  std::weak_ptr<Library> library;  // if this is an instance of a library
  std::vector<uint64_t> global_addresses;
  HiddenMemory memory;  // of them all
  std::shared_ptr<ManagedVariables> managed;

  FunctionPtr function(size_t index);
  // Index of the kernel, or -1.
  int find_kernel(const char* name) const;
  int find_global(const char* name) const;
  // Frees globals and removes handles. The caller makes sure that nothing runs.
  void unload();
  ~Module();

 private:
  std::mutex lock_;
  std::map<size_t, FunctionPtr> functions_;
};
using ModulePtr = std::shared_ptr<Module>;
using ModuleTable = HandleTable<CUmodule, Module, HandleKind::kModule>;
ModuleTable& modules();

struct Kernel {
  CUkernel handle = nullptr;
  std::weak_ptr<Library> library;
  size_t index = 0;
  std::mutex lock;
  std::map<int, std::shared_ptr<FunctionState>> states;  // per device
  std::shared_ptr<FunctionState> state(int device);
};
using KernelPtr = std::shared_ptr<Kernel>;
using KernelTable = HandleTable<CUkernel, Kernel, HandleKind::kKernel>;
KernelTable& kernels();

class Library : public std::enable_shared_from_this<Library> {
 public:
  CUlibrary handle = nullptr;
  std::shared_ptr<Program> program;
  std::mutex lock;
  std::map<CUcontext, ModulePtr> instances;
  std::vector<KernelPtr> kernels;
  std::shared_ptr<ManagedVariables> managed;
  // Managed variables need no context: they exist from the first query or the first instance.
  CUresult make_managed(int device);
  // The instance of this library in a context. Made on first use.
  CUresult instance(const ContextPtr& context, ModulePtr* out);
};
using LibraryPtr = std::shared_ptr<Library>;
using LibraryTable = HandleTable<CUlibrary, Library, HandleKind::kLibrary>;
LibraryTable& libraries();

// Reads an image into a program. The logs say what is wrong and where.
CUresult load_program(const void* image, size_t limit, unsigned sm, std::shared_ptr<Program>* out,
                      std::string* error_log);
// The newest capability that all devices share. Libraries are loaded for it.
unsigned device_sm();
// Instantiates a program in a context: places and fills its variables.
CUresult make_module(const ContextPtr& context, std::shared_ptr<Program> program,
                     std::shared_ptr<ManagedVariables> managed, ModulePtr* out);
// Removes every module of a context that is being destroyed.
void drop_modules(CUcontext context);
// Resolves a CUfunction, or a CUkernel cast to one, for a context.
CUresult find_function(CUfunction handle, const ContextPtr& context, FunctionPtr* out);
bool read_file(const char* path, std::vector<uint8_t>* out);
// Attributes, for a function or a kernel on a device.
CUresult get_attribute(const Program& program, const KernelInfo& info, FunctionState& state,
                       CUfunction_attribute attribute, int* value);
CUresult set_attribute(const KernelInfo& info, FunctionState& state, CUfunction_attribute attribute,
                       int value);
// How much dynamic shared memory a launch may ask for.
int dynamic_shared_limit(const KernelInfo& info, const FunctionState& state);

struct KernelWork : Work {
  FunctionPtr function;
  Dim3 grid, block;
  unsigned shared_bytes = 0;
  bool cooperative = false;
  std::vector<uint8_t> params;
  CUgraphNodeType type() const override { return CU_GRAPH_NODE_TYPE_KERNEL; }
  CUresult run(Context& launching) override;
  LaunchResult execute(Context& context);
  WorkPtr clone() const override { return std::make_shared<KernelWork>(*this); }
};
// Makes all checks of a launch and packs the parameters.
CUresult make_launch(const ContextPtr& context, CUfunction f, Dim3 grid, Dim3 block,
                     unsigned shared_bytes, void** params, void** extra, bool cooperative,
                     std::shared_ptr<KernelWork>* out);
// How many blocks of a kernel one processor holds at a time.
int blocks_per_sm(const Function& function, int threads, size_t dynamic_shared);

}  // namespace tendril::softgpu
