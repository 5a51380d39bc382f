// SPDX-License-Identifier: Apache-2.0
// See jit_options.h.
#include "client/cuda/code/jit_options.h"

#include <cstring>

namespace tendril::client::cuda {
namespace {

using api::JitValue;

uint64_t word_of(const void* value) { return reinterpret_cast<uint64_t>(value); }

// Not read as the enumeration: the program may pass numbers that it does not have.
uint32_t option_at(const CUjit_option* options, unsigned i) {
  return reinterpret_cast<const uint32_t*>(options)[i];
}

// An option's value as an unsigned int, which is what the driver reads of it.
unsigned number_of(const CUjit_option* options, void* const* values, unsigned count,
                   uint32_t option) {
  for (unsigned i = 0; i < count; ++i) {
    if (option_at(options, i) == option) return static_cast<unsigned>(word_of(values[i]));
  }
  return 0;
}

void copy_log(char* into, uint64_t capacity, const wire::Bytes& log) {
  if (into == nullptr || capacity == 0) return;
  const uint64_t bytes = log.count < capacity ? log.count : capacity - 1;
  if (bytes != 0) std::memcpy(into, log.data, bytes);
  if (bytes < capacity) into[bytes] = 0;
}

}  // namespace

bool JitOptions::is_plain(uint32_t option) {
  const JitValue value = api::jit_value(option);
  return value == JitValue::kWord && option != CU_JIT_GLOBAL_SYMBOL_COUNT &&
         option != CU_JIT_REFERENCED_KERNEL_COUNT && option != CU_JIT_REFERENCED_VARIABLE_COUNT;
}

CUresult JitOptions::take(const CUjit_option* options, void** values, unsigned count) {
  if (count == 0) return CUDA_SUCCESS;
  if (options == nullptr || values == nullptr || count > api::kJitOptionsMax)
    return CUDA_ERROR_INVALID_VALUE;
  values_ = values;
  info_bytes_ = number_of(options, values, count, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES);
  error_bytes_ = number_of(options, values, count, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES);
  for (unsigned i = 0; i < count; ++i) {
    const uint32_t option = option_at(options, i);
    uint64_t word = word_of(values[i]);
    switch (api::jit_value(option)) {
      case JitValue::kInfoLog:
        info_log_ = static_cast<char*>(values[i]);
        word = info_bytes_;
        break;
      case JitValue::kErrorLog:
        error_log_ = static_cast<char*>(values[i]);
        word = error_bytes_;
        break;
      case JitValue::kNames:
      case JitValue::kAddresses: {
        const unsigned elements = number_of(options, values, count, api::jit_count_option(option));
        const CUresult result = take_array(option, values[i], elements);
        if (result != CUDA_SUCCESS) return result;
        word = elements;
        break;
      }
      case JitValue::kUnknown:
        return CUDA_ERROR_INVALID_VALUE;
      default:
        break;
    }
    options_.push_back(option);
    words_.push_back(word);
  }
  return CUDA_SUCCESS;
}

CUresult JitOptions::take_array(uint32_t option, const void* array, unsigned elements) {
  if (elements > api::kJitElementsMax || (array == nullptr && elements != 0))
    return CUDA_ERROR_INVALID_VALUE;
  if (api::jit_value(option) == JitValue::kAddresses) {
    const uint64_t* addresses = static_cast<const uint64_t*>(array);
    addresses_.insert(addresses_.end(), addresses, addresses + elements);
    return CUDA_SUCCESS;
  }
  for (unsigned i = 0; i < elements; ++i) {
    const char* name = static_cast<const char* const*>(array)[i];
    if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
    names_.append(name, std::strlen(name) + 1);
    if (names_.size() > api::kJitLogBytesMax) return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

void JitOptions::set_words(const std::vector<uint32_t>& options,
                           const std::vector<uint64_t>& words) {
  options_ = options;
  words_ = words;
}

void JitOptions::give(const wire::Bytes& info_log, const wire::Bytes& error_log,
                      const wire::Array<uint64_t>& values) {
  copy_log(info_log_, info_bytes_, info_log);
  copy_log(error_log_, error_bytes_, error_log);
  if (values_ == nullptr) return;
  for (uint64_t i = 0; i < options_.size() && i < values.count; ++i) {
    const JitValue kind = api::jit_value(options_[i]);
    if (kind == JitValue::kResult || kind == JitValue::kInfoBytes ||
        kind == JitValue::kErrorBytes) {
      values_[i] = reinterpret_cast<void*>(values[i]);
    }
  }
}

}  // namespace tendril::client::cuda
