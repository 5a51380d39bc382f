// SPDX-License-Identifier: Apache-2.0
// See driver.h.
#include "gpu/nccl/driver.h"

#include <dlfcn.h>
#include <limits.h>
#include <unistd.h>

#include <algorithm>

namespace tendril::gpu {

std::string nccl_driver_path() {
  char text[PATH_MAX];
  const ssize_t bytes = readlink("/proc/self/exe", text, sizeof text - 1);
  std::string path(text, bytes > 0 ? static_cast<size_t>(bytes) : 0);
  constexpr char kName[] = "/libtendril-nccl-driver.so";
  path.resize(std::min(path.rfind('/'), path.size()));
  if (access((path + kName).c_str(), R_OK) == 0) return path + kName;  // installed
  path.resize(std::min(path.rfind('/'), path.size()));
  return path + "/lib" + kName;  // in a build
}

base::Result<DriverTable*> take_drivers_place(const Driver& driver, const std::string& path) {
  void* const ours = own_dlopen.load();
  if (ours == nullptr || dlsym(RTLD_DEFAULT, "dlopen") != ours)
    return base::Status(base::Code::kUnsupported,
                        "this process cannot answer NCCL when it opens the driver");
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* why = dlerror();
    return base::Status(base::Code::kNotFound, std::string("cannot open the driver for NCCL: ") +
                                                   (why != nullptr ? why : "unknown reason"));
  }
  const auto take = reinterpret_cast<TakeDriverTable*>(dlsym(library, kTakeDriverTable));
  DriverTable* const table = take != nullptr ? take(sizeof(DriverTable)) : nullptr;
  if (table == nullptr)
    return base::Status(base::Code::kMismatch,
                        "'" + path + "' is of another build than the worker");
#define TENDRIL_DRIVER_FORWARD(symbol, result, arguments, names) table->symbol = driver.symbol;
  TENDRIL_CUDA_FUNCTIONS(TENDRIL_DRIVER_FORWARD)
#undef TENDRIL_DRIVER_FORWARD
  static std::string& kept = *new std::string;  // others may read it until the process ends
  kept = path;
  driver_instead.store(kept.c_str());
  return table;
}

}  // namespace tendril::gpu
