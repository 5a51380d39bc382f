// SPDX-License-Identifier: Apache-2.0
// Device code of any content: code_variables reads no byte outside of it and comes to an end.
#include <memory>

#include "worker/cuda/code/code_variables.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  const std::unique_ptr<uint8_t[]> copy(
      new uint8_t[bytes]);  // of its own, so that the sanitizer sees its end
  for (size_t i = 0; i < bytes; ++i) copy[i] = data[i];
  tendril::worker::cuda::code_variables(copy.get(), bytes);
  return 0;
}
