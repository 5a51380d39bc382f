// SPDX-License-Identifier: Apache-2.0
// Opening a vendor library and binding its entry points by name. See driver.h.
#include "gpu/cuda/driver.h"

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <stdlib.h>

namespace tendril::gpu {
namespace {

struct Binding {
  const char* symbol;
  size_t offset;
};

template <typename Member>
size_t offset_of(Driver* driver, Member* member) {
  return static_cast<size_t>(reinterpret_cast<char*>(member) - reinterpret_cast<char*>(driver));
}

// The file behind `name`. A driver's file name has its version.
std::string file_of(void* library, const std::string& name) {
  const link_map* map = nullptr;
  char resolved[PATH_MAX];
  if (dlinfo(library, RTLD_DI_LINKMAP, &map) != 0 || map == nullptr) return name;
  return realpath(map->l_name, resolved) != nullptr ? resolved : name;
}

}  // namespace

base::Result<std::unique_ptr<Driver>> Driver::open(const std::string& path) {
  const std::string name = path.empty() ? "libcuda.so.1" : path;
  void* library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* why = dlerror();
    return base::Status(base::Code::kNotFound,
                        "cannot open the GPU driver library '" + name +
                            "': " + (why != nullptr ? why : "unknown reason") +
                            "; install the GPU's driver or name a library with --driver");
  }
  std::unique_ptr<Driver> driver(new Driver);
  driver->path_ = file_of(library, name);
#define TENDRIL_DRIVER_BIND(symbol, result, arguments, names) \
  {#symbol, offset_of(driver.get(), &driver->symbol)},
  const Binding bindings[] = {TENDRIL_CUDA_FUNCTIONS(TENDRIL_DRIVER_BIND)};
#undef TENDRIL_DRIVER_BIND
  for (const Binding& binding : bindings) {
    void* entry = dlsym(library, binding.symbol);
    *reinterpret_cast<void**>(reinterpret_cast<char*>(driver.get()) + binding.offset) = entry;
  }
  if (driver->cuInit == nullptr || driver->cuDriverGetVersion == nullptr) {
    return base::Status(base::Code::kMismatch,
                        "'" + name + "' is not a CUDA driver library (it has no cuInit)");
  }
  return driver;
}

}  // namespace tendril::gpu
