// SPDX-License-Identifier: Apache-2.0
// What a driver says about itself beside results: its error log, core dumps of GPUs, checkpoints.
// Tendril logs to standard error, so the driver's log stays empty. Core dumps would be files on the
// server, and are not made.
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "client/cuda/bodies.h"

namespace tendril::client::cuda {
namespace {

CUresult need_log(const CUlogIterator* iterator, unsigned flags) {
  (void)iterator;  // null: from the beginning; there is nothing to start in the middle of
  return flags == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

// The default value of a setting. Texts are empty, switches off.
CUresult core_dump_setting(CUcoredumpSettings attrib, void* value, size_t* size) {
  if (size == nullptr) return CUDA_ERROR_INVALID_VALUE;
  size_t needed = sizeof(bool);
  switch (attrib) {
    case CU_COREDUMP_ENABLE_ON_EXCEPTION:
    case CU_COREDUMP_TRIGGER_HOST:
    case CU_COREDUMP_LIGHTWEIGHT:
    case CU_COREDUMP_ENABLE_USER_TRIGGER:
      break;
    case CU_COREDUMP_FILE:
    case CU_COREDUMP_PIPE:
      needed = 1;  // the end of an empty text
      break;
    case CU_COREDUMP_GENERATION_FLAGS:
      needed = sizeof(unsigned);
      break;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
  if (value != nullptr && *size < needed) return CUDA_ERROR_INVALID_VALUE;
  if (value != nullptr) memset(value, 0, needed);
  if (value != nullptr && attrib == CU_COREDUMP_TRIGGER_HOST) *static_cast<bool*>(value) = true;
  *size = needed;
  return CUDA_SUCCESS;
}

}  // namespace

CUresult cuLogsCurrent(CUlogIterator* iterator_out, unsigned int flags) {
  if (iterator_out == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  *iterator_out = 0;
  return CUDA_SUCCESS;
}

CUresult cuLogsDumpToFile(CUlogIterator* iterator, const char* pathToFile, unsigned int flags) {
  TENDRIL_TRY(need_log(iterator, flags));
  if (pathToFile == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const int saved = errno;
  const int file = open(pathToFile, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (file >= 0) close(file);
  errno = saved;
  return file >= 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuLogsDumpToMemory(CUlogIterator* iterator, char* buffer, size_t* size,
                            unsigned int flags) {
  TENDRIL_TRY(need_log(iterator, flags));
  if (buffer == nullptr || size == nullptr || *size == 0) return CUDA_ERROR_INVALID_VALUE;
  buffer[0] = 0;
  *size = 0;
  return CUDA_SUCCESS;
}

// Accepted and never called: nothing is logged.
CUresult cuLogsRegisterCallback(CUlogsCallback callbackFunc, void*,
                                CUlogsCallbackHandle* callback_out) {
  static char registered;
  if (callbackFunc == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (callback_out != nullptr) *callback_out = reinterpret_cast<CUlogsCallbackHandle>(&registered);
  return CUDA_SUCCESS;
}
CUresult cuLogsUnregisterCallback(CUlogsCallbackHandle callback) {
  return callback != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuCoredumpGetAttribute(CUcoredumpSettings attrib, void* value, size_t* size) {
  Context* context = nullptr;
  TENDRIL_TRY(require_context(&context));
  return core_dump_setting(attrib, value, size);
}
CUresult cuCoredumpGetAttributeGlobal(CUcoredumpSettings attrib, void* value, size_t* size) {
  return core_dump_setting(attrib, value, size);
}

}  // namespace tendril::client::cuda
