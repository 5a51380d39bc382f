// SPDX-License-Identifier: Apache-2.0
// Opening a vendor library and binding its entry points by name. See driver.h.
#include "gpu/driver.h"

#include <dlfcn.h>

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

}  // namespace

base::Result<std::unique_ptr<Driver>> Driver::open(const std::string& path) {
  const std::string name = path.empty() ? "libcuda.so.1" : path;
  void* library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* why = dlerror();
    return base::Status(base::Code::kNotFound, "cannot open the GPU driver library '" + name + "': " +
                                                   (why != nullptr ? why : "unknown reason") +
                                                   "; install the GPU's driver or name a library with --driver");
  }
  std::unique_ptr<Driver> driver(new Driver);
  driver->path_ = name;
#define TENDRIL_DRIVER_BIND(symbol, result, arguments, names) {#symbol, offset_of(driver.get(), &driver->symbol)},
  const Binding bindings[] = {TENDRIL_CUDA_FUNCTIONS(TENDRIL_DRIVER_BIND)};
#undef TENDRIL_DRIVER_BIND
  for (const Binding& binding : bindings) {
    void* entry = dlsym(library, binding.symbol);
    *reinterpret_cast<void**>(reinterpret_cast<char*>(driver.get()) + binding.offset) = entry;
  }
  if (driver->cuInit == nullptr || driver->cuDriverGetVersion == nullptr) {
    return base::Status(base::Code::kMismatch, "'" + name + "' is not a CUDA driver library (it has no cuInit)");
  }
  return driver;
}

}  // namespace tendril::gpu
