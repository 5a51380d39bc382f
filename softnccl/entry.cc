// SPDX-License-Identifier: Apache-2.0
// The exported symbols: each function under its name and under the profiling name with a p in
// front. A knob may make any of them fail before it begins.
#include "softnccl/bodies.h"
#include "softnccl/driver.h"
#include "softnccl/error.h"
#include "softnccl/knobs.h"

namespace tendril::softnccl {
namespace {

ncclResult_t refused(const char* name) {
  if (driver() == nullptr)
    return error(ncclUnhandledCudaError, std::string(name) +
                                             ": this process has no GPU driver with the calls that "
                                             "softnccl needs; load the software GPU first");
  const ncclResult_t wanted = wanted_failure(name);
  return wanted == ncclSuccess
             ? ncclSuccess
             : error(wanted, std::string(name) + " fails because a knob wants it");
}

}  // namespace
}  // namespace tendril::softnccl

#define TENDRIL_SOFTNCCL_ENTRY(name, arguments, names)                                  \
  extern "C" __attribute__((visibility("default"))) ncclResult_t nccl##name arguments { \
    if (ncclResult_t bad = tendril::softnccl::refused("nccl" #name)) return bad;        \
    return tendril::softnccl::soft_nccl_##name names;                                   \
  }                                                                                     \
  extern "C" __attribute__((visibility("default"), alias("nccl" #name)))                \
  ncclResult_t pnccl##name arguments;
TENDRIL_SOFTNCCL_FUNCTIONS(TENDRIL_SOFTNCCL_ENTRY)
#undef TENDRIL_SOFTNCCL_ENTRY

#define TENDRIL_SOFTNCCL_OTHER(name, result, arguments)                  \
  extern "C" __attribute__((visibility("default"), alias("nccl" #name))) \
  result pnccl##name arguments;

extern "C" __attribute__((visibility("default"))) const char* ncclGetErrorString(
    ncclResult_t result) {
  return tendril::softnccl::error_text(result);
}
extern "C" __attribute__((visibility("default"))) const char* ncclGetLastError(ncclComm_t) {
  return tendril::softnccl::last_error();
}
// The level is read at each error.
extern "C" __attribute__((visibility("default"))) void ncclResetDebugInit() {}

TENDRIL_SOFTNCCL_OTHER(GetErrorString, const char*, (ncclResult_t))
TENDRIL_SOFTNCCL_OTHER(GetLastError, const char*, (ncclComm_t))
extern "C" __attribute__((visibility("default"))) void pncclResetDebugInit() {}
