// SPDX-License-Identifier: Apache-2.0
// The bodies of api/nccl/library.spec, and the answer to everything that is not there yet.
#include <stdio.h>

#include "client/common/log.h"
#include "client/nccl/communicator.h"
#include "client/nccl/entry.h"

namespace tendril::client::nccl {

ncclResult_t refused(const char* name) {
  log_once(LogLevel::kError, "%s is not supported: Tendril forwards the first set of NCCL's calls",
           name);
  char text[256];
  snprintf(text, sizeof text, "%s is not supported by Tendril", name);
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
