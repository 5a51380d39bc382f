// SPDX-License-Identifier: Apache-2.0
// See jit_options.h.
#include "worker/cuda/code/jit_options.h"

#include <cstring>

namespace tendril::worker::cuda {
namespace {

using api::JitValue;

void* as_value(uint64_t word) { return reinterpret_cast<void*>(word); }
uint64_t as_word(const void* value) { return reinterpret_cast<uint64_t>(value); }

}  // namespace

CUresult JitOptions::take(const wire::Array<uint32_t>& options, const wire::Array<uint64_t>& values,
                          const wire::Bytes& names, const wire::Array<uint64_t>& addresses) {
  if (options.count != values.count || options.count > api::kJitOptionsMax)
    return CUDA_ERROR_INVALID_VALUE;
  text_.assign(names.begin(), names.end());
  uint64_t names_at = 0, addresses_at = 0;
  for (uint64_t i = 0; i < options.count; ++i) {
    uint64_t word = values[i];
    void* value = as_value(word);
    switch (api::jit_value(options[i])) {
      case JitValue::kInfoLog:
        info_log_.resize(api::kJitLogBytesMax + 1);
        value = info_log_.data();
        break;
      case JitValue::kErrorLog:
        error_log_.resize(api::kJitLogBytesMax + 1);
        value = error_log_.data();
        break;
      case JitValue::kInfoBytes:
      case JitValue::kErrorBytes:  // an unsigned int to the driver; the client's buffer may be
                                   // larger than ours
        word &= 0xffffffff;
        value = as_value(word < api::kJitLogBytesMax ? word : api::kJitLogBytesMax);
        break;
      case JitValue::kNames: {
        const CUresult result = take_names(word, names, &names_at);
        if (result != CUDA_SUCCESS) return result;
        value = name_arrays_.back().data();
        break;
      }
      case JitValue::kAddresses:
        if (word > addresses.count - addresses_at) return CUDA_ERROR_INVALID_VALUE;
        address_arrays_.emplace_back(addresses.data + addresses_at,
                                     addresses.data + addresses_at + word);
        addresses_at += word;
        value = address_arrays_.back().data();
        break;
      case JitValue::kUnknown:
        return CUDA_ERROR_INVALID_VALUE;
      default:
        break;
    }
    options_.push_back(static_cast<CUjit_option>(options[i]));
    values_.push_back(value);
  }
  bound_counts();
  return CUDA_SUCCESS;
}

CUresult JitOptions::take_names(uint64_t count, const wire::Bytes& names, uint64_t* at) {
  if (count > api::kJitElementsMax) return CUDA_ERROR_INVALID_VALUE;
  std::vector<const char*> array;
  for (uint64_t i = 0; i < count; ++i) {
    const void* end =
        *at < names.count ? std::memchr(names.data + *at, 0, names.count - *at) : nullptr;
    if (end == nullptr) return CUDA_ERROR_INVALID_VALUE;
    array.push_back(text_.data() + *at);
    *at = static_cast<uint64_t>(static_cast<const uint8_t*>(end) - names.data) + 1;
  }
  array.push_back(nullptr);  // never empty, so that data() is a pointer
  name_arrays_.push_back(std::move(array));
  return CUDA_SUCCESS;
}

// The driver trusts the options that hold counts. So a peer's counts must not exceed the arrays.
void JitOptions::bound_counts() {
  constexpr uint32_t kCounts[] = {CU_JIT_GLOBAL_SYMBOL_COUNT, CU_JIT_REFERENCED_KERNEL_COUNT,
                                  CU_JIT_REFERENCED_VARIABLE_COUNT};
  for (const uint32_t counter : kCounts) {
    uint64_t least = UINT64_MAX;
    size_t names = 0, addresses = 0;
    for (const CUjit_option option : options_) {
      const JitValue kind = api::jit_value(option);
      const bool array = kind == JitValue::kNames || kind == JitValue::kAddresses;
      const uint64_t elements = kind == JitValue::kNames       ? name_arrays_[names++].size() - 1
                                : kind == JitValue::kAddresses ? address_arrays_[addresses++].size()
                                                               : 0;
      if (array && api::jit_count_option(option) == counter && elements < least) least = elements;
    }
    if (least == UINT64_MAX) least = 0;
    for (size_t i = 0; i < options_.size(); ++i) {
      if (static_cast<uint32_t>(options_[i]) == counter && as_word(values_[i]) > least)
        values_[i] = as_value(least);
    }
  }
}

wire::Bytes JitOptions::log_copy(Scope* scope, const std::vector<char>& log) {
  if (log.empty()) return {};
  const uint64_t bytes = strnlen(log.data(), log.size());
  uint8_t* copy = scope->scratch<uint8_t>(bytes);
  if (copy == nullptr) return {};
  std::memcpy(copy, log.data(), bytes);
  return {copy, bytes};
}

wire::Array<uint64_t> JitOptions::values_copy(Scope* scope) const {
  uint64_t* copy = scope->scratch<uint64_t>(values_.size());
  if (copy == nullptr) return {};
  for (size_t i = 0; i < values_.size(); ++i) {
    const JitValue kind = api::jit_value(options_[i]);
    const bool told =
        kind == JitValue::kResult || kind == JitValue::kInfoBytes || kind == JitValue::kErrorBytes;
    copy[i] = told ? as_word(values_[i]) : 0;  // the client must not see our pointers
  }
  return {copy, values_.size()};
}

}  // namespace tendril::worker::cuda
