// SPDX-License-Identifier: Apache-2.0
// Texts of results. See error.h.
#include "softnccl/error.h"

#include <cstdio>
#include <cstdlib>
#include <mutex>

namespace tendril::softnccl {
namespace {

struct Last {
  std::mutex lock;
  std::string text;
};

Last& last() {
  static Last& kept = *new Last;
  return kept;
}

}  // namespace

ncclResult_t error(ncclResult_t result, const std::string& text) {
  {
    std::lock_guard guard(last().lock);
    last().text = "softnccl: " + text;
  }
  if (const char* level = std::getenv("NCCL_DEBUG"))
    if (std::string(level) == "WARN" || std::string(level) == "INFO")
      std::fprintf(stderr, "softnccl: %s\n", text.c_str());
  return result;
}

const char* last_error() {
  thread_local std::string shown;
  std::lock_guard guard(last().lock);
  shown = last().text;
  return shown.c_str();
}

const char* error_text(ncclResult_t result) {
  static const char* const kTexts[] = {
      "no error",
      "unhandled cuda error (run with NCCL_DEBUG=INFO for details)",
      "unhandled system error (run with NCCL_DEBUG=INFO for details)",
      "internal error - please report this issue to the NCCL developers",
      "invalid argument (run with NCCL_DEBUG=WARN for details)",
      "invalid usage (run with NCCL_DEBUG=WARN for details)",
      "remote process exited or there was a network error",
      "NCCL operation in progress"};
  const auto number = static_cast<unsigned>(result);
  return number < ncclNumResults ? kTexts[number] : "unknown result code";
}

ncclResult_t net_error(Net net, const std::string& with) {
  switch (net) {
    case Net::kDone:
      return ncclSuccess;
    case Net::kStopped:
      return error(ncclInternalError, "aborted while waiting for " + with);
    case Net::kLost:
      return error(ncclRemoteError, "lost " + with);
    default:
      return error(ncclSystemError, "this machine refused a connection with " + with);
  }
}

ncclResult_t driver_error(int result, const char* call) {
  if (result == 0) return ncclSuccess;
  return error(ncclUnhandledCudaError, std::string(call) + " answered " + std::to_string(result));
}

}  // namespace tendril::softnccl
