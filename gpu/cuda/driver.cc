// SPDX-License-Identifier: Apache-2.0
// Opening a vendor library and binding its entry points by name. See driver.h.
#include "gpu/cuda/driver.h"

#include <iterator>

#include "gpu/binding.h"

namespace tendril::gpu {

base::Result<std::unique_ptr<Driver>> Driver::open(const std::string& path) {
  const std::string name = path.empty() ? "libcuda.so.1" : path;
  std::string why;
  void* library = open_library(name, &why);
  if (library == nullptr) {
    return base::Status(base::Code::kNotFound,
                        "cannot open the GPU driver library '" + name + "': " + why +
                            "; install the GPU's driver or name a library with --driver");
  }
  std::unique_ptr<Driver> driver(new Driver);
  driver->path_ = file_of(library, name);
#define TENDRIL_DRIVER_BIND(symbol, result, arguments, names) \
  {#symbol, offset_of(driver.get(), &driver->symbol)},
  const Binding bindings[] = {TENDRIL_CUDA_FUNCTIONS(TENDRIL_DRIVER_BIND)};
#undef TENDRIL_DRIVER_BIND
  bind(library, bindings, std::size(bindings), driver.get());
  if (driver->cuInit == nullptr || driver->cuDriverGetVersion == nullptr) {
    return base::Status(base::Code::kMismatch,
                        "'" + name + "' is not a CUDA driver library (it has no cuInit)");
  }
  return driver;
}

}  // namespace tendril::gpu
