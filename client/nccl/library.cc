// SPDX-License-Identifier: Apache-2.0
// The bodies of api/nccl/library.spec, and the answer to everything that is not there yet.
#include <stdio.h>
#include <string.h>

#include "client/common/log.h"
#include "client/nccl/communicator.h"
#include "client/nccl/entry.h"

namespace tendril::client::nccl {

namespace {

// Why a function is refused, by a part of its name. The first that fits holds.
struct Refusal {
  const char* part;
  const char* why;
};
constexpr Refusal kRefusals[] = {
    {"Window",
     "windows are memory that kernels of other GPUs reach, which Tendril does not forward"},
    {"WinGet",
     "windows are memory that kernels of other GPUs reach, which Tendril does not forward"},
    {"Signal", "signals need windows, which Tendril does not forward"},
    {"Grow", "make a communicator of all ranks with ncclCommInitRank instead"},
    {"CommGetUniqueId", "make a communicator of all ranks with ncclGetUniqueId instead"},
    {"Revoke", "call ncclCommAbort instead"},
    {"Suspend", "destroy the communicator, and make it again"},
    {"Resume", "destroy the communicator, and make it again"},
    {"Param", "set NCCL's variables before the program's first call of NCCL"},
    {"SetEncryption", "what NCCL sends between servers is the operators' choice"},
    {"MemStats", "ask the driver how much memory is free"},
    {"ResetDebug", "the program has no log of NCCL's; the server's variables decide about it"},
    {"GroupSimulateEnd", "Tendril does not forward estimates"},
};

}  // namespace

ncclResult_t refused(const char* name) {
  const char* why = "it is part of the device API, which Tendril does not forward";
  for (const Refusal& each : kRefusals) {
    if (strstr(name, each.part) == nullptr) continue;
    why = each.why;
    break;
  }
  char text[256];
  snprintf(text, sizeof text, "%s is not supported by Tendril: %s", name, why);
  log_once(LogLevel::kError, "%s", text);
  remember(text);
  return ncclInvalidUsage;
}

ncclResult_t ncclGetVersion(int* version) {
  if (version == nullptr) return ncclInvalidArgument;
  const api::nccl::Door* way = door();
  return way != nullptr ? static_cast<ncclResult_t>(way->version(version)) : ncclSystemError;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  if (id == nullptr) return ncclInvalidArgument;
  const api::nccl::Door* way = door();
  return way != nullptr ? ask_unique_id(way->current_device(), id) : ncclSystemError;
}

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess:
      return "no error";
    case ncclUnhandledCudaError:
      return "unhandled cuda error (run with NCCL_DEBUG=INFO for details)";
    case ncclSystemError:
      return "unhandled system error (run with NCCL_DEBUG=INFO for details)";
    case ncclInternalError:
      return "internal error - please report this issue to the NCCL developers";
    case ncclInvalidArgument:
      return "invalid argument (run with NCCL_DEBUG=WARN for details)";
    case ncclInvalidUsage:
      return "invalid usage (run with NCCL_DEBUG=WARN for details)";
    case ncclRemoteError:
      return "remote process exited or there was a network error";
    case ncclInProgress:
      return "NCCL operation in progress";
    default:
      return "unknown result code";
  }
}

const char* ncclGetLastError(ncclComm_t) { return last_error(); }

void ncclResetDebugInit() {}

ncclResult_t ncclMemAlloc(void** memory, size_t bytes) {
  if (memory == nullptr) return ncclInvalidArgument;
  const api::nccl::Door* way = door();
  return way != nullptr ? static_cast<ncclResult_t>(way->allocate(memory, bytes)) : ncclSystemError;
}

ncclResult_t ncclMemFree(void* memory) {
  if (memory == nullptr) return ncclSuccess;
  const api::nccl::Door* way = door();
  return way != nullptr ? static_cast<ncclResult_t>(way->free(memory)) : ncclSystemError;
}

}  // namespace tendril::client::nccl

// Our libcuda.so.1 sees by this that this library is there (client/cuda/nccl/door.cc).
extern "C" __attribute__((visibility("default"), used)) const char ncclTendrilMark = 1;
