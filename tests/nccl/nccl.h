// SPDX-License-Identifier: Apache-2.0
// NCCL's functions for test programs, from the library that the loader finds under NCCL's name.
#pragma once

#include <dlfcn.h>
#include <unistd.h>

#include "softnccl/nccl.h"
#include "tests/programs/program.h"

namespace program {

struct Nccl {
#define TENDRIL_NCCL_MEMBER(name, arguments, names) ncclResult_t(*name) arguments;
  TENDRIL_SOFTNCCL_FUNCTIONS(TENDRIL_NCCL_MEMBER)
#undef TENDRIL_NCCL_MEMBER
  const char* (*GetErrorString)(ncclResult_t);
  const char* (*GetLastError)(ncclComm_t);
};

// A function that the library does not export stays null.
inline const Nccl& nccl() {
  static const Nccl all = [] {
    Nccl found{};
    void* library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) fail(dlerror());
#define TENDRIL_NCCL_BIND(name, arguments, names) \
  found.name = reinterpret_cast<decltype(found.name)>(dlsym(library, "nccl" #name));
    TENDRIL_SOFTNCCL_FUNCTIONS(TENDRIL_NCCL_BIND)
#undef TENDRIL_NCCL_BIND
    found.GetErrorString =
        reinterpret_cast<const char* (*)(ncclResult_t)>(dlsym(library, "ncclGetErrorString"));
    found.GetLastError =
        reinterpret_cast<const char* (*)(ncclComm_t)>(dlsym(library, "ncclGetLastError"));
    return found;
  }();
  return all;
}

inline void check_nccl(ncclResult_t result, const char* call) {
  if (result == ncclSuccess) return;
  std::printf("%s: %s (%d): %s\nFAIL\n", call, nccl().GetErrorString(result),
              static_cast<int>(result), nccl().GetLastError(nullptr));
  std::fflush(stdout);
  std::_Exit(1);
}
#define CHECK_NCCL(call) ::program::check_nccl(::program::nccl().call, #call)

inline ncclConfig_t without_blocking() {
  ncclConfig_t config{};
  config.size = sizeof config;
  config.magic = 0xcafebeef;
  config.version = 21400;  // the first whose members are these
  config.blocking = 0;
  config.cgaClusterSize = config.minCTAs = config.maxCTAs = config.splitShare = INT_MIN;
  return config;
}

// Of a communicator that does not block: waits until its last call is over.
inline ncclResult_t settled(ncclResult_t result, ncclComm_t comm) {
  while (result == ncclInProgress) {
    usleep(50);
    if (nccl().CommGetAsyncError(comm, &result) != ncclSuccess) return ncclInternalError;
  }
  return result;
}

}  // namespace program
