// SPDX-License-Identifier: Apache-2.0
// Replaces dlopen for everything in this process, because the linker finds the executable's
// function before the C library's. It opens what it is asked for. Exception: once
// gpu::driver_instead names a file, whoever opens CUDA's driver gets that file. The worker has
// opened the driver itself by then. Any thread, even before constructors have run.
#include <dlfcn.h>
#include <string.h>

#include "gpu/nccl/substitute.h"

namespace {

using Open = void*(const char*, int);

bool names_the_driver(const char* file) {
  constexpr char kDriver[] = "libcuda.so";
  const char* const slash = strrchr(file, '/');
  const char* const name = slash != nullptr ? slash + 1 : file;
  return strncmp(name, kDriver, sizeof kDriver - 1) == 0;
}

}  // namespace

// structure: allow dlopen: opens nothing by itself
extern "C" void* dlopen(const char* file, int mode) noexcept {
  static Open* const open = reinterpret_cast<Open*>(dlsym(RTLD_NEXT, "dlopen"));
  tendril::gpu::own_dlopen.store(reinterpret_cast<void*>(&dlopen), std::memory_order_relaxed);
  const char* const instead = tendril::gpu::driver_instead.load(std::memory_order_acquire);
  const bool substituted = instead != nullptr && file != nullptr && names_the_driver(file);
  return open(substituted ? instead : file, mode);
}
