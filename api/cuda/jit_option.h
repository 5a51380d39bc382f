// SPDX-License-Identifier: Apache-2.0
// What the value of a JIT option is: a word, a word that the driver overwrites, or a pointer to a
// buffer or an array. Both sides of the wire use this. The client takes the program's values apart
// with it. The worker builds the driver's values with it. Source: CUDA driver API, CUjit_option.
#pragma once

#include <cstdint>

#include "api/cuda_abi.gen.h"

namespace tendril::api {

enum class JitValue : uint8_t {
  kWord,
  kResult,  // a word in, a word out
  kInfoLog,
  kErrorLog,
  kInfoBytes,
  kErrorBytes,  // size of the log buffer in, bytes written out
  kNames,       // const char*[]
  kAddresses,   // void*[]
  kUnknown,
};

inline constexpr uint32_t kJitOptionLast = 35;  // CU_JIT_BINARY_LOADER_THREAD_COUNT of 13.x, a word

constexpr JitValue jit_value(uint32_t option) {
  switch (option) {
    case CU_JIT_THREADS_PER_BLOCK:
    case CU_JIT_WALL_TIME:
      return JitValue::kResult;
    case CU_JIT_INFO_LOG_BUFFER:
      return JitValue::kInfoLog;
    case CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES:
      return JitValue::kInfoBytes;
    case CU_JIT_ERROR_LOG_BUFFER:
      return JitValue::kErrorLog;
    case CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES:
      return JitValue::kErrorBytes;
    case CU_JIT_GLOBAL_SYMBOL_NAMES:
    case CU_JIT_REFERENCED_KERNEL_NAMES:
    case CU_JIT_REFERENCED_VARIABLE_NAMES:
      return JitValue::kNames;
    case CU_JIT_GLOBAL_SYMBOL_ADDRESSES:
      return JitValue::kAddresses;
    default:
      return option <= kJitOptionLast ? JitValue::kWord : JitValue::kUnknown;
  }
}

// The option that says how many elements an array option has.
constexpr uint32_t jit_count_option(uint32_t option) {
  switch (option) {
    case CU_JIT_REFERENCED_KERNEL_NAMES:
      return CU_JIT_REFERENCED_KERNEL_COUNT;
    case CU_JIT_REFERENCED_VARIABLE_NAMES:
      return CU_JIT_REFERENCED_VARIABLE_COUNT;
    default:
      return CU_JIT_GLOBAL_SYMBOL_COUNT;
  }
}

inline constexpr uint32_t kJitOptionsMax = 64;
inline constexpr uint32_t kJitElementsMax = 4096;
inline constexpr uint32_t kJitLogBytesMax = 256u << 10;

}  // namespace tendril::api
