// SPDX-License-Identifier: Apache-2.0
// What kernels on one server and over several have in common. Any thread.
#pragma once

#include "client/opencl/object.h"

namespace tendril::client::opencl {

constexpr uint8_t kUnknownForm = 255;  // of an argument: the driver does not say

// Whether the bytes of a value are a handle of one of these. They may be anything, so they are
// compared with where handles are, and not followed. A handle whose object has ended is `ended`.
template <typename T>
bool is_handle(const core::Table<T>& all, uint64_t bits, bool* ended) {
  const T* record = all.around(reinterpret_cast<const void*>(bits));
  if (record == nullptr || reinterpret_cast<uint64_t>(&record->shown) != bits) return false;
  *ended = record->handle.load(std::memory_order_acquire) == 0;
  return true;
}

// Where the driver does not say what an argument is, the value tells.
template <typename Tables>
cl_int guess_form(const Tables& all, size_t size, const void* value,
                  wire::opencl::ArgumentForm* form) {
  using wire::opencl::ArgumentForm;
  *form = value == nullptr ? ArgumentForm::kLocal : ArgumentForm::kValue;
  if (value == nullptr || size != sizeof(cl_mem)) return CL_SUCCESS;
  uint64_t bits = 0;
  __builtin_memcpy(&bits, value, sizeof bits);
  bool ended = false;
  if (is_handle(all.memories, bits, &ended))
    *form = ArgumentForm::kMemory;
  else if (is_handle(all.samplers, bits, &ended))
    *form = ArgumentForm::kSampler;
  return ended ? CL_INVALID_ARG_VALUE : CL_SUCCESS;
}

}  // namespace tendril::client::opencl
