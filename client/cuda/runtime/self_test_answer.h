// SPDX-License-Identifier: Apache-2.0
// The CUDA runtime's self-test of its driver: what it asks, and our answer. What this is for, and
// what it does not do, stands in docs/runtime-self-test.md. Built only with
// TENDRIL_RUNTIME_SELF_TEST.
#pragma once

#include <cstdint>

namespace tendril::client::cuda {

// Everything the answer depends on, as the asking process sees it.
struct SelfTestQuestion {
  uint32_t version = 0;  // the runtime's, plus 0, 1 or 2
  uint64_t unix_seconds = 0;
  uint32_t driver_version = 0, process = 0, thread = 0;
  const void *runtime_table = nullptr, *self_test_table = nullptr, *function = nullptr;
};

// Writes the 16 bytes. Devices are those of process(), in order: UUID and PCI address.
void self_test_answer(const SelfTestQuestion& question, uint64_t answer[2]);

}  // namespace tendril::client::cuda
