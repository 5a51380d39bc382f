// SPDX-License-Identifier: Apache-2.0
// The knobs of the software GPU, read once from the environment. Callable from any thread, before
// cuInit too.
#pragma once

#include <cstdint>
#include <string>

#include "api/cuda_abi.gen.h"

namespace tendril::softgpu {

struct Config {
  unsigned devices = 1;                   // TENDRIL_SOFTGPU_DEVICES, 0 to 64
  uint64_t memory_bytes = 1024ull << 20;  // TENDRIL_SOFTGPU_MEMORY_MB, per device
  int major = 9, minor = 0;               // TENDRIL_SOFTGPU_CAPABILITY
  unsigned sm_count = 4;                  // TENDRIL_SOFTGPU_SMS
  uint64_t step_budget = 0;  // TENDRIL_SOFTGPU_STEPS: warp instructions per launch, 0 = no limit
  bool trace = false;        // TENDRIL_SOFTGPU_TRACE=1
  bool has_faults = false;   // TENDRIL_SOFTGPU_FAIL=name:n:code[,name:n:code...]
};

const Config& config();

// Counts a call of `name`; the code to answer with when a knob says that this call fails, else
// CUDA_SUCCESS.
CUresult injected_fault(const char* name);

}  // namespace tendril::softgpu
