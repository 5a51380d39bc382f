// SPDX-License-Identifier: Apache-2.0
// Kernels that set the value of a graph's condition. The function comes from the device runtime,
// which a real driver links only into programs built with it. On such a driver this module does not
// load, and its tests are skipped.
#include "tests/conformance/kernels/device.h"

extern "C" __device__ void cudaGraphSetConditional(uint64 handle, uint32 value);

// Counts down to zero, and says whether to go on.
KERNEL count_down(uint32* counter, uint32* rounds, uint64 handle) {
  if (*counter != 0) --*counter;
  ++*rounds;
  cudaGraphSetConditional(handle, *counter);
}

KERNEL choose(const uint32* value, uint64 handle) { cudaGraphSetConditional(handle, *value); }
