// SPDX-License-Identifier: Apache-2.0
// See jit_options.h. Options that steer a compiler are accepted and ignored.

#include "softgpu/driver/code/jit_options.h"

#include <algorithm>
#include <cstring>

namespace tendril::softgpu {
namespace {

void write_log(char* buffer, void** bytes, const std::string& text) {
  if (buffer == nullptr || bytes == nullptr) return;
  size_t room = static_cast<unsigned>(reinterpret_cast<uintptr_t>(*bytes));
  if (room == 0) return;
  size_t used = std::min(text.size(), room - 1);
  memcpy(buffer, text.data(), used);
  buffer[used] = '\0';
  *bytes = reinterpret_cast<void*>(used == 0 ? 0 : used + 1);
}

}  // namespace

CUresult JitOptions::read(unsigned count, CUjit_option* options, void** values) {
  if (count != 0 && (options == nullptr || values == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  if (count > CU_JIT_NUM_OPTIONS) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned i = 0; i < count; ++i) {
    switch (options[i]) {
      case CU_JIT_INFO_LOG_BUFFER:
        info_ = static_cast<char*>(values[i]);
        break;
      case CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES:
        info_bytes_ = &values[i];
        break;
      case CU_JIT_ERROR_LOG_BUFFER:
        error_ = static_cast<char*>(values[i]);
        break;
      case CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES:
        error_bytes_ = &values[i];
        break;
      case CU_JIT_WALL_TIME:
        wall_time_ = &values[i];
        break;
      default:
        if (static_cast<unsigned>(options[i]) >= CU_JIT_NUM_OPTIONS)
          return CUDA_ERROR_INVALID_VALUE;
    }
  }
  return CUDA_SUCCESS;
}

void JitOptions::report(const std::string& info, const std::string& error) const {
  write_log(info_, info_bytes_, info);
  write_log(error_, error_bytes_, error);
  if (wall_time_ != nullptr) {
    float milliseconds = 0.0f;
    memcpy(wall_time_, &milliseconds, sizeof milliseconds);
  }
}

}  // namespace tendril::softgpu
