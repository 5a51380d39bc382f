// SPDX-License-Identifier: Apache-2.0
// See opencl.h.
#include "tests/opencl/opencl.h"

#include <dlfcn.h>

bool OpenCl::open() {
  void* library = dlopen("libOpenCL.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return false;
#define TENDRIL_BIND(symbol, result, arguments, names) \
  symbol = reinterpret_cast<symbol##_t*>(dlsym(library, #symbol));
  TENDRIL_OPENCL_FUNCTIONS(TENDRIL_BIND)
#undef TENDRIL_BIND
  return true;
}
