// SPDX-License-Identifier: Apache-2.0
// Says that the kernel knows of RDMA devices. By itself, without the cards, it makes a machine
// whose library is missing.
#include <dlfcn.h>
#include <string.h>
#include <unistd.h>

#include <cstdlib>

extern "C" __attribute__((visibility("default"))) int access(const char* path, int mode) noexcept {
  if (strcmp(path, "/sys/class/infiniband") == 0 && getenv("TENDRIL_RDMA_DOUBLE") != nullptr)
    return 0;
  static const auto real = reinterpret_cast<int (*)(const char*, int)>(dlsym(RTLD_NEXT, "access"));
  return real(path, mode);
}
