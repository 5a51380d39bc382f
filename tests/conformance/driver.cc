// SPDX-License-Identifier: Apache-2.0
// Binds the driver's entry points for the suite. Runs once in main before any test. It makes no
// driver call, because several cases must be the first caller.
#include "tests/conformance/driver.h"

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>

namespace tendril::conformance {
namespace {

void* library = nullptr;

void complain(const char* symbol) {
  std::fprintf(stderr, "conformance: %s is not exported by %s\n", symbol, driver_path());
}

#define TENDRIL_STAND_IN(symbol, result, arguments, names) \
  result missing_##symbol arguments {                      \
    complain(#symbol);                                     \
    return CUDA_ERROR_NOT_SUPPORTED;                       \
  }
TENDRIL_CUDA_FUNCTIONS(TENDRIL_STAND_IN)
#undef TENDRIL_STAND_IN

}  // namespace

#define TENDRIL_DEFINE(symbol, result, arguments, names) symbol##_t* symbol = missing_##symbol;
TENDRIL_CUDA_FUNCTIONS(TENDRIL_DEFINE)
#undef TENDRIL_DEFINE

const char* driver_path() {
  const char* path = std::getenv("TENDRIL_CONFORMANCE_DRIVER");
  return path && *path ? path : "libcuda.so.1";
}

void* exported(const char* symbol) { return dlsym(library, symbol); }

void bind_driver() {
  library = dlopen(driver_path(), RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    std::fprintf(stderr, "conformance: cannot open the driver: %s\n", dlerror());
    std::exit(2);
  }
#define TENDRIL_BIND(symbol, result, arguments, names) \
  if (void* found = exported(#symbol)) symbol = reinterpret_cast<symbol##_t*>(found);
  TENDRIL_CUDA_FUNCTIONS(TENDRIL_BIND)
#undef TENDRIL_BIND
}

const char* result_name(CUresult result) {
  switch (static_cast<int>(result)) {
#define TENDRIL_NAME(name) \
  case name:               \
    return #name;
#include "tests/conformance/result_names.inc"
#undef TENDRIL_NAME
  }
  return "an undocumented code";
}

}  // namespace tendril::conformance
